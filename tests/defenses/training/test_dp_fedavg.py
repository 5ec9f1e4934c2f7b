"""Federated averaging with differential privacy for clients: who sees what, how noise is calibrated, and canaries in
it."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from dp_runs import GRAPH, SILENT, change_noise, per_node, train
from stated_facts import stated
from torch import Tensor

from fglaudit.context import Context, Uploads
from fglaudit.defenses.training.dp_fedavg import DpFedAvg, Trust, _Session
from fglaudit.empirical.estimates.gdp import gdp
from fglaudit.errors import FglauditError
from fglaudit.facts import Additive
from fglaudit.federated.fedavg import average, broadcast, largest_share, upload
from fglaudit.graph import FederatedGraph
from fglaudit.interfaces import FederatedProtocol
from fglaudit.payloads import SERVER, MessageBatch, ModelUpdate, Payload
from fglaudit.privacy.accounting import Relation, epsilon_of_mu
from fglaudit.privacy.subsampled_accounting import fixed_sample_epsilon
from fglaudit.protocols.baselines.fedavg_sage import FedAvgSage
from fglaudit.protocols.baselines.fedmlp import FedMLP
from fglaudit.protocols.baselines.gcn import GCN
from fglaudit.protocols.fedgat.fedgat import FedGAT
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.protocols.fedgt.fedgt import FedGT
from fglaudit.protocols.gfl_appnp.gfl_appnp import GFLAPPNP
from fglaudit.protocols.nfedgnn.cnfgnn import CNFGNN
from fglaudit.rng import derive
from fglaudit.testing import check_defense, record
from fglaudit.view import Observer
from fglaudit.wire.channel import RecordingChannel

LOCAL = FedGCN(hops=0, rounds=3)
NODES = per_node(GRAPH)


def session_of(defense: DpFedAvg, uploads: Uploads, rounds: int = 1) -> _Session:
    session = defense.bind(Context("any", rounds, uploads.among, 8, (), uploads=uploads))
    assert isinstance(session, _Session)
    return session


def test_noise_for_drawn_clients_is_calibrated_once_however_often_it_is_bound() -> None:
    few = Uploads(senders=3, among=300, share=1 / 3)
    first = session_of(DpFedAvg(trust="server"), few)
    asked = fixed_sample_epsilon.cache_info().misses
    again = session_of(DpFedAvg(trust="server"), few)
    assert again.mechanism == first.mechanism
    assert fixed_sample_epsilon.cache_info().misses == asked


def vectors(batch: MessageBatch) -> Tensor:
    assert isinstance(batch.payload, ModelUpdate)
    return batch.payload.vector


SENDING: list[tuple[FederatedProtocol, FederatedGraph, str]] = [
    (FedGCN(hops=1, rounds=2, participation=0.5), GRAPH, "server"),
    (FedGAT(rounds=2, hidden=4, heads=2, bounds="none"), GRAPH, "server"),
    (FedAvgSage(rounds=2, hidden=8), GRAPH, "distributed"),
    (FedMLP(rounds=2, hidden=8), NODES, "server"),
    (CNFGNN(rounds=2, hidden=4), NODES, "server"),
    (FedGT(rounds=2, hidden=8, global_nodes=3, heads=2), GRAPH, "local"),
]


@pytest.mark.filterwarnings("ignore:fedgat")
@pytest.mark.parametrize(("protocol", "graph", "trust"), SENDING, ids=lambda v: getattr(v, "name", ""))
def test_promises_are_kept(protocol: FederatedProtocol, graph: FederatedGraph, trust: Trust) -> None:
    check_defense(DpFedAvg(trust=trust), protocol, graph, quick=True)


def test_where_nothing_can_be_promised_there_is_a_reason() -> None:
    assert "no client of gcn sends a model" in (DpFedAvg().unsupported(GCN().context(GRAPH)) or "")
    assert "sends a model" in (DpFedAvg().unsupported(FedMLP(federated=False).context(NODES)) or "")
    for protocol in (FedGT(), FedGAT()):
        for trust in ("server", "distributed"):
            assert "use trust: local" in (DpFedAvg(trust=trust).unsupported(protocol.context(GRAPH)) or "")
        assert DpFedAvg(trust="local").unsupported(protocol.context(GRAPH)) is None
    with pytest.raises(FglauditError, match="dp-fedavg does not apply"):
        DpFedAvg().bind(GCN().context(GRAPH))


def test_the_server_sees_clipped_uploads_and_clients_one_noisy_model() -> None:
    run = record(LOCAL, defense=DpFedAvg(clip=0.01, epsilon=2))
    assert isinstance(run.session, _Session)
    server = list(run.view(Observer(parties=(SERVER,))).messages.of(ModelUpdate))
    received = {b.round: vectors(b) for b in server if int(b.senders[0].item()) == SERVER}
    sent = {b.round: vectors(b) for b in server if int(b.senders[0].item()) != SERVER}
    for round, uploads in sent.items():
        change = uploads - received[round - 1]
        torch.testing.assert_close(change.norm(dim=1), torch.full((3,), 0.01), rtol=1e-3, atol=0)
        noise = received[round][0] - uploads.mean(0)
        assert float(noise.std().item()) == pytest.approx(run.session.mechanism.scale, rel=0.1)
        assert bool((received[round] == received[round][0]).all())
    final = torch.cat([weight.flatten() for weight in run.trained.weights.values()])
    assert torch.equal(final, received[LOCAL.rounds][0])  # the noisy one


@pytest.mark.parametrize("trust", ["local", "distributed"])
def test_clients_add_noise_to_their_own(trust: Trust) -> None:
    session = session_of(DpFedAvg(trust=trust, clip=0.5), Uploads(4, 4, 0.25))
    rng = torch.Generator().manual_seed(0)
    channel = RecordingChannel(session, 4, rng)
    start = torch.randn(20000, generator=rng)
    assert torch.equal(broadcast(channel, 0, start, 4)[0], start)
    noise = upload(channel, 1, start.expand(4, -1), torch.arange(4)) - start
    whole = session_of(DpFedAvg(trust="server", clip=0.5), Uploads(4, 4, 0.25)).mechanism.scale  # of the mean of 4
    expected = session.mechanism.multiplier * 0.5 if trust == "local" else whole * 4 / 2
    assert float(noise.std().item()) == pytest.approx(expected, rel=0.02)
    assert stated(session, Additive, ModelUpdate).scale == session.mechanism.scale == pytest.approx(expected)


def test_changes_are_clipped_as_they_are_where_they_are_what_is_sent() -> None:
    session = session_of(DpFedAvg(trust="local", clip=0.5), Uploads(2, 2, 0.5, changes=True, mean=False))
    change_noise(session, SILENT)
    channel = RecordingChannel(session, 2, torch.Generator())
    broadcast(channel, 0, torch.full((4,), 9.0), 2)
    torch.testing.assert_close(upload(channel, 1, torch.tensor([[3.0, 4, 0, 0], [0.1, 0, 0, 0]]), torch.arange(2)),
                               torch.tensor([[0.3, 0.4, 0, 0], [0.1, 0, 0, 0]]))  # fmt: skip


def test_what_is_accounted_is_what_the_observer_is_held_to() -> None:
    server = session_of(DpFedAvg(epsilon=3), Uploads(10, 10, 0.1), 7).guarantee()
    assert server.epsilon_accounted == pytest.approx(3, abs=0.01) and server.server_trusted and server.unit == "client"
    assert not server.covers(Observer(parties=(SERVER,))) and server.covers(Observer(parties=(0, 1)))
    local = session_of(DpFedAvg(epsilon=3, trust="local"), Uploads(10, 10, 0.1), 7).guarantee()
    assert local.epsilon_accounted == pytest.approx(3, abs=0.01) and local.covers(Observer(parties=(SERVER,)))
    shares = session_of(DpFedAvg(epsilon=3, trust="distributed"), Uploads(10, 10, 0.1), 7)
    promised = shares.guarantee()
    assert promised.epsilon_accounted == pytest.approx(epsilon_of_mu(math.sqrt(7) / shares.mechanism.multiplier, 1e-5))
    assert promised.epsilon_accounted is not None and promised.epsilon_accounted > 3 == promised.epsilon_claimed
    assert "seen alone" in promised.mechanism


@pytest.mark.parametrize("colluding", [0, 1, 7])
def test_what_is_left_of_a_sums_noise_without_the_shares_of_colluders_is_enough(colluding: int) -> None:
    """With secure aggregation the server sees sums alone; what colluders added they take off again."""
    defense = DpFedAvg(trust="distributed", clip=0.5, colluding=colluding)
    session = session_of(defense, Uploads(10, 10, 0.1), 7)
    rng = torch.Generator().manual_seed(0)
    channel = RecordingChannel(session, 10, rng)
    start = torch.zeros(20000)
    broadcast(channel, 0, start, 10)
    sent = upload(channel, 1, start.expand(10, -1), torch.arange(10))
    left = sent[colluding:].sum(0)  # nobody trained, so this is noise
    per_clip = float(left.std().item()) / 0.5
    assert epsilon_of_mu(math.sqrt(7) / per_clip, 1e-5) == pytest.approx(8.0, rel=0.05)


@pytest.mark.parametrize(("counted_on", "kept"), [(7, True), (0, False)])
def test_replays_of_a_sum_less_the_shares_of_seven_colluders(counted_on: int, kept: bool) -> None:
    """Ten clients, one round: the server sees the sum, seven clients tell it what they sent. The likeliest test of
    whether one of the other three moved by the clip must not show more than the stated epsilon, and does where the
    defense counted on no colluder."""
    session = session_of(DpFedAvg(epsilon=2.0, trust="distributed", colluding=counted_on), Uploads(10, 10, 0.1))
    rng, clients, server = derive(0, "replays"), torch.arange(10), torch.full((10,), SERVER)
    start = torch.zeros(10, 2)
    session.release(MessageBatch(0, server, clients, ModelUpdate(start)), rng)

    def rows(payload: Payload) -> Tensor:
        assert isinstance(payload, ModelUpdate)
        return payload.vector

    def scores(moved: float) -> Tensor:
        change = start.clone()
        change[9, 0] = moved  # longer than the clip: it is cut to it
        sent = MessageBatch(1, clients, server, ModelUpdate(change))
        return torch.stack([rows(session.release(sent, rng))[7:, 0].sum() for _ in range(4000)])

    shown = gdp(scores(5.0), scores(0.0), delta=1e-5, confidence=1 - 1e-5, rng=derive(0, "split")).epsilon
    assert (shown <= 2.0) is kept
    assert shown > 1.0  # the test is nearly as good as the curve allows


@pytest.mark.parametrize("colluding", [0, 2])
def test_shares_are_enough_where_colluders_weigh_most(colluding: int) -> None:
    """Weights 0.25 (twice) and 1/12 (six times): the noise that honest clients leave in the mean, in closed form."""
    weights = torch.tensor([0.25, 0.25, *[1 / 12] * 6], dtype=torch.float64)
    session = session_of(DpFedAvg(trust="distributed", colluding=colluding), Uploads(8, 8, 0.25))
    left = session.mechanism.scale * float(weights[colluding:].norm())
    whole = session_of(DpFedAvg(trust="server"), Uploads(8, 8, 0.25)).mechanism.scale
    assert left >= whole * (1 - 1e-9)


def test_colluders_that_leave_nobody_are_refused() -> None:
    with pytest.raises(FglauditError, match="colluding"):
        DpFedAvg(colluding=1)
    context = Context("any", 1, 4, 8, (), uploads=Uploads(4, 4, 0.5))
    assert "lower colluding" in str(DpFedAvg(trust="distributed", colluding=2).unsupported(context))
    assert "lower colluding" in str(DpFedAvg(trust="distributed", colluding=4).unsupported(context))
    assert DpFedAvg(trust="distributed", colluding=1).unsupported(context) is None


def test_other_payloads_in_the_clear_leave_no_epsilon() -> None:
    for protocol, graph, name in (
        (FedGCN(hops=1), GRAPH, "NeighborSums"),
        (FedGT(), GRAPH, "GlobalNodes"),
        (CNFGNN(), NODES, "Latents"),
        (FedGAT(), GRAPH, "RawFeatures"),
    ):
        promised = DpFedAvg(trust="local").bind(protocol.context(graph)).guarantee()
        assert promised.epsilon_accounted is None and f"{name} in the clear" in promised.mechanism
    assert isinstance(GFLAPPNP().uploads(NODES), Uploads)


def test_drawn_clients_are_accounted_as_a_sample_of_fixed_size_against_one_client() -> None:
    uploads = Uploads(2, 20, 0.5)
    session = session_of(DpFedAvg(epsilon=4), uploads, 30)
    assert session.mechanism.scale == pytest.approx(session.mechanism.multiplier * 0.5)
    promised = session.guarantee()
    expected = fixed_sample_epsilon(session.mechanism.multiplier, 2, 19, 30, 1e-5)
    assert promised.epsilon_accounted == pytest.approx(expected) and 3.9 < expected <= 4
    assert promised.relation is Relation.REPLACE and "replaced" in promised.adjacency
    assert promised.covers(Observer(parties=(3,))) and not promised.covers(Observer(parties=(3, 4)))
    everyone = session_of(DpFedAvg(epsilon=4), Uploads(20, 20, 0.05), 30)
    assert session.mechanism.multiplier < Relation.REPLACE.moves * everyone.mechanism.multiplier
    seen = session_of(DpFedAvg(epsilon=4, trust="local"), uploads, 30)  # the server sees who sends
    assert (
        seen.mechanism.multiplier == pytest.approx(everyone.mechanism.multiplier) and seen.guarantee().coalition is None
    )


def test_the_largest_weight_is_the_mean_s_sensitivity() -> None:
    sizes = torch.tensor([int(part.sum().item()) for part in GRAPH.train]).double()
    shares = largest_share(GRAPH, 1.0, "train-nodes")
    assert shares.share == pytest.approx(float((sizes.max() / sizes.sum()).item()))
    assert largest_share(GRAPH, 1.0, "uniform") == Uploads(3, 3, 1 / 3)
    assert largest_share(GRAPH, 0.34, "train-nodes") == Uploads(1, 3, 1.0, by_training_nodes=True)
    assert FedAvgSage().uploads(GRAPH) == shares


@pytest.mark.parametrize("divided", [1, 10])
@pytest.mark.parametrize("trust", ["server", "local"])
def test_canaries_reach_the_accounted_epsilon_only_if_noise_is_missing(trust: Trust, divided: int) -> None:
    """One client's change in or out, through upload, average and broadcast as they are; then with a tenth of the
    noise."""
    uploads, copies = largest_share(GRAPH, 1.0, "train-nodes"), 400
    session = session_of(DpFedAvg(epsilon=2, clip=0.5, trust=trust), uploads)
    change_noise(session, 1 / divided)
    sizes = torch.tensor([float(part.sum().item()) for part in GRAPH.train])
    canary = torch.zeros(3, 4)
    canary[int(sizes.argmax().item()), 1] = 100.0

    def scores(changes: Tensor, seed: int) -> Tensor:
        channel, found = RecordingChannel(session, 3, derive(seed, "defense")), []
        for _ in range(copies):
            received = broadcast(channel, 0, torch.zeros(4), 3)
            arrived = upload(channel, 1, received + changes, torch.arange(3))
            if trust == "server":
                found.append(broadcast(channel, 1, average(arrived, sizes), 3)[1, 1])
            else:
                found.append(arrived[int(sizes.argmax().item()), 1])
        return torch.stack(found)

    shown = gdp(scores(canary, 1), scores(0 * canary, 2), delta=1e-5, confidence=0.99, rng=derive(0, "split")).epsilon
    assert (shown > 2) is (divided > 1), shown


def test_training_without_noise_is_training() -> None:
    session = DpFedAvg(clip=100.0).bind(LOCAL.context(GRAPH))
    assert isinstance(session, _Session)
    change_noise(session, SILENT)
    trained, plain = train(LOCAL, GRAPH, session), record(LOCAL).trained
    for name, weight in plain.weights.items():
        torch.testing.assert_close(trained.weights[name], weight, rtol=1e-4, atol=1e-5)


BAD = [
    ({"epsilon": -1.0}, "epsilon must be positive"),
    ({"delta": 2.0}, "delta must lie strictly"),
    ({"clip": -1.0}, "clip must be positive; got -1"),
    ({"trust": "nobody"}, "distributed"),
    ({"unit": "node"}, "client"),
]


@pytest.mark.parametrize(("settings", "words"), BAD, ids=str)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, float | str], words: str) -> None:
    with pytest.raises(FglauditError, match=words):
        dataclasses.replace(DpFedAvg(), **settings)  # type: ignore[arg-type]
