"""What is left of a mean of models once the observer's own are taken off."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from scored_runs import finding_of

from fglaudit.adversary.uploads import means
from fglaudit.adversary.uploads.held import missing_uploads, model_noise_std, model_rounds, sending_clients
from fglaudit.adversary.uploads.means import EVERYBODY, ModelRound, averaged, one_is_left, others_means
from fglaudit.adversary.uploads.training_counts import last_count
from fglaudit.attacks.updates.update_inversion import UpdateInversion
from fglaudit.attacks.updates.update_shares import UpdateShares
from fglaudit.defenses.aggregation.secure_aggregation import SecureAggregation
from fglaudit.defenses.none import NoDefense
from fglaudit.facts import Additive, Field
from fglaudit.federated.training import Optimizer
from fglaudit.finding import Status
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import Defense, FederatedProtocol
from fglaudit.observers import ObserverSpec
from fglaudit.payloads import SERVER, ModelUpdate
from fglaudit.protocols.baselines.fedavg_graphgps import FedAvgGraphGPS
from fglaudit.protocols.baselines.fedavg_sage import FedAvgSage
from fglaudit.protocols.baselines.gcfl_sage import GCFLSage
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.protocols.fedgt.fedgt import FedGT
from fglaudit.protocols.gfl_appnp.gfl_appnp import GFLAPPNP
from fglaudit.rng import derive
from fglaudit.structure import Models
from fglaudit.testing import Run, example_graph, record
from fglaudit.view import Observer

PROTOCOL = FedGCN(hops=1, hidden=8, rounds=4, local_steps=1, dropout=0.0)


def graph() -> FederatedGraph:
    """Return a graph of four clients with few training nodes; every sum has a word of its own."""
    made = example_graph(nodes=48, features=160, clients=4)
    few = tuple(mask & (torch.arange(len(mask)) % 3 == 0) for mask in made.train)
    return replace(made, x=(torch.rand(48, 160, generator=derive(1, "rows")) < 0.06).float(), train=few)


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    defenses: dict[str, Defense] = {
        "none": NoDefense(),
        "masked": SecureAggregation(),
        "fewer": SecureAggregation(dropouts=0.25),
    }
    return {name: record(PROTOCOL, graph(), defense) for name, defense in defenses.items()}


@pytest.mark.parametrize("name", ["none", "masked"])
def test_of_a_mean_is_left_what_the_others_sent(runs: dict[str, Run], name: str) -> None:
    everything = list(model_rounds(runs["none"].view(Observer(parties=(SERVER,)))))
    for mine in ((0,), (0, 1), (0, 1, 2), (1, 2, 3)):
        view = runs[name].view(Observer(parties=mine))
        others = [client for client in range(4) if client not in mine]
        found = list(others_means(view))
        assert len(found) == len(everything) == 4
        for (client, models), truth in zip(found, everything, strict=True):
            assert client == (others[0] if len(others) == 1 else EVERYBODY)
            assert models.of == len(others) and models.spread == 4 / len(others)
            assert torch.allclose(models.change, truth.change[others].mean(0, keepdim=True), rtol=0, atol=2e-6)
        assert (missing_uploads(view, ModelUpdate) is None) == (len(others) == 1)


def test_one_left_is_that_clients_upload(runs: dict[str, Run]) -> None:
    view = runs["masked"].view(Observer(parties=(0, 1, 3)))
    assert sending_clients(view, ModelUpdate).tolist() == [2]
    assert [models.change.shape[0] for models in model_rounds(view)] == [1] * 4


def test_who_is_left_of_several_is_known_without_reading_a_message(runs: dict[str, Run]) -> None:
    read: set[tuple[str, str]] = set()
    for mine in ((0,), (0, 1)):
        assert not one_is_left(runs["masked"].view(Observer(parties=mine)).noted(read))
    assert not read


def test_a_mean_has_less_of_the_uploads_noise_and_more_of_the_servers(runs: dict[str, Run]) -> None:
    view, zero = runs["none"].view(Observer(parties=(0,))), torch.zeros(1, 5)
    up, down = (
        Additive(Field("ModelUpdate", "vector", way), "gaussian", std) for way, std in (("up", 0.3), ("down", 0.2))
    )
    told = replace(view, public=replace(view.public, facts=(up, down)))
    assert model_noise_std(told, ModelRound(zero, zero)) == pytest.approx(0.3)
    rest = ModelRound(zero, zero, of=3, spread=4 / 3)
    assert model_noise_std(told, rest) == pytest.approx(math.hypot(0.3 / 3**0.5, 0.2 * 4 / 3))


def test_clients_that_dropped_out_are_not_counted(runs: dict[str, Run]) -> None:
    """A quarter is gone in every round; a mean over three, less those of the observer that were left."""
    view = runs["fewer"].view(Observer(parties=(0, 1)))
    assert averaged(view) == 3
    sent: dict[int, int] = {}
    for batch in view.messages.of(ModelUpdate):
        if bool((batch.senders != SERVER).all()):
            sent[batch.round] = sent.get(batch.round, 0) + len(batch.senders)
    assert [models.of for _, models in others_means(view)] == [3 - sent.get(round, 0) for round in range(1, 5)]


def test_only_means_of_equal_weights_are_stated() -> None:
    made = graph()
    assert PROTOCOL.stated(made).to_json()["Models"]["averaged"] == 4
    fewer = replace(PROTOCOL, participation=0.5)
    assert fewer.stated(made).to_json()["Models"]["averaged"] == 2
    uneven = replace(made, train=(torch.ones_like(made.train[0]), *made.train[1:]))
    weighted = replace(PROTOCOL, weighting="train-nodes")
    assert weighted.stated(uneven).to_json()["Models"]["averaged"] == 0
    assert FedAvgSage().stated(uneven).to_json()["Models"]["averaged"] == 0
    nodes = example_graph(nodes=12, clients=12)
    trainers = sum(bool(mask.any()) for mask in nodes.train)
    assert GFLAPPNP().stated(nodes).to_json()["Models"]["averaged"] == trainers


@pytest.mark.parametrize("name", ["none", "masked"])
@pytest.mark.parametrize(
    ("parties", "least"),
    [
        (("client:0", "client:1"), 0.85),
        (("client:0", "client:1", "client:2"), 0.75),
        (("server", "client:0", "client:1", "client:2"), 0.75),
    ],
)
def test_colluding_clients_rebuild_the_others_rows(
    runs: dict[str, Run], name: str, parties: tuple[str, ...], least: float
) -> None:
    """Of the mean as it came 0.42 and none of the rows were found, and none of masked uploads that were opened."""
    found = finding_of(runs[name], UpdateInversion(), ObserverSpec(parties))
    assert found.value is not None and found.value >= least and found.adapted == "yes"


@pytest.mark.parametrize(("optimizer", "decay"), [("sgd", 0.0), ("sgd", 1e-3), ("adam", 1e-3)])
def test_weights_of_absent_words_say_how_many_nodes_the_other_trains_on(optimizer: Optimizer, decay: float) -> None:
    """Clients have 1 to 4 training nodes in turn: known but for the other's, which no upload was left of."""
    made = graph()
    few = tuple(torch.arange(len(nodes)) <= client for client, nodes in enumerate(made.clients))
    protocol = replace(PROTOCOL, weighting="train-nodes", weight_decay=decay, optimizer=optimizer, learning_rate=0.1)
    run = record(protocol, replace(made, train=few))
    truth = list(model_rounds(run.view(Observer(parties=(SERVER,)))))
    for other in range(4):
        view = run.view(Observer(parties=tuple(client for client in range(4) if client != other)))
        assert missing_uploads(view, ModelUpdate) is None
        for (client, models), sent in zip(others_means(view), truth, strict=True):
            assert client == other and models.spread == 10 / (other + 1)
            assert torch.allclose(models.change[0], sent.change[other], rtol=0, atol=5e-6)


@pytest.mark.parametrize(
    ("protocol", "rounds"),
    [
        (GCFLSage(hidden=8, rounds=3), 20),
        (FedAvgGraphGPS(rounds=2), 2),
        (FedGT(hidden=8, encoding=4, rounds=2, similarity="fedavg"), 2),
    ],
)
def test_the_one_left_follows_of_changes_that_move_one_model(protocol: FederatedProtocol, rounds: int) -> None:
    """GCFL+ parts nothing in its first rounds. All clients but one were refused every upload of these protocols."""
    made = graph()
    few = tuple(torch.arange(len(nodes)) <= client for client, nodes in enumerate(made.clients))
    run = record(protocol, replace(made, train=few))
    view = run.view(Observer(parties=(0, 1, 3)))
    public = view.public
    assert public.structure.of(Models).mean_rounds == rounds
    fewer = replace(view, public=replace(public, structure=public.structure.replace(Models, mean_rounds=1)))
    truth = model_rounds(run.view(Observer(parties=(SERVER,))))
    for round, (sent, found, later) in enumerate(zip(truth, others_means(view), others_means(fewer), strict=True)):
        assert found[0] == 2 and torch.allclose(found[1].change[0], sent.change[2], rtol=0, atol=5e-6)
        assert later[0] == (2 if round < 1 else EVERYBODY)


@pytest.fixture(scope="module")
def uneven() -> Run:
    """Clients have 1 to 4 training nodes in turn, and weigh as much."""
    made = graph()
    few = tuple(torch.arange(len(nodes)) <= client for client, nodes in enumerate(made.clients))
    return record(replace(PROTOCOL, weighting="train-nodes", learning_rate=0.1), replace(made, train=few))


def test_attacks_of_the_one_left_answer_messages_of_noise(uneven: Run) -> None:
    """Of noise nothing is left, and the row was "failed"."""
    found = finding_of(uneven, UpdateShares(), ObserverSpec(("client:0", "client:1", "client:2")))
    assert found.status is Status.OK


def test_a_number_that_a_later_round_shows_holds_for_the_first(uneven: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attacks read the first rounds alone; nothing was left of those before the one that showed it."""
    answers = iter([None, None])
    monkeypatch.setattr(means, "last_count", lambda *seen: next(answers, 4))
    found = list(others_means(uneven.view(Observer(parties=(0, 1, 2)))))
    assert [client for client, _ in found] == [3] * 4


def test_noise_names_no_number() -> None:
    rng = derive(0, "noise")
    own, mean = torch.randn(3, 5000, generator=rng).double(), torch.randn(5000, generator=rng).double()
    assert last_count(own, torch.ones(3).double(), mean, None) is None
    assert last_count(own, torch.ones(3).double(), own.mean(0) + 0.1 * mean, torch.zeros(5000).double()) is None
