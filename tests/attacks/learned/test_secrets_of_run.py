"""Secrets of a run, learned from messages of which some rows are known, and how maps are put to the test."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from bench.obfuscation.measure import measured
from bench.obfuscation.obfuscated import Obfuscated
from bench.obfuscation.payloads import hidden
from fglaudit.adversary.planting import MemoryMessages
from fglaudit.attacks.learned.maps.row_map import identity
from fglaudit.attacks.learned.partly_known import confirmed, may_be_ordered, partly_known, signed_order, turned
from fglaudit.attacks.learned.probes import apart
from fglaudit.payloads import SERVER, NeighborSums
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.registry import build
from fglaudit.rng import derive
from fglaudit.testing import example_graph, record
from fglaudit.view import Observer

CPU = torch.device("cpu")
MESSAGES, WIDTH, DRAWS = 120, 8, 8


def messages(whole: int = 0) -> tuple[Tensor, Tensor]:
    """Return sums of one row that is known and one that is not: as drawn [8, 120, 8], and as they are [120, 8]; the
    first ``whole`` are known as a whole."""
    rng = derive(0, "messages")
    chance = torch.linspace(0.1, 0.6, WIDTH, dtype=torch.double)
    known = (torch.rand(MESSAGES, WIDTH, generator=rng) < chance).double()
    known[:, 0] = 1.0
    unknown = 0.7 * (torch.rand(DRAWS + 1, MESSAGES, WIDTH, generator=rng) < chance).double()
    unknown[:, :whole] = 0
    return known + unknown[:-1], known + unknown[-1]


def test_an_order_of_columns_with_signs_is_learned_though_no_message_is_known() -> None:
    made, plain = messages()
    order, sign = torch.tensor([3, 0, 7, 1, 6, 2, 5, 4]), torch.tensor([1.0, -1, 1, 1, -1, -1, 1, 1]).double()
    known = partly_known(made, plain[:, order] * sign)
    assert known is not None and known.steps is not None
    found = signed_order(known)
    assert found is not None and torch.equal(found.apply(known.sent), plain)


def test_a_rotation_is_learned_from_fewer_known_messages_than_columns() -> None:
    made, plain = messages(whole=6)
    rotation = torch.linalg.qr(torch.randn(WIDTH, WIDTH, generator=derive(1, "turn"), dtype=torch.double))[0]
    known = partly_known(made, plain @ rotation)
    assert known is not None and not confirmed(known, identity)
    found = turned(known)
    assert found is not None and torch.allclose(found.apply(known.sent), plain, atol=1e-9)


def test_noise_is_taken_for_no_secret() -> None:
    made, plain = messages()
    known = partly_known(made, plain + 20 * torch.randn(plain.shape, generator=derive(2, "pad"), dtype=torch.double))
    assert known is not None and turned(known) is None
    found = signed_order(known)
    assert found is None or not confirmed(known, found.apply)


def test_wide_rows_are_put_in_order_only_where_columns_look_alike() -> None:
    """Sums of one to six sparse rows, of which half are known: 600 columns, which large sums make alike."""
    count, width, rng = 400, 600, derive(5, "wide")
    times = torch.randint(1, 7, (count, 1), generator=rng).double()
    mean = (torch.rand(count, width, generator=rng) < 0.05).double() * times
    plain = mean + (torch.rand(count, width, generator=rng) < 0.05).double() * times
    turn = torch.linalg.qr(torch.randn(width, width, generator=rng, dtype=torch.double))[0]
    assert may_be_ordered(mean, plain[:, torch.randperm(width, generator=rng)])
    assert not may_be_ordered(mean, plain @ turn)
    assert not may_be_ordered(mean, plain + 50 * torch.randn(plain.shape, generator=rng, dtype=torch.double))


def test_maps_are_tested_on_rows_that_were_not_learned_from() -> None:
    pool = torch.randn(20, 3, generator=derive(3, "pool"), dtype=torch.double).repeat(4, 1)
    taught, held = apart(pool, derive(4, "split"))
    rows = [{tuple(row) for row in part.tolist()} for part in (taught, held)]
    assert rows[0] and rows[1] and not rows[0] & rows[1]
    assert len(taught) + len(held) == len(pool)


@pytest.mark.parametrize("kind", ["permutation", "rotation", "signed-order"])
def test_secrets_of_sums_are_undone_with_few_known_rows(kind: str) -> None:
    """18 rows of 60 are known, of 24 columns; without a map every row is exact."""
    attack = build("attack", "learned-inversion", {})
    found = measured(example_graph(), Obfuscated(kind, secret=True), attack, 0.3)
    assert (found.exact_rate or 0) >= 0.95 > 0.5 > (found.control_cosine or 0)


def test_secret_signs_of_latents_are_learned_from_the_round_that_no_hidden_message_led_to() -> None:
    """12 rows of 40 are known; later latents follow from gradients of hidden ones, which no rehearsal makes again."""
    found = hidden("latents (nFedGNN)", "signs", secret=True)
    assert (found.exact_rate or 0) >= 0.95 > 0.5 > (found.control_cosine or 0)


@pytest.mark.parametrize(
    ("kind", "share", "exact", "cosine"),
    [("reused-mask", 0.1, 0.95, 0.95), ("shared-mask", 0.1, 0.9, 0.95), ("shift-per-node", 0.1, 0.7, 0.85)],
)
def test_masks_that_several_messages_share_fall_out_of_their_differences(
    kind: str, share: float, exact: float, cosine: float
) -> None:
    """One mask for all messages of a run, one for every two, one for every node; 6 rows of 60 are known.

    What one client alone sends of a node keeps its mask.
    """
    found = measured(example_graph(), Obfuscated(kind, secret=True), build("attack", "learned-inversion", {}), share)
    assert (found.exact_rate or 0) >= exact and (found.cosine or 0) >= cosine > 0.5 > (found.control_cosine or 0)


def test_a_mask_that_one_message_has_alone_is_not_looked_for() -> None:
    attack = build("attack", "learned-inversion", {})
    found = measured(example_graph(), Obfuscated("one-time-pad"), attack, 0.3)
    assert (found.advantage_low or 0) <= 0.02


def test_behind_masks_by_node_is_found_what_messages_with_shared_masks_tell() -> None:
    """A mask that one message has alone is a one-time pad: without these messages nothing more is told undefended."""
    graph, sees = example_graph(), Observer(parties=(SERVER,), topology=True, auxiliary=0.3)
    protocol = FedGCN(hops=1, rounds=1)
    plain = record(protocol, graph).view(sees)
    sent = [batch for batch in plain.messages.of(NeighborSums) if bool((batch.senders != SERVER).all())]
    nodes, count = torch.unique(torch.cat([batch.payload.tensors()["nodes"] for batch in sent]), return_counts=True)
    alone = nodes[count == 1]
    assert len(alone) > 5
    told = []
    for batch in plain.messages.of(NeighborSums):
        use = ~torch.isin(batch.payload.tensors()["nodes"], alone)
        kept = torch.zeros(len(batch.senders), dtype=torch.long).index_add_(0, batch.entry_messages(), use.long())
        splits = torch.cat([kept.new_zeros(1), kept.cumsum(0)])
        told.append(replace(batch, payload=batch.payload.select(use.nonzero().squeeze(1)), splits=splits))
    most = build("attack", "row-space", {}).run(
        replace(plain, messages=MemoryMessages(tuple(told))), rng=derive(0, "most"), device=CPU
    )
    masked = record(protocol, graph, Obfuscated("shift-per-node", secret=True)).view(sees)
    found = build("attack", "learned-inversion", {}).run(masked, rng=derive(0, "found"), device=CPU)
    exact = [(r.rows.float() - graph.x[r.nodes]).abs().amax(1) < 1e-3 for r in (most, found)]
    assert int(exact[1].sum()) >= int(exact[0].sum()) > 20
