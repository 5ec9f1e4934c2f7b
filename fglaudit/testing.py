"""Conformance kit: the promises of a plugin that a type checker cannot see. Usable by third parties.

>>> from fglaudit.testing import check_protocol
>>> check_protocol(MyProtocol(rounds=3))        # raises AssertionError naming the broken rule

``check_protocol``, ``check_defense`` and ``check_attack`` run on a small built-in graph unless given another one.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.default_planting import planted_for
from fglaudit.adversary.planting import MemoryMessages as MemoryMessages
from fglaudit.context import Context, Uploads
from fglaudit.defenses.none import NoDefense
from fglaudit.empirical.unnamed import unnamed_fields
from fglaudit.facts import Additive, Field
from fglaudit.graph import ClientGraph, FeatureKind, FederatedGraph, canonical_edges
from fglaudit.guarantees import Word
from fglaudit.interfaces import (
    Attack,
    Defense,
    DefenseSession,
    FederatedProtocol,
    Inference,
    Reconstruction,
    Trained,
    bound,
)
from fglaudit.parties.base import Behaviour
from fglaudit.payloads import MessageBatch, Payload
from fglaudit.recording import Recording, record_training
from fglaudit.rng import derive
from fglaudit.scoring.truth import GroundTruth
from fglaudit.structure import Models, Structure
from fglaudit.view import Observer, View
from fglaudit.wire.channel import RecordingChannel
from fglaudit.wire.side_knowledge import draw_auxiliary
from fglaudit.wire.transcript import Transcript

CPU = torch.device("cpu")


def example_graph(
    *, nodes: int = 60, features: int = 24, clients: int = 3, classes: int = 3, seed: int = 0
) -> FederatedGraph:
    """Return a small random graph with binary features, split evenly over ``clients``; every third node of a class
    trains, the next validates and the one after it is tested."""
    rng = derive(seed, "example-graph")
    y = torch.arange(nodes) % classes
    pairs = torch.randint(nodes, (2, 3 * nodes), generator=rng)
    keep = (y[pairs[0]] == y[pairs[1]]) | (torch.rand(3 * nodes, generator=rng) < 0.2)
    words = torch.rand(classes, features, generator=rng) * 0.5
    order = torch.randperm(nodes, generator=rng)
    owned = tuple(part.sort().values for part in order.chunk(clients))
    split = torch.arange(nodes) // classes % 3
    return FederatedGraph(
        x=(torch.rand(nodes, features, generator=rng) < words[y]).float(),
        y=y,
        edge_index=canonical_edges(pairs[:, keep], nodes),
        clients=owned,
        train=tuple(split[ids] == 0 for ids in owned),
        val=tuple(split[ids] == 1 for ids in owned),
        test=tuple(split[ids] == 2 for ids in owned),
        name="example",
        num_classes=classes,
        features=FeatureKind.BINARY,
    )


@dataclasses.dataclass(frozen=True)
class Run:
    """A recorded training run with its truth."""

    defense: Defense
    channel: RecordingChannel
    recording: Recording
    truth: GroundTruth

    @property
    def protocol(self) -> FederatedProtocol:
        return self.truth.protocol

    @property
    def graph(self) -> FederatedGraph:
        return self.truth.graph

    @property
    def trained(self) -> Trained:
        return self.truth.trained

    @property
    def session(self) -> DefenseSession:
        """The defense as it was bound to this run."""
        return self.channel.session

    @property
    def transcript(self) -> Transcript:
        """The recorded messages."""
        return self.recording.transcript

    def view(self, observer: Observer, *, seed: int = 0) -> View:
        """Return the view of ``observer``, whose auxiliary rows ``seed`` draws."""
        side, share = self.recording.side, observer.auxiliary
        drawn = {**side.auxiliary, share: draw_auxiliary(self.graph, share, seed)}
        return dataclasses.replace(self.recording, side=dataclasses.replace(side, auxiliary=drawn)).view(observer)


def record(
    protocol: FederatedProtocol,
    graph: FederatedGraph | None = None,
    defense: Defense | None = None,
    *,
    seed: int = 0,
    tamper: Callable[[MessageBatch, Payload], Payload] | None = None,
    empirical: bool = False,
    behaviour: Behaviour | None = None,
) -> Run:
    """Train ``protocol`` with everything recorded. ``tamper(batch, payload)`` may replace what receivers get (for rule
    2); ``empirical`` audits by replays what ``defense`` promises; ``behaviour`` is of a party that breaks the rules."""
    channels: list[_TamperedChannel] = []

    def channel(*arguments: Any) -> RecordingChannel:
        channels.append(_TamperedChannel(*arguments))
        channels[-1].tamper = tamper
        return channels[-1]

    defense = defense or NoDefense()
    recording, truth = record_training(
        graph or example_graph(),
        protocol,
        defense,
        seed=seed,
        channel=channel,
        empirical=empirical,
        behaviour=behaviour,
    )
    return Run(defense, channels[0], recording, truth)


class _TamperedChannel(RecordingChannel):
    tamper: Callable[[MessageBatch, Payload], Payload] | None = None

    def send(self, batch: MessageBatch) -> Payload:
        payload = super().send(batch)
        return payload if self.tamper is None else self.tamper(batch, payload)


def check_protocol(protocol: FederatedProtocol, graph: FederatedGraph | None = None) -> None:
    """Check a protocol: declared messages, determinism, no mutation, accuracies, rule 2 for every payload it sends,
    whether edges between clients enter anything, and that ``releases`` leave out none that carries a record past a
    guarantee.

    Raises:
        AssertionError: naming the rule that does not hold.
    """
    _check_plugin(protocol)
    graph = graph or example_graph()
    before = _graph_tensors(graph)
    run = record(protocol, graph)
    _assert_unchanged(before, _graph_tensors(graph), "a protocol must not change the graph it is given")
    stated = protocol.structure(graph)
    plain = json.loads(json.dumps(stated.to_json()))
    assert Structure.from_json(plain).to_json() == stated.to_json(), "`structure` states plain values, saved as JSON"
    unnamed = unnamed_fields(protocol, graph, run.channel.counted, seed=0, device=CPU)
    assert not unnamed, f"`releases` must name every payload that carries what a guarantee is about; missing: {unnamed}"
    uploads, models = protocol.uploads(graph), stated.get(Models)
    if isinstance(uploads, Uploads) and models is not None:
        assert (models.upload == "changes") == uploads.changes, "`structure` and `uploads` agree on what clients upload"
    sent = {entry.payload for entry in run.transcript.entries}
    declared = {payload.__name__ for payload in type(protocol).emits}
    assert sent <= declared, f"`emits` must name every payload sent; missing: {sorted(sent - declared)}"
    trained = run.trained
    assert trained.accuracy.shape[1] == graph.num_clients, "accuracy has one column per client"
    assert len(trained.accuracy) == len(trained.accuracy_global), "both accuracies have one row per round"
    _check_right(trained, graph)
    for accuracy in (trained.accuracy[~trained.accuracy.isnan()], trained.accuracy_global):
        assert bool(((accuracy >= 0) & (accuracy <= 1)).all()), "accuracies are fractions in [0, 1]"
    again = record(protocol, graph)
    assert torch.equal(again.trained.accuracy_global, trained.accuracy_global), "same seed, same record (rule 8)"
    assert _same_weights(again.trained, trained), "same seed, same weights (rule 8)"
    _check_cross_edges(protocol, graph, run)
    for name in sorted(sent):
        corrupted = record(protocol, graph, tamper=_corrupt(name))
        assert not _same_weights(corrupted.trained, trained), (
            f"what is sent is trained on (rule 2): corrupting {name} changed nothing"
        )


class _ApartSession(DefenseSession):
    def prepare(self, client: ClientGraph, rng: torch.Generator) -> ClientGraph:
        """Return the client without any edge to another."""
        degrees = None if client.remote_degrees is None else client.remote_degrees[:0]
        none = client.remote_nodes[:0]
        return dataclasses.replace(client, boundary=client.boundary[:, :0], remote_nodes=none, remote_degrees=degrees)


@dataclasses.dataclass(frozen=True)
class _Apart(Defense):
    """Drops all edges between clients and states nothing: for a comparison alone."""

    name: ClassVar[str] = "apart"

    def bind(self, context: Context) -> DefenseSession:
        return _ApartSession()


def _check_cross_edges(protocol: FederatedProtocol, graph: FederatedGraph, run: Run) -> None:
    """Check what ``cross_edges`` states by a training without any edge between clients."""
    if not any(graph.client(k).boundary.numel() for k in range(graph.num_clients)):
        return
    apart = record(protocol, graph, _Apart())
    same = same_messages(apart, run) and _same_weights(apart.trained, run.trained)
    stated = protocol.cross_edges(graph)
    assert stated is not same, (
        f"`cross_edges` states whether edges between clients, as Channel.prepare leaves them, enter what is sent or"
        f" trained on; it says {stated}, and without any of them {'nothing' if same else 'something'} changes"
    )


def same_messages(a: Run, b: Run) -> bool:
    """Whether two runs sent the same messages, bit for bit."""
    one, other = ([run.transcript.stored(i) for i in range(len(run.transcript.entries))] for run in (a, b))
    kinds = [[(entry.payload, entry.round) for entry in run.transcript.entries] for run in (a, b)]
    return kinds[0] == kinds[1] and one == other


def _check_right(trained: Trained, graph: FederatedGraph) -> None:
    """Check that ``right``, if it is given, adds up to the accuracies: of all places, and client by client."""
    if trained.right is None:
        return
    samples = graph.x.shape[1] if graph.x.dim() == 3 and graph.test[0].dim() == 1 else 1
    places = [samples * int(mask.sum().item()) for mask in graph.test]
    assert trained.right.shape == (sum(places),), "right has one entry per test place"
    for part, accuracy in zip(
        torch.split(trained.right.double(), places), trained.accuracy[trained.round], strict=True
    ):
        close = bool(accuracy.isnan()) if not len(part) else abs(part.mean().item() - accuracy.item()) < 1e-6
        assert close, "right is in order of clients and adds up to each one's accuracy in the round that counts"


def check_defense(
    defense: Defense, protocol: FederatedProtocol, graph: FederatedGraph | None = None, *, quick: bool = False
) -> None:
    """Check a defense on ``protocol``: shapes survive, inputs are not changed, noise and guarantee are stated
    consistently, and the guarantee is not refuted by the audits of a run.

    Args:
        quick: replay nothing: only the stated epsilon and the number of releases are then compared.

    Raises:
        AssertionError: naming the rule that does not hold.
    """
    _check_plugin(defense)
    graph = graph or example_graph()
    context = protocol.context(graph)
    reason = defense.unsupported(context)
    assert reason is None or reason.strip(), "a refusal needs a reason"
    if reason is not None:
        return
    session = bound(defense, context)
    for k in range(graph.num_clients):
        client = graph.client(k)
        kept = {f.name: _copy(getattr(client, f.name)) for f in dataclasses.fields(client)}
        prepared = session.prepare(client, derive(0, "prepare"))
        assert torch.equal(prepared.nodes, client.nodes), "prepare keeps the client's nodes"
        _assert_unchanged(kept, {name: getattr(client, name) for name in kept}, "prepare must not change its input")
    run = record(protocol, graph, defense, empirical=not quick)
    guarantee = session.guarantee()
    noise = {f.target.payload for f in session.facts() if isinstance(f, Additive) and isinstance(f.target, Field)}
    assert all(session.changes(payload) for payload in type(protocol).emits if payload.__name__ in noise), (
        "a payload with stated noise is a payload the defense changes"
    )
    for unstated in run.truth.unstated:
        raise AssertionError(
            f"{type(defense).name} changes {unstated.target} and states no fact that explains it: {unstated.why};"
            " return what it does from DefenseSession.facts()"
        )
    verdict = run.recording.verdict
    assert verdict.word is not Word.REFUTED, f"the guarantee is refuted: {verdict.reason}"
    if guarantee.epsilon_accounted is not None:
        assert guarantee.unit and guarantee.adjacency and guarantee.releases, (
            "epsilon names unit, adjacency and releases (rule 9)"
        )
        assert guarantee.delta is not None and 0 <= guarantee.delta < 1, "epsilon names delta (rule 9)"
    assert len(run.trained.accuracy_global) > 0


def check_attack(attack: Attack, view: View) -> None:
    """Check an attack on ``view``: deterministic, does not change the view, well-formed result, succeeds on its planted
    leak.

    Raises:
        AssertionError: naming the rule that does not hold.
    """
    _check_plugin(attack)
    reason = attack.unsupported(view)
    if reason is not None:
        assert reason.strip(), "a refusal needs a reason"
        return
    before = [_copy(getattr(c, f.name)) for c in view.own for f in dataclasses.fields(c)]
    first = attack.run(view, rng=derive(0, "attack"), device=CPU)
    again = attack.run(view, rng=derive(0, "attack"), device=CPU)
    after = [getattr(c, f.name) for c in view.own for f in dataclasses.fields(c)]
    _assert_unchanged(dict(enumerate(before)), dict(enumerate(after)), "an attack must not change its view")
    if type(attack).quantity != "features":
        assert isinstance(first, Inference) and isinstance(again, Inference), (
            "an attack returns what its `quantity` says"
        )
        assert first.quantity == type(attack).quantity, "an inference is of the attack's `quantity`"
        assert torch.equal(first.estimate, again.estimate), "same seed, same result (rule 8)"
        assert len(first.subjects) == len(first.estimate), "one estimate per subject"
        assert bool(torch.isfinite(first.estimate).all()), "estimates are finite"
        return
    assert isinstance(first, Reconstruction), "an attack returns what its `quantity` says"
    assert isinstance(again, Reconstruction) and torch.equal(first.rows, again.rows), "same seed, same result (rule 8)"
    rows = len(first.rows)
    assert first.rows.shape == (rows, view.public.num_features), "one column per feature"
    assert first.nodes.shape == first.confidence.shape == (rows,), "one node and one confidence per row"
    assert bool(torch.isfinite(first.rows).all()), "rows are finite"
    assert bool(((first.nodes >= -1) & (first.nodes < view.public.num_nodes)).all()), "nodes are global ids or -1"
    planted = planted_for(attack, view, derive(0, "plant"))
    assert planted.view.public.num_features == view.public.num_features, "a planted leak has the cell's shapes (rule 6)"


def _check_plugin(plugin: Any) -> None:
    kind = type(plugin)
    assert dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen, "a plugin is a frozen dataclass"  # type: ignore[attr-defined]
    assert isinstance(getattr(kind, "name", None), str), "a plugin has a name"
    assert kind.__doc__, "a plugin has a docstring: `fglaudit show` prints it"


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def _graph_tensors(graph: FederatedGraph) -> dict[Any, Any]:
    listed = [graph.x, graph.y, graph.edge_index, *graph.clients, *graph.train, *graph.val, *graph.test]
    return dict(enumerate(t.clone() for t in listed))


def _assert_unchanged(before: dict[Any, Any], after: dict[Any, Any], rule: str) -> None:
    for key, value in before.items():
        same = torch.equal(value, after[key]) if isinstance(value, Tensor) else value == after[key]
        assert same, rule


def _same_weights(a: Trained, b: Trained) -> bool:
    return a.weights.keys() == b.weights.keys() and all(
        torch.equal(a.weights[name], b.weights[name]) for name in a.weights
    )


def _corrupt(name: str) -> Callable[[MessageBatch, Payload], Payload]:
    def tamper(batch: MessageBatch, payload: Payload) -> Payload:
        if type(payload).__name__ != name:
            return payload
        changed = {n: v * 1.5 + 0.1 if v.is_floating_point() else v for n, v in payload.tensors().items()}
        return type(payload).from_tensors(changed)

    return tamper
