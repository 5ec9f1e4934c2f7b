"""Recorded messages, kept as the bytes that were sent.

Every batch is stored as one safetensors blob, in memory or in a folder, beside a JSON index. Reading deserialises it
again, so an attack can never reach a tensor that was not sent (rule 1). A saved transcript loads without the data set.

A payload that is the same for every receiver of a batch (a broadcast) is stored once and read back as that: reading the
global model of N users takes the memory of one.

Sealed messages are stored twice: as what they show to everybody (:class:`fglaudit.payloads.Ciphertexts`), and as
clients read them with their keys, in entries that say how many clients must pool theirs. An observer with fewer reads
what its own clients sent.

Folder: ``transcript.json`` (format, entries: round, payload type, file, parties) and ``messages-00000.safetensors`` ...
The parties of an entry show which batches an observer need not read; entries without them (older transcripts) are read
by everyone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.payloads import MessageBatch, Payload, is_repeated, payload_type
from fglaudit.view import Observer

FORMAT = 1
MOST_RANGES = 64
"""Of parties per entry, so that the index stays small where every node is a client."""
_ENVELOPE = ("senders", "receivers", "splits")  # stored beside the payload's own fields, with this prefix:
_PREFIX = "batch."
_REPEATED = "repeated."  # prefix of payload fields stored as one entry that all messages share


@dataclass(frozen=True)
class Entry:
    """Index of one stored batch.

    Attributes:
        parties: inclusive ranges (low, high) of party numbers, ascending, that cover all senders and receivers, at most
            ``MOST_RANGES`` of them, so that some may cover others too; None where they are not known.
        readers: how many clients must pool their keys to read these messages; 0 where they travelled in the clear.
    """

    round: int
    payload: str
    file: str
    parties: tuple[tuple[int, int], ...] | None = None
    readers: int = 0

    @staticmethod
    def load(stored: dict[str, Any]) -> Entry:
        """Rebuild from JSON; ``parties`` may be missing."""
        ranges = stored.get("parties")
        parties = None if ranges is None else tuple((int(low), int(high)) for low, high in ranges)
        return Entry(**{**stored, "parties": parties})

    def concerns(self, parties: Tensor) -> bool:
        """Whether one of ``parties`` [n] may be among the senders and receivers."""
        if self.parties is None:
            return True
        return any(bool(((parties >= low) & (parties <= high)).any()) for low, high in self.parties)


def party_ranges(batch: MessageBatch) -> tuple[tuple[int, int], ...]:
    """Return at most ``MOST_RANGES`` ranges that cover the batch's parties; the nearest ones are joined."""
    parties = torch.unique(torch.cat([batch.senders, batch.receivers])).cpu()
    gaps = parties.diff()
    cuts = (gaps > 1).nonzero().squeeze(1)
    cuts = cuts[gaps[cuts].argsort(descending=True, stable=True)[: MOST_RANGES - 1]].sort().values
    low, high = parties[torch.cat([cuts.new_zeros(1), cuts + 1])], parties[torch.cat([cuts, cuts.new_tensor([-1])])]
    return tuple(zip(low.tolist(), high.tolist(), strict=True))


def serialise(batch: MessageBatch) -> bytes:
    """Return the bytes of a batch: its payload as sent plus senders, receivers and splits."""
    tensors = {
        _REPEATED + name if is_repeated(value) else name: value[:1] if is_repeated(value) else value
        for name, value in batch.payload.tensors().items()
    }
    envelope = {name: getattr(batch, name) for name in _ENVELOPE if getattr(batch, name) is not None}
    tensors |= {_PREFIX + name: value for name, value in envelope.items()}
    return save({name: value.detach().cpu().contiguous() for name, value in tensors.items()})


def deserialise(blob: bytes, round: int, payload: str) -> MessageBatch:
    """Rebuild a batch from :func:`serialise`; every tensor is new memory."""
    tensors = load(blob)
    envelope = {name: tensors.pop(_PREFIX + name) for name in _ENVELOPE if _PREFIX + name in tensors}
    count = int(envelope["splits"][-1].item()) if "splits" in envelope else len(envelope["senders"])
    for name in [name for name in tensors if name.startswith(_REPEATED)]:
        value = tensors.pop(name)
        tensors[name.removeprefix(_REPEATED)] = value.expand(count, *value.shape[1:])
    body = payload_type(payload).from_tensors(tensors)
    return MessageBatch(round, envelope["senders"], envelope["receivers"], body, envelope.get("splits"))


class Transcript:
    """The recorded messages of one training run, in the order sent.

    Args:
        folder: where blobs are spooled as they come; None keeps them in memory.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.entries: list[Entry] = []
        self._blobs: list[bytes] = []
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def add(self, batch: MessageBatch, *, readers: int = 0) -> None:
        """Store ``batch``, for observers with ``readers`` clients and for those who sent it."""
        blob = serialise(batch)
        file = f"messages-{len(self.entries):05d}.safetensors"
        parties = party_ranges(batch) if len(batch.senders) else ()
        entry = Entry(batch.round, type(batch.payload).__name__, file, parties, readers)
        if self.folder is None:
            self._blobs.append(blob)
        else:
            (self.folder / entry.file).write_bytes(blob)
        self.entries.append(entry)

    def read(self, index: int) -> MessageBatch:
        """Deserialise batch ``index``.

        Raises:
            FglauditError: if its file is missing or damaged.
        """
        entry = self.entries[index]
        if self.folder is None:
            return deserialise(self._blobs[index], entry.round, entry.payload)
        path = self.folder / entry.file
        try:
            return deserialise(path.read_bytes(), entry.round, entry.payload)
        except (OSError, SafetensorError, KeyError, TypeError) as error:
            raise FglauditError(
                f"a transcript needs all its message files whole; {path} is not ({error}); record the run again"
            ) from error

    def save(self, folder: Path) -> None:
        """Write the index, and the blobs where they are not in ``folder`` yet."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.folder != folder:
            for index, entry in enumerate(self.entries):
                blob = self._blobs[index] if self.folder is None else (self.folder / entry.file).read_bytes()
                (folder / entry.file).write_bytes(blob)
        index_file = {"format": FORMAT, "entries": [asdict(entry) for entry in self.entries]}
        (folder / "transcript.json").write_text(json.dumps(index_file, indent=1))

    @staticmethod
    def load(folder: Path) -> Transcript:
        """Open a saved transcript; messages are read when asked for.

        Raises:
            FglauditError: if the index is missing, damaged or of another format.
        """
        path = folder / "transcript.json"
        try:
            index = json.loads(path.read_text())
            entries = [Entry.load(entry) for entry in index["entries"]]
            found = index["format"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FglauditError(
                f"a transcript folder needs a readable transcript.json; {path}: {error}; name the folder that "
                "`record: all` wrote under transcripts/"
            ) from error
        if found != FORMAT:
            raise FglauditError(
                f"this version reads transcript format {FORMAT}; {path} has {found}; record the run again"
            )
        transcript = Transcript(folder)
        transcript.entries = entries
        return transcript

    def seen_by(self, observer: Observer) -> ObservedMessages:
        """Return the messages that ``observer`` sent or received (for the wire: all), as far as it can read them."""
        parties = None if observer.wire else torch.tensor(observer.parties)

        def read(payload: type[Payload]) -> Iterator[MessageBatch]:
            yield from _readable(self, parties, observer.clients, payload)

        return ObservedMessages(read)


@dataclass(frozen=True, repr=False)
class ObservedMessages:
    """Lazy reader: one batch in memory at a time. Implements :class:`fglaudit.view.Messages`.

    It holds no transcript, only a function that filters: what it hands out are copies of messages that the observer can
    read, in memory of their own.
    """

    _read: Callable[[type[Payload]], Iterator[MessageBatch]]

    def of(self, payload: type[Payload]) -> Iterator[MessageBatch]:
        """Yield the batches with this payload in the order sent, only messages that the observer can read."""
        return self._read(payload)


def _readable(
    transcript: Transcript, parties: Tensor | None, clients: tuple[int, ...], payload: type[Payload]
) -> Iterator[MessageBatch]:
    for index, entry in enumerate(transcript.entries):
        own_only = len(clients) < entry.readers
        if entry.payload != payload.__name__ or (own_only and not clients):
            continue
        if parties is not None and not entry.concerns(parties):
            continue
        batch = transcript.read(index)
        if own_only:
            seen = torch.isin(batch.senders, torch.tensor(clients))
        elif parties is not None:
            seen = torch.isin(batch.senders, parties) | torch.isin(batch.receivers, parties)
        else:
            yield batch
            continue
        if bool(seen.all()):
            yield batch
        elif bool(seen.any()):
            yield batch.select(seen)
