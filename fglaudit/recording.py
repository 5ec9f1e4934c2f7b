"""One training run, recorded: what every attack needs, and all it gets.

:func:`record` trains a cell and returns a :class:`Recording` and, apart from it, the truth for the scorer. A saved
recording is attacked later, in a process that never had the truth.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fglaudit import registry
from fglaudit.context import Context
from fglaudit.empirical.field_states import after_unstated
from fglaudit.empirical.judge import TRADE_OFF, judge
from fglaudit.errors import FglauditError
from fglaudit.federated.collapse import collapsed
from fglaudit.files.own import read_stamped, stamped, write_atomic
from fglaudit.graph import FederatedGraph, Graph
from fglaudit.guarantees import FieldState, Verdict, Word, verdict_from_json
from fglaudit.interfaces import Defense, DefenseSession, FederatedProtocol, Guarantee, Trained, bound
from fglaudit.observers import expand
from fglaudit.parties.base import ActiveChannel, Behaviour, Conduct
from fglaudit.partition import partition_facts
from fglaudit.plugins.staying import staying
from fglaudit.privacy.accounting import Relation
from fglaudit.rng import derive
from fglaudit.scoring.truth import GroundTruth
from fglaudit.suite.cell import Cell, arguments, describe, identity, server_label, training
from fglaudit.view import Observer, PublicFacts, View
from fglaudit.wire.channel import Keep, RecordingChannel
from fglaudit.wire.rehearsal import hooks_of, rehearsal
from fglaudit.wire.side_knowledge import SideKnowledge, labelled_parties, public_from_json, public_to_json
from fglaudit.wire.transcript import Transcript

Progress = Callable[[int, int], None]
_FILE = "recording.json"


class NotApplicableError(FglauditError):
    """The cell's defense does not serve its protocol; the message is the reason."""


@dataclass(frozen=True)
class Recording:
    """A recorded training run.

    Attributes:
        description: the training as plain JSON: data, partition, protocol, server, defense and seed; no observers, no
            attacks.
        transcript: the recorded messages.
        side: what parties hold and observers may be granted.
        public: what everybody knows.
        columns: of ``findings.csv``, those that are the same for all attacks on this run.
        guarantee: what the defense promises.
        verdict: what this tool says of the guarantee.
        fields: what protects every field that was sent, as far as attacks have not read it.
        history: client-mean and whole-test accuracy per round, the protocol's own series
            (``fglaudit.interfaces.Trained.series``), and ``right``: 1 or 0 for every test place, by node id.
        partition: missing links, label heterogeneity, client sizes.
        notes: warnings a reader must see.
    """

    description: Mapping[str, Any]
    transcript: Transcript
    side: SideKnowledge
    public: PublicFacts
    columns: Mapping[str, Any]
    guarantee: Guarantee
    verdict: Verdict
    fields: tuple[FieldState, ...]
    history: Mapping[str, list[float]]
    partition: Mapping[str, Any]
    notes: tuple[str, ...]

    def view(self, observer: Observer) -> View:
        """Return what ``observer`` has of this run, every tensor in memory of its own."""
        return self.side.view(observer, self.transcript, self.public)

    @property
    def seed(self) -> int:
        """Seed of the cell."""
        return int(self.description["seed"])

    def save(self, folder: Path) -> None:
        """Write into ``folder``, which holds the messages already if the transcript was spooled there."""
        self.transcript.save(folder)
        self.side.save(folder)
        plain = {
            "description": self.description,
            "public": public_to_json(self.public),
            "columns": self.columns,
            "guarantee": dataclasses.asdict(self.guarantee),
            "verdict": dataclasses.asdict(self.verdict),
            "fields": [dataclasses.asdict(state) for state in self.fields],
            "history": self.history,
            "partition": self.partition,
            "notes": self.notes,
        }
        write_atomic(folder / _FILE, stamped(plain, _FILE), mode=0o600)

    @staticmethod
    def check_files(folder: Path) -> None:
        """Raise :class:`FglauditError` unless the files of a saved recording are as they were written."""
        read_stamped(folder / _FILE, _FILE, "record the run again with record: all")
        transcript = Transcript.load(folder)
        for index in range(len(transcript.entries)):
            transcript.stored(index)
        SideKnowledge.load(folder)

    @staticmethod
    def load(folder: Path) -> Recording:
        """Open what :meth:`save` wrote; messages and rows are read when asked for, protocol and defense come from the
        registry.

        Raises:
            FglauditError: if a file is missing or damaged, or the protocol is not known here.
        """
        try:
            stored = read_stamped(folder / _FILE, _FILE, "record the run again with record: all")
            protocol = protocol_of(stored["description"])
            defense = defense_of(stored["description"])
            relation = stored["guarantee"].get("relation")
            guarantee = {**stored["guarantee"], "relation": None if relation is None else Relation(relation)}
            return Recording(
                description=stored["description"],
                transcript=Transcript.load(folder),
                side=SideKnowledge.load(folder),
                public=dataclasses.replace(public_from_json(stored["public"]), **rehearsal(protocol, defense)),
                columns=stored["columns"],
                guarantee=Guarantee(**guarantee),
                verdict=verdict_from_json(stored["verdict"]),
                fields=tuple(FieldState(**state) for state in stored["fields"]),
                history=stored["history"],
                partition=stored["partition"],
                notes=tuple(stored["notes"]),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise FglauditError(
                f"a recording needs a whole {_FILE}; {folder} has none ({type(error).__name__}: {error}); record the"
                " run again with record: all"
            ) from error


def protocol_of(description: Mapping[str, Any]) -> FederatedProtocol:
    """Return the protocol of a recorded training, built by the registry."""
    fields = dict(description["protocol"])
    fields.pop("name")
    protocol: FederatedProtocol = registry.build("protocol", str(description["protocol_class"]), fields)
    return protocol


def defense_of(description: Mapping[str, Any]) -> Defense | None:
    """Return the defense of a recorded training, built by the registry; None where it is not found here: the messages
    can be attacked all the same, without ``PublicFacts.release``."""
    fields = dict(description["defense"])
    fields.pop("name")
    try:
        defense: Defense = registry.build("defense", str(description["defense_class"]), fields)
    except FglauditError:
        return None
    return defense


def record(
    cell: Cell,
    *,
    device: torch.device | None = None,
    progress: Progress | None = None,
    folder: Path | None = None,
    key: bytes = b"",
    whole: Graph | None = None,
    notes: tuple[str, ...] = (),
) -> tuple[Recording, GroundTruth]:
    """Train ``cell`` and record what its observers see and its attacks read; everything if it says ``record: all``.

    Args:
        device: to train on; the CPU by default.
        progress: called with (round, rounds) during training.
        folder: where messages are spooled (they can be larger than memory); None keeps them in memory.
        key: that makes training and noise secret, see :func:`fglaudit.rng.derive`.
        whole: the cell's data set, where it is at hand; None: it is loaded.
        notes: what had to be changed in ``whole``, e.g. directed edges; of a data set that is loaded here they are its
            own.

    Raises:
        NotApplicableError: the defense does not serve the protocol.
        FglauditError: errors of data, partition or training.
    """
    if whole is None:
        whole, loaded = cell.dataset.load_with_notes()
        notes = (*notes, *loaded)
    graph = cell.partition.apply(whole, cell.dataset, derive(cell.seed, "partition"))
    if cell.behaviour is not None:
        if (why := cell.behaviour.unsupported(cell.protocol, graph)) is not None:
            raise NotApplicableError(why)
        graph = cell.behaviour.claims(graph)
    cell.protocol.check(graph)
    observers = [member for spec in cell.observers for member in expand(spec, graph.num_clients)[0]]
    everything = cell.record == "all"
    keep = Keep() if everything else Keep.for_attacks(observers, cell.attacks, cell.protocol.num_rounds)
    cell.protocol.check_messages(graph, keep.wants)
    context = cell.protocol.context(graph)
    if (why := cell.defense.unsupported(context)) is not None:
        raise NotApplicableError(why)
    recording, truth = record_training(
        graph,
        cell.protocol,
        cell.defense,
        context=context,
        seed=cell.seed,
        keep=keep,
        clients=None if everything else {k for o in observers for k in o.clients},
        fractions={spec.auxiliary for spec in cell.observers},
        empirical=cell.empirical,
        device=device,
        progress=progress,
        folder=folder,
        key=key,
        behaviour=cell.behaviour,
    )
    recording = dataclasses.replace(
        recording,
        description=training(cell),
        columns={**recording.columns, **identity(cell), "clients": graph.num_clients},
        partition=partition_facts(graph, whole),
        notes=(*notes, *recording.notes),
    )
    return recording, truth


@staying()
def record_training(
    graph: FederatedGraph,
    protocol: FederatedProtocol,
    defense: Defense,
    *,
    context: Context | None = None,
    seed: int = 0,
    keep: Keep | None = None,
    clients: Collection[int] | None = None,
    fractions: Collection[float] = (),
    empirical: bool = False,
    device: torch.device | None = None,
    progress: Progress | None = None,
    folder: Path | None = None,
    channel: Callable[..., RecordingChannel] = RecordingChannel,
    key: bytes = b"",
    behaviour: Behaviour | None = None,
) -> tuple[Recording, GroundTruth]:
    """Train ``protocol`` under ``defense`` on a graph that is at hand, and record it.

    Args:
        context: what the protocol states of the graph, where it was asked already.
        keep: which messages are kept; None: all.
        clients: whose own data is kept for views; None: everybody's.
        fractions: of auxiliary rows that observers may have.
        empirical: whether replays audit what is promised; without them a guarantee is claimed at most.
        channel: makes what carries the messages; conformance tests tamper with them.
        behaviour: of a party that sends other messages than the protocol says; ``graph`` is what it claims already.
    """
    device = device or torch.device("cpu")
    if context is None:
        protocol.check(graph)
        context = protocol.context(graph)
    session = bound(defense, context)
    transcript = Transcript(folder)
    wire = channel(session, graph.num_clients, derive(seed, "defense", key=key), transcript, keep or Keep(), progress)
    wire.states(context)
    start = time.perf_counter()
    conduct = Conduct() if behaviour is None else behaviour.bind(protocol, graph, derive(seed, "behaviour", key=key))
    carrier = wire if behaviour is None else ActiveChannel(wire, conduct)
    trained = protocol.train(graph, carrier, rng=derive(seed, "train", key=key), device=device)
    seconds = time.perf_counter() - start
    guarantee = session.guarantee()
    verdict, fields = judge(
        protocol,
        graph,
        defense,
        session,
        wire.counted,
        wire.unstated,
        seed=seed,
        device=device,
        quick=not empirical,
    )
    fields = after_unstated(fields, wire.unstated)
    if behaviour is not None:
        verdict = _among_dishonest(verdict, guarantee, server_label(behaviour))
    held = range(graph.num_clients) if clients is None else clients
    recording = Recording(
        description={
            "protocol": describe(protocol),
            "protocol_class": registry.reference(protocol),
            "defense": describe(defense),
            "defense_class": registry.reference(defense),
            "seed": seed,
        },
        transcript=transcript,
        side=SideKnowledge.of(graph, held, fractions, labelled_parties(protocol, graph), wire.inputs, seed),
        public=dataclasses.replace(public_facts(protocol, defense, graph, session, trained), facts=wire.facts),
        columns={
            "cell": "",
            "dataset": graph.name,
            "partition": "",
            "clients": graph.num_clients,
            "protocol": type(protocol).name,
            "protocol_args": arguments(protocol),
            "server": server_label(behaviour),
            "defense": type(defense).name,
            "defense_args": arguments(defense),
            "seed": seed,
            "accuracy": trained.client_mean,
            "accuracy_global": trained.whole_test_set,
            "bytes_up": int(wire.bytes_up.sum().item()),
            "bytes_down": int(wire.bytes_down.sum().item()),
            "ciphertext_bytes": wire.bytes_sealed or None,
            "seconds_train": seconds,
            "device": str(device),
        },
        guarantee=guarantee,
        verdict=verdict,
        fields=fields,
        history={
            "accuracy": [float(v) for v in trained.accuracy.nanmean(1).tolist()],
            "accuracy_global": [float(v) for v in trained.accuracy_global.tolist()],
            **{name: [float(v) for v in values.tolist()] for name, values in trained.series.items()},
            **right_by_node(trained, graph),
        },
        partition={},
        notes=(
            *trained.notes,
            *collapsed(protocol, trained, graph),
            *conduct.remarks(trained),
            *(_out_of_reach(verdict) if empirical else ()),
        ),
    )
    return recording, GroundTruth(graph, protocol, trained, seed, wire.unstated, wire.edges)


def public_facts(
    protocol: FederatedProtocol, defense: Defense, graph: FederatedGraph, session: DefenseSession, trained: Trained
) -> PublicFacts:
    """Return what everybody knows about a run."""
    return PublicFacts(
        protocol=type(protocol).name,
        hyperparameters=describe(protocol),
        defense=type(defense).name,
        defense_parameters=describe(defense),
        **graph.schema(),
        layout=trained.layout,
        facts=session.facts(),
        sealed=protocol.sealed(graph, session),
        structure=protocol.stated(graph),
        hooks=hooks_of(session),
        **rehearsal(protocol, defense),
    )


def right_by_node(trained: Trained, graph: FederatedGraph) -> dict[str, list[float]]:
    """Return under ``right`` which test places were classified correctly, 1 or 0, by node id, then by client: the same
    place in every training on the same split. Nothing where the protocol does not say."""
    if trained.right is None:
        return {}
    places = [mask.long() if mask.dim() == 1 else mask.sum(1) for mask in graph.test]
    nodes = torch.cat([ids.repeat_interleave(times) for ids, times in zip(graph.clients, places, strict=True)])
    order = torch.argsort(nodes, stable=True)
    return {"right": trained.right.long()[order].tolist()}


def _among_dishonest(verdict: Verdict, guarantee: Guarantee, behaviour: str) -> Verdict:
    """Return the verdict where a party breaks the rules: what rests on keys was audited among parties that do not."""
    if verdict.word is not Word.VERIFIED or not guarantee.key_custody:
        return verdict
    why = f"it was audited among parties that follow the protocol; here one does not: {behaviour}"
    return dataclasses.replace(verdict, word=Word.CLAIMED, reason=why)


def _out_of_reach(verdict: Verdict) -> tuple[str, ...]:
    """Return what replays could not show of the accounted epsilon, as notes."""
    accounted, measured = verdict.epsilon, verdict.measured
    if accounted is None:
        return ()
    if measured is None:
        why = next((audit.detail for audit in verdict.audits if audit.name == TRADE_OFF), "nothing could be replayed")
        return (f"the accounted epsilon was not tested: {why}",)
    if measured.ceiling >= accounted:
        return ()
    limit = f"{2 * measured.replays} replays show at most {measured.ceiling:.3g}"
    return (f"the empirical epsilon cannot reach the accounted {accounted:.4g}: {limit}",)
