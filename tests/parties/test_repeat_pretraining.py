"""Pre-training that is repeated without a client shows its message, whatever hides single messages."""

from __future__ import annotations

import pytest
import torch

from fglaudit.attacking import run_attacks
from fglaudit.attacks.sums.differenced_sums import DifferencedSums, differences
from fglaudit.attacks.sums.server_partial_sums import ServerPartialSums
from fglaudit.defenses.aggregation.secure_aggregation import SecureAggregation
from fglaudit.defenses.encryption.homomorphic_encryption import HomomorphicEncryption
from fglaudit.defenses.noise.gaussian import Gaussian
from fglaudit.defenses.none import NoDefense
from fglaudit.defenses.stack import Stack
from fglaudit.finding import Finding, Status
from fglaudit.graph import FederatedGraph
from fglaudit.guarantees import Word
from fglaudit.interfaces import Attack, Defense
from fglaudit.observers import ObserverSpec
from fglaudit.parties.repeat_pretraining import RepeatPretraining
from fglaudit.payloads import SERVER
from fglaudit.protocols.fedgcn.fedgcn import FedGCN, Weights
from fglaudit.recording import Recording, record_training
from fglaudit.scoring.score import Scorer
from fglaudit.scoring.truth import GroundTruth
from fglaudit.testing import example_graph
from fglaudit.view import Observer


def graph() -> FederatedGraph:
    return example_graph(nodes=90, features=40, clients=3)


def recorded(
    defense: Defense, clients: int | None, hops: int = 1, aggregate: Weights = "normalised"
) -> tuple[Recording, GroundTruth]:
    active = None if clients is None else RepeatPretraining(clients=clients)
    protocol = FedGCN(hops=hops, rounds=1, local_steps=1, aggregate=aggregate)
    return record_training(graph(), protocol, defense, behaviour=active)


def finding(run: tuple[Recording, GroundTruth], attack: Attack) -> Finding:
    scorer = Scorer(run[1])
    [output] = run_attacks(run[0], [ObserverSpec(("server",))], [attack], nothing_to_ask=scorer.nothing_to_ask)
    return scorer.measure(output).finding


@pytest.mark.parametrize("hops", [1, 2])
def test_secure_aggregation_falls_when_the_set_of_senders_changes_by_one(hops: int) -> None:
    clear = finding(recorded(NoDefense(), None, hops), ServerPartialSums())
    hidden = finding(recorded(SecureAggregation(), None, hops), ServerPartialSums())
    run = recorded(SecureAggregation(), 3, hops)
    shown = finding(run, DifferencedSums())
    assert shown.exact_rate == clear.exact_rate and (shown.exact_rate or 0) > (hidden.exact_rate or 0) + 0.2
    assert (shown.status, shown.adapted, shown.server) == (Status.OK, "yes", "repeat-pretraining(clients=3)")
    assert finding(run, ServerPartialSums()).value == hidden.value  # which reads the first sums alone
    assert any("without another one" in note for note in run[0].notes)


def test_what_rests_on_keys_is_not_verified_where_a_party_breaks_the_rules() -> None:
    words = []
    for active in (None, RepeatPretraining()):
        run, _ = record_training(
            graph(), FedGCN(hops=1, rounds=1), SecureAggregation(), behaviour=active, empirical=True
        )
        words.append(run.verdict.word)
    assert words == [Word.VERIFIED, Word.CLAIMED] and "here one does not: repeat-pretraining" in run.verdict.reason


@pytest.mark.parametrize("defense", [NoDefense(), SecureAggregation()])
def test_differences_are_the_parts_of_the_client_that_is_missing(defense: Defense) -> None:
    """Against the sums over its nodes, entry by entry; of the rows only its own are found."""
    run, _ = recorded(defense, 1)
    g = graph()
    adjacency = torch.eye(90, dtype=torch.double)
    adjacency[g.edge_index[0], g.edge_index[1]] = 1
    scale = adjacency.sum(1).rsqrt()
    weights = scale[:, None] * adjacency * scale
    mine = torch.zeros(90, dtype=torch.double).index_fill(0, g.clients[0], 1)
    parts = weights @ (g.x.double() * mine[:, None])
    [found] = differences(run.view(Observer((SERVER,))))
    assert found.client == 0 and torch.equal(found.nodes.sort().values, g.clients[0])
    assert torch.allclose(found.parts, parts[found.nodes], atol=1e-5)
    rows = DifferencedSums().run(run.view(Observer((SERVER,))), rng=torch.Generator(), device=torch.device("cpu"))
    assert bool(torch.isin(rows.nodes, g.clients[0]).all())


def test_counts_and_a_wire_tap() -> None:
    run = recorded(NoDefense(), 3, aggregate="counts")
    scorer = Scorer(run[1])
    [output] = run_attacks(run[0], [ObserverSpec(("wire",))], [DifferencedSums()], nothing_to_ask=scorer.nothing_to_ask)
    assert (scorer.measure(output).finding.exact_rate or 0) > 0.1


def test_noise_is_drawn_afresh_and_accounted_for_every_repetition() -> None:
    once, twice, four = (recorded(Gaussian(epsilon=8), clients)[0] for clients in (None, 1, 3))
    spent = [run.verdict.epsilon or 0 for run in (once, twice, four)]
    assert spent[0] == pytest.approx(8, abs=1e-3) and spent[0] < spent[1] < spent[2]
    assert finding(recorded(Gaussian(epsilon=8), 3), DifferencedSums()).exact_rate == 0
    almost_none = finding(recorded(Gaussian(epsilon=1e4), 3), DifferencedSums())
    assert almost_none.adapted == "yes" and (almost_none.exact_rate or 0) > 0.2


def test_noise_before_secure_aggregation_stays_in_differences() -> None:
    stack = Stack((Gaussian(epsilon=8), SecureAggregation()))
    assert finding(recorded(stack, 3), DifferencedSums()).exact_rate == 0


def test_encrypted_sums_show_no_difference_to_the_server() -> None:
    found = finding(recorded(HomomorphicEncryption(), 1), DifferencedSums())
    assert found.status is Status.NOT_APPLICABLE


def test_what_is_impossible_is_refused_with_a_reason() -> None:
    assert "sends none" in str(RepeatPretraining().unsupported(FedGCN(hops=0), graph()))
    assert "there are 3" in str(RepeatPretraining(clients=4).unsupported(FedGCN(), graph()))
    assert RepeatPretraining().unsupported(FedGCN(), graph()) is None
    honest = finding(recorded(SecureAggregation(), None), DifferencedSums())
    assert honest.status is Status.NOT_APPLICABLE and "no pre-training was repeated" in honest.reason
