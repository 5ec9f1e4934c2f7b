"""Recorded messages, kept as the bytes that were sent.

Every batch is stored as one safetensors blob, in memory or in a folder, beside a JSON index. Reading deserialises it
again, so an attack can never reach a tensor that was not sent (rule 1). A saved transcript loads without the data set.

A payload that is the same for every receiver of a batch (a broadcast) is stored once and read back as that: reading the
global model of N users takes the memory of one.

Sealed messages are stored twice: as what they show to everybody (:class:`fglaudit.payloads.Ciphertexts`), and as
clients read them with their keys, in entries that say how many clients must pool theirs. An observer with fewer reads
what its own clients sent, and what was opened for them.

Folder: ``transcript.json`` (format, entries: round, payload type, file, digest, parties) and
``messages-00000.safetensors`` ... The parties of an entry show which batches an observer need not read; entries without
them are read by everyone. Sealed messages as clients read them lie apart from what the server sees, in ``opened/``: who
is given the folder without that one has the server's view. All files are their owner's alone (mode 0600). A damaged
file is noticed by its digest.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor

from fglaudit.errors import FglauditError, shown
from fglaudit.files.own import (
    DamagedError,
    digest,
    make_folder,
    open_own,
    read_own,
    read_stamped,
    stamped,
    write_atomic,
    write_new,
)
from fglaudit.payloads import MessageBatch, Payload, is_repeated, payload_type
from fglaudit.view import Observer

FORMAT = 2
OPENED = "opened"
_INDEX = "transcript.json"
_FILE = re.compile(r"messages-\d{5,9}\.safetensors")
MOST_RANGES = 64
"""Of parties per entry, so that the index stays small where every node is a client."""
_ENVELOPE = ("senders", "receivers", "splits")  # stored beside the payload's own fields, with this prefix:
_PREFIX = "batch."
MAPPED_FROM = 2**20
"""Bytes from which on a file of messages is mapped into memory; smaller ones are read."""
_HANDLES = Path("/dev/fd")
_REPEATED = "repeated."  # prefix of payload fields stored as one entry that all messages share


@dataclass(frozen=True)
class Entry:
    """Index of one stored batch.

    Attributes:
        parties: inclusive ranges (low, high) of party numbers, ascending, that cover all senders and receivers, at most
            ``MOST_RANGES`` of them, so that some may cover others too; None where they are not known.
        readers: how many clients must pool their keys to read these messages; 0 where they travelled in the clear.
        digest: of the stored bytes.
    """

    round: int
    payload: str
    file: str
    parties: tuple[tuple[int, int], ...] | None = None
    readers: int = 0
    digest: str = ""

    @staticmethod
    def load(stored: dict[str, Any]) -> Entry:
        """Rebuild from JSON; ``parties`` may be missing. Raises ValueError or TypeError for what cannot be."""
        ranges = stored.get("parties")
        parties = None if ranges is None else tuple((int(low), int(high)) for low, high in ranges)
        entry = Entry(**{**stored, "parties": parties})
        if not all(type(number) is int and number >= 0 for number in (entry.round, entry.readers)):
            raise ValueError("round and readers are whole numbers of at least 0")
        if not all(isinstance(text, str) for text in (entry.payload, entry.file, entry.digest)):
            raise TypeError("payload, file and digest are texts")
        if _FILE.fullmatch(entry.file) is None:
            raise ValueError(f"a file of messages is called messages-NUMBER.safetensors, not {shown(entry.file)}")
        return entry

    def path(self, folder: Path) -> Path:
        """Return where the messages lie in the folder of a transcript."""
        return folder / OPENED / self.file if self.readers else folder / self.file

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
    return _batch(load(blob), round, payload)


def _mapped(path: Path) -> dict[str, Tensor]:
    """Return the tensors stored in a file without copying them: pages are fetched as they are read, and those that
    somebody writes to become copies of its own (a private mapping)."""
    with open_own(path, *_KIND_AND_FIX) as handle, safe_open(_HANDLES / str(handle), "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)


def _batch(tensors: dict[str, Tensor], round: int, payload: str) -> MessageBatch:
    """Rebuild a batch from what was stored of it."""
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
        self._whole: dict[int, tuple[int, ...]] = {}  # files whose digest was seen to be right, as they were then
        if folder is not None:
            make_folder(folder, 0o700)

    def add(self, batch: MessageBatch, *, readers: int = 0) -> None:
        """Store ``batch``, for observers with ``readers`` clients, its senders, and clients that got it."""
        blob = serialise(batch)
        file = f"messages-{len(self.entries):05d}.safetensors"
        parties = party_ranges(batch) if len(batch.senders) else ()
        entry = Entry(batch.round, type(batch.payload).__name__, file, parties, readers, digest(blob, file))
        if self.folder is None:
            self._blobs.append(blob)
        else:
            _write(entry, self.folder, blob)
            self._whole[len(self.entries)] = _state(entry.path(self.folder))
        self.entries.append(entry)

    def read(self, index: int) -> MessageBatch:
        """Deserialise batch ``index``.

        Raises:
            FglauditError: if its file is missing or damaged.
        """
        entry = self.entries[index]
        if self.folder is None:
            return deserialise(self._blobs[index], entry.round, entry.payload)
        path = entry.path(self.folder)
        state = _state(path)
        try:
            if state and self._whole.get(index) == state and state[1] >= MAPPED_FROM and _HANDLES.exists():
                return _batch(_mapped(path), entry.round, entry.payload)
            return deserialise(self.stored(index), entry.round, entry.payload)
        except (SafetensorError, KeyError, TypeError, ValueError, IndexError, RuntimeError, FglauditError) as error:
            raise DamagedError(_NOT_WHOLE.format(path=path, why=error)) from error

    def stored(self, index: int) -> bytes:
        """Return the bytes of batch ``index``; their digest is taken again only if the file was changed since.

        Raises:
            FglauditError: if its file is missing or damaged.
        """
        entry = self.entries[index]
        if self.folder is None:
            return self._blobs[index]
        path = entry.path(self.folder)
        state = _state(path)
        blob = read_own(path, *_KIND_AND_FIX)
        if not state or self._whole.get(index) != state:
            if digest(blob, entry.file) != entry.digest:
                raise DamagedError(_NOT_WHOLE.format(path=path, why="its digest is that of another content"))
            self._whole[index] = state
        return blob

    def save(self, folder: Path) -> None:
        """Write the index, and the blobs where they are not in ``folder`` yet."""
        make_folder(folder, 0o700)
        if self.folder != folder:
            for index, entry in enumerate(self.entries):
                _write(entry, folder, self.stored(index))
        index_file = {"format": FORMAT, "entries": [asdict(entry) for entry in self.entries]}
        write_atomic(folder / _INDEX, stamped(index_file, _INDEX), mode=0o600)

    @staticmethod
    def load(folder: Path) -> Transcript:
        """Open a saved transcript; messages are read when asked for.

        Raises:
            FglauditError: if the index is missing, damaged or of another format.
        """
        path = folder / _INDEX
        index = read_stamped(path, _INDEX, "name a folder that `record: all` wrote under transcripts/, or record again")
        if (found := index.get("format")) != FORMAT:
            raise FglauditError(
                f"this version reads transcript format {FORMAT}; {path} has {shown(found)}; record the run again"
            )
        try:
            entries = [Entry.load(entry) for entry in index["entries"]]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamagedError(
                f"a transcript folder needs a whole transcript.json; {path}: {error}; record the run again"
            ) from error
        transcript = Transcript(folder)
        transcript.entries = entries
        return transcript

    def seen_by(self, observer: Observer) -> ObservedMessages:
        """Return the messages that ``observer`` sent or received (for the wire: all), as far as it can read them."""
        parties = None if observer.wire else torch.tensor(observer.parties)
        return ObservedMessages(functools.partial(_readable, self, parties, observer.clients))


_KIND_AND_FIX = ("a transcript's message file", "record the run again")
_NOT_WHOLE = "a transcript needs all its message files whole; {path} is not ({why}); record the run again"


def _state(path: Path) -> tuple[int, ...]:
    """Return what any change of a file changes: which file it is, its size, times of its last writing; empty where
    there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _write(entry: Entry, folder: Path, blob: bytes) -> None:
    path = entry.path(folder)
    if entry.readers and not os.path.lexists(path.parent):
        make_folder(path.parent, 0o700)
    write_new(path, blob)


@dataclass(frozen=True, repr=False)
class ObservedMessages:
    """Lazy reader: one batch in memory at a time. Implements :class:`fglaudit.view.Messages`.

    It has no transcript among its attributes, only a function that filters: what it hands out are copies of messages
    that the observer can read, in memory of their own.
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
            mine = torch.tensor(clients)
            seen = torch.isin(batch.senders, mine) | torch.isin(batch.receivers, mine)  # opened for its receiver
        elif parties is not None:
            seen = torch.isin(batch.senders, parties) | torch.isin(batch.receivers, parties)
        else:
            yield batch
            continue
        if bool(seen.all()):
            yield batch
        elif bool(seen.any()):
            yield batch.select(seen)
