"""What attacks read from facts: noise, clips, rows, edges, and which facts an attack says it allows for."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from fglaudit.adversary.clipping import KnownClip, added_std
from fglaudit.adversary.modelled import out_of_order
from fglaudit.adversary.public_rules import (
    absent_clients,
    fewest_neighbors,
    known_as_used,
    lossless,
    noise_on,
    noise_std,
    norm_bound,
    rounding_of_sums,
    rows_unaltered,
    same_neighborhoods,
)
from fglaudit.attacking import adapted
from fglaudit.attacks.sums.maximum_a_posteriori import MaximumAPosteriori
from fglaudit.attacks.sums.row_presence import RowPresence
from fglaudit.attacks.sums.row_space import RowSpace
from fglaudit.attacks.sums.server_partial_sums import ServerPartialSums
from fglaudit.attacks.sums.subset_sum import SubsetSum
from fglaudit.attacks.updates.absent_words import AbsentWords
from fglaudit.attacks.updates.update_labels import UpdateLabels
from fglaudit.attacks.updates.update_linkage import UpdateLinkage
from fglaudit.context import Context
from fglaudit.facts import (
    EDGES,
    GRADIENTS,
    ROWS,
    Absent,
    Additive,
    Clipped,
    Correlated,
    DroppedEdges,
    Fact,
    Field,
    Foreign,
    KeptColumns,
    Merged,
    Randomised,
    Rounded,
    Sealed,
)
from fglaudit.graph import ClientGraph
from fglaudit.interfaces import Attack, Defense, DefenseSession, Reconstruction
from fglaudit.payloads import SERVER, Latents, ModelUpdate, NeighborSums
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.testing import CPU, example_graph, record
from fglaudit.view import Observer, View

USED = tuple(range(0, 24, 2))


class _EvenColumns(DefenseSession):
    def prepare(self, client: ClientGraph, rng: torch.Generator) -> ClientGraph:
        kept = torch.isin(torch.arange(client.x.shape[-1]), torch.tensor(USED))
        return dataclasses.replace(client, x=client.x * kept)

    def facts(self) -> tuple[Fact, ...]:
        return (KeptColumns(ROWS, USED),)


@dataclass(frozen=True)
class EvenColumns(Defense):
    """Sends even columns alone."""

    name: ClassVar[str] = "even-columns"

    def bind(self, context: Context) -> DefenseSession:
        return _EvenColumns()


SUMS, MODELS = Field("NeighborSums", "sums", "up"), Field("ModelUpdate", direction="up")
ATTACKS: tuple[Attack, ...] = (
    *(MaximumAPosteriori(), SubsetSum(), RowSpace(), RowPresence(), ServerPartialSums()),
    *(AbsentWords(), UpdateLabels(), UpdateLinkage()),
)


@dataclass(frozen=True)
class Kindness(Fact):
    """A plugin's own fact."""


@pytest.fixture(scope="module")
def plain() -> View:
    observer = Observer(parties=(SERVER,), topology=True, auxiliary=0.1)
    return record(FedGCN(rounds=1), example_graph(nodes=40)).view(observer)


def told(view: View, *facts: Fact) -> View:
    """Return ``view`` with these facts."""
    return dataclasses.replace(view, public=dataclasses.replace(view.public, facts=facts))


def test_noises_on_one_field_add_up(plain: View) -> None:
    view = told(plain, Additive(SUMS, "gaussian", 3.0), Additive(SUMS, "gaussian", 4.0))
    assert noise_on(view, NeighborSums) == Additive(SUMS, "gaussian", 5.0)
    mixed = noise_on(told(plain, Additive(SUMS, "gaussian", 3.0), Additive(SUMS, "laplace", 1.0)), NeighborSums)
    assert mixed is not None and mixed.distribution not in ("gaussian", "laplace")
    assert mixed.std == pytest.approx(math.sqrt(11))


def test_noise_is_about_its_field_and_direction(plain: View) -> None:
    view = told(plain, Additive(SUMS, "gaussian", 3.0))
    assert noise_std(view, NeighborSums, "nodes") == 0 and noise_std(view, Latents) == 0
    assert noise_std(view, NeighborSums, "sums", "down") == 0 and noise_std(view, NeighborSums, "sums", "up") == 3
    everywhere = told(plain, Additive(Field("NeighborSums"), "gaussian", 3.0), Additive(SUMS, "gaussian", 4.0))
    assert noise_std(everywhere, NeighborSums, "sums", "up") == pytest.approx(5.0)


def test_grids_count_as_noise(plain: View) -> None:
    values = torch.tensor([[0.0, 3.0], [0.0, 6.0]])
    by_range = added_std(told(plain, Rounded(Field("Latents"), None, None, 4, True)), Latents, values)
    assert by_range == pytest.approx(math.sqrt((1 + 4) / 2 / 6))
    assert added_std(told(plain, Rounded(Field("Latents"), step=0.5)), Latents, values) == pytest.approx(0.5 / 12**0.5)


def test_a_clip_of_rows_is_none_of_messages(plain: View) -> None:
    assert KnownClip.of(told(plain, Clipped(Field("Latents"), "L1", 2.0)), Latents) == KnownClip(2.0, 1.0)
    assert KnownClip.of(told(plain, Clipped(ROWS, "L1", 2.0, "row")), Latents) is None
    assert norm_bound(told(plain, Clipped(ROWS, "L1", 2.0, "row"))) == 2.0
    assert norm_bound(plain) == math.inf


@pytest.mark.parametrize(
    ("facts", "rows", "edges", "sums"),
    [
        ((), True, True, True),
        ((Sealed(Field("NeighborSums"), "bfv"), Absent(SUMS, (3,))), True, True, True),
        ((DroppedEdges(EDGES, 2),), True, False, True),
        ((Merged(EDGES, 2),), False, False, True),
        ((KeptColumns(ROWS, (0,)),), False, True, False),
        ((Kindness(ROWS),), False, True, False),
        ((Kindness(EDGES),), True, False, True),
        ((Kindness(SUMS),), True, True, False),
        ((Additive(GRADIENTS, "gaussian", 1.0),), True, True, False),
        ((Additive(Field("Latents"), "gaussian", 1.0),), True, True, True),
    ],
)
def test_what_is_as_its_owner_made_it(
    plain: View, facts: tuple[Fact, ...], rows: bool, edges: bool, sums: bool
) -> None:
    view = told(plain, *facts)
    assert (rows_unaltered(view), same_neighborhoods(view), lossless(view, NeighborSums)) == (rows, edges, sums)


def test_senders_and_terms(plain: View) -> None:
    view = told(plain, DroppedEdges(EDGES, 2), DroppedEdges(EDGES, 3), Absent(SUMS, (4, 1)))
    assert fewest_neighbors(view) == 3 and absent_clients(view, NeighborSums).tolist() == [1, 4]
    assert fewest_neighbors(plain) == 1 and len(absent_clients(plain, NeighborSums)) == 0
    assert rounding_of_sums(told(plain, Sealed(Field("NeighborSums"), "ckks", rounding=0.25)), NeighborSums) == 0.25
    flooded = told(plain, Sealed(Field("NeighborSums"), "ckks", flooding=1.0))
    assert rounding_of_sums(flooded, NeighborSums) > 5


def test_known_rows_as_they_are_used(plain: View) -> None:
    rows = torch.tensor([[3.0, 4.0] + [0.0] * (plain.public.num_features - 2)])
    cut = known_as_used(told(plain, Clipped(ROWS, "L2", 1.0, "row"), KeptColumns(ROWS, (1,))), rows)
    assert cut[0, :3].tolist() == pytest.approx([0.0, 0.8, 0.0])


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda a: type(a).name)
@pytest.mark.parametrize("target", [ROWS, EDGES, GRADIENTS, SUMS, MODELS], ids=str)
def test_unknown_facts_are_never_allowed_for(attack: Attack, target: object) -> None:
    for kind in (Kindness(target), Foreign(target, "Kindness")):  # type: ignore[arg-type]
        assert not attack.models(kind)


@pytest.mark.parametrize("attack", ATTACKS[:5], ids=lambda a: type(a).name)
def test_merged_neighbours_are_not_allowed_for_in_sums(attack: Attack) -> None:
    assert not attack.models(Merged(EDGES, 2))


def test_noise_that_depends_on_other_noise_is_not_allowed_for() -> None:
    both: Sequence[Fact] = (Additive(SUMS, "gaussian", 1.0), Correlated(SUMS, ((1.0,),)))
    assert adapted(MaximumAPosteriori(), both) == "no: Correlated"
    assert adapted(MaximumAPosteriori(), both[:1]) == "yes"
    assert adapted(MaximumAPosteriori(), (Additive(SUMS, "cauchy", 1.0),)) == "no: Additive"
    assert adapted(AbsentWords(), (Additive(ROWS, "gaussian", 1.0),)) == "no: Additive"


def test_reports_are_asked_about_once() -> None:
    reports: Sequence[Fact] = (Clipped(ROWS, "L1", 1.0, "row"), Additive(ROWS, "laplace", 1.0))
    assert adapted(RowSpace(), reports) == "yes"
    assert adapted(RowSpace(), (Randomised(ROWS, "k-ary"),)) == "no: Randomised"
    assert adapted(RowSpace(), (Clipped(ROWS, "elementwise", 1.0), *reports[1:])) == "no: Clipped"


def test_an_order_that_attacks_do_not_expect() -> None:
    noise, clip, other = Additive(SUMS, "gaussian", 1.0), Clipped(SUMS, "L2", 1.0), Clipped(MODELS, "L2", 1.0)
    assert out_of_order((clip, noise, other)) == ()
    assert out_of_order((noise, clip)) == (clip,)
    assert out_of_order((clip, Clipped(SUMS, "L2", 2.0))) == (Clipped(SUMS, "L2", 2.0),)
    assert out_of_order((Additive(Field("ModelUpdate", direction="down"), "gaussian", 1.0), other)) == ()
    assert adapted(UpdateLinkage(), (Additive(MODELS, "gaussian", 1.0), other)) == "no: Clipped"


@pytest.mark.parametrize("attack", [MaximumAPosteriori(), SubsetSum(), RowSpace()], ids=lambda a: type(a).name)
def test_nothing_is_proven_of_columns_that_are_not_sent(attack: Attack) -> None:
    graph = example_graph(nodes=40)
    view = record(FedGCN(rounds=1), graph, EvenColumns()).view(Observer(parties=(0,), topology=True, auxiliary=0.2))
    result = attack.run(view, rng=torch.Generator().manual_seed(0), device=CPU)
    assert isinstance(result, Reconstruction) and result.proven is not None and not bool(result.proven.any())
    used = torch.tensor(USED)
    whole = attack.run(record(FedGCN(rounds=1), graph).view(view.observer), rng=torch.Generator(), device=CPU)
    assert isinstance(whole, Reconstruction) and whole.proven is not None and bool(whole.proven.any())
    shared = torch.isin(whole.nodes, result.nodes) & whole.proven
    place = torch.searchsorted(result.nodes, whole.nodes[shared])
    assert torch.equal(result.rows[place][:, used], graph.x[whole.nodes[shared]][:, used])


def test_model_updates_are_read_by_their_own_facts(plain: View) -> None:
    assert lossless(told(plain, Additive(SUMS, "gaussian", 1.0)), ModelUpdate)
