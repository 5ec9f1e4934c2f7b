"""A recorded training run, in memory and in the files of a folder. A saved one is attacked later, in a process that
never had the truth."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fglaudit import registry
from fglaudit.errors import FglauditError
from fglaudit.files.own import read_stamped, stamped, write_atomic
from fglaudit.guarantees import FieldState, Verdict, verdict_from_json
from fglaudit.interfaces import Defense, FederatedProtocol, Guarantee
from fglaudit.plugins.modules import names_of_files
from fglaudit.privacy.accounting import Relation
from fglaudit.view import Observer, PublicFacts, View
from fglaudit.wire.rehearsal import rehearsal
from fglaudit.wire.side_knowledge import SideKnowledge, public_from_json, public_to_json
from fglaudit.wire.transcript import Transcript

_FILE = "recording.json"


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
    def load(folder: Path, *, trust_plugins: bool = False) -> Recording:
        """Open what :meth:`save` wrote; messages and rows are read when asked for, protocol and defense come from the
        registry.

        Args:
            trust_plugins: run the Python files that the recording names; whoever made it chose them.

        Raises:
            FglauditError: if a file is missing or damaged, the protocol is not known here, or the recording names
                Python files that are not trusted.
        """
        try:
            stored = read_stamped(folder / _FILE, _FILE, "record the run again with record: all")
            if not trust_plugins:
                _refuse_files(stored["description"], folder)
            protocol = protocol_of(stored["description"])
            defense = _defense_of(stored["description"])
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
                fields=tuple(FieldState.from_json(state) for state in stored["fields"]),
                history=stored["history"],
                partition=stored["partition"],
                notes=tuple(stored["notes"]),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise FglauditError(
                f"a recording needs a whole {_FILE}; {folder} has none ({type(error).__name__}: {error}); record the"
                " run again with record: all"
            ) from error


def _refuse_files(description: Mapping[str, Any], folder: Path) -> None:
    if files := sorted(set(names_of_files(description))):
        raise FglauditError(
            f"Python files that a recording names run only if they are trusted, since whoever sent it chose them;"
            f" {folder} names {', '.join(files)}; read them, then give --trust-plugins"
        )


def protocol_of(description: Mapping[str, Any]) -> FederatedProtocol:
    """Return the protocol of a recorded training, built by the registry."""
    fields = dict(description["protocol"])
    fields.pop("name")
    protocol: FederatedProtocol = registry.build("protocol", str(description["protocol_class"]), fields)
    return protocol


def _defense_of(description: Mapping[str, Any]) -> Defense | None:
    """Return the defense of a recorded training, built by the registry; None where it is not found here: the messages
    can be attacked all the same, without ``PublicFacts.release``."""
    fields = dict(description["defense"])
    fields.pop("name")
    try:
        defense: Defense = registry.build("defense", str(description["defense_class"]), fields)
    except FglauditError:
        return None
    return defense
