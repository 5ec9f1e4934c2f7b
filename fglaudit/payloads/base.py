"""The base of everything that travels: fields of tensors, and a note of which of them were read.

See :mod:`fglaudit.payloads` for the payloads themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch
from torch import Tensor

from fglaudit.errors import FglauditError, shown, unknown
from fglaudit.sealing import SealedTensor

P = TypeVar("P", bound="Payload")
_CLOSED = "_closed"
if TYPE_CHECKING:
    Fields = dict[str, Tensor]
else:
    Fields = dict  # a check of the values at run time would read them


PayloadName = str
"""Type of a plugin's field that holds the name of a payload."""


@dataclass(frozen=True)
class _Closed:
    """The fields of a payload whose readings are noted in ``log``."""

    kind: str
    tensors: dict[str, Tensor]
    log: set[tuple[str, str]]

    def read(self, name: str) -> Tensor:
        self.log.add((self.kind, name))
        return self.tensors[name]


class _Noted(dict[str, Tensor]):
    """Fields by name that notes which were looked up; those that are gone through are all read."""

    def __init__(self, closed: _Closed) -> None:
        super().__init__(closed.tensors)
        self._closed = closed

    def __getitem__(self, name: str) -> Tensor:
        return self._closed.read(name)

    def get(self, name: str, default: Any = None) -> Any:
        return self._closed.read(name) if name in self else default

    def pop(self, name: str, *default: Any) -> Any:
        if name in self:
            self._closed.read(name)
        return super().pop(name, *default)

    def __iter__(self) -> Iterator[str]:  # its own, so that dict(...) and ** look every field up
        return super().__iter__()

    def values(self) -> Any:
        return {name: self[name] for name in self}.values()

    def items(self) -> Any:
        return {name: self[name] for name in self}.items()

    def copy(self) -> dict[str, Tensor]:
        return {name: self[name] for name in self}


class Payload:
    """Base of all payloads: frozen dataclasses of tensors. Defining a subclass registers it for loading transcripts."""

    ragged: ClassVar[bool] = False
    registry: ClassVar[dict[str, type[Payload]]] = {}

    def __init_subclass__(cls) -> None:
        Payload.registry[cls.__name__] = cls

    def tensors(self) -> Fields:
        """Fields by name."""
        closed = self.__dict__.get(_CLOSED)
        if closed is not None:
            return _Noted(closed)
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the fields by name; asking for them is no reading of values."""
        return {name: tuple(value.shape) for name, value in self._fields().items()}

    def numbers(self) -> int:
        """Return how many numbers the fields hold; asking is no reading of values."""
        return sum(math.prod(shape) for shape in self.shapes().values())

    def real_fields(self) -> tuple[str, ...]:
        """Return the names of the fields of real numbers, not ids; asking is no reading of values."""
        return tuple(name for name, value in self._fields().items() if value.is_floating_point())

    def ids(self) -> Tensor | None:
        """Return the first field of ids [n]; None where there is none."""
        known = (name for name, value in self._fields().items() if value.dtype == torch.long and value.dim() == 1)
        name = next(known, None)
        return None if name is None else self.tensors()[name]

    def with_fields(self: P, changed: dict[str, Tensor]) -> P:
        """Return the payload with other values in some fields; the rest is not read."""
        tensors, closed = {**self._fields(), **changed}, self.__dict__.get(_CLOSED)
        return type(self).from_tensors(tensors) if closed is None else self._closed_with(tensors, closed.log)

    def noted(self: P, log: set[tuple[str, str]]) -> P:
        """Return the same payload, which adds (type, field) to ``log`` when a field is read.

        Type and values are the same: fields that nobody has read yet are no attributes, and Python asks
        :meth:`__getattr__` for them.
        """
        return self._closed_with(self._fields(), log)

    def _closed_with(self: P, tensors: dict[str, Tensor], log: set[tuple[str, str]]) -> P:
        closed = object.__new__(type(self))
        closed.__dict__[_CLOSED] = _Closed(type(self).__name__, tensors, log)
        return closed

    if not TYPE_CHECKING:  # a type checker would take any name for a field

        def __getattr__(self, name: str) -> Tensor:
            closed = self.__dict__.get(_CLOSED)
            if closed is None or name not in closed.tensors:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            value: Tensor = closed.read(name)
            return value

    def _fields(self) -> dict[str, Tensor]:
        """Return the fields without a word in any log: for what is no reading of values."""
        closed = self.__dict__.get(_CLOSED)
        return self.tensors() if closed is None else closed.tensors

    @classmethod
    def from_tensors(cls: type[P], tensors: dict[str, Tensor]) -> P:
        """Rebuild from :meth:`tensors`."""
        return cls(**tensors)

    def select(self: P, index: Tensor) -> P:
        """Return the payload with ``index`` (positions or a mask) taken along the leading axis of every field."""
        return self.with_fields({name: _taken(value, index) for name, value in self._fields().items()})

    def bytes_per_entry(self) -> int:
        """Wire bytes of one entry of the leading axis, without sealed fields."""
        clear = (value for value in self._fields().values() if not isinstance(value, SealedTensor))
        return sum(value[:1].numel() * value.element_size() for value in clear)

    def sealed_fields(self) -> dict[str, SealedTensor]:
        """Return the fields whose values are hidden, by name."""
        return {name: value for name, value in self._fields().items() if isinstance(value, SealedTensor)}


def is_repeated(value: Tensor) -> bool:
    """Whether ``value`` [P, ...] is one entry repeated without copies (``expand``): a broadcast, stored once."""
    return value.dim() > 0 and len(value) > 1 and value.stride(0) == 0


def _taken(value: Tensor, index: Tensor) -> Tensor:
    if not is_repeated(value):
        return value[index]
    count = int(index.sum().item()) if index.dtype is torch.bool else len(index)
    return value[:1].expand(count, *value.shape[1:])


def payload_type(name: str) -> type[Payload]:
    """Return the payload class called ``name``."""
    if not isinstance(name, str):
        raise FglauditError(f"a payload is given by its name; got {shown(name)}; write it as text")
    if name not in Payload.registry:
        raise unknown("payload", name, Payload.registry, "fglaudit list payloads")
    return Payload.registry[name]


def payload_types(names: Sequence[str]) -> tuple[type[Payload], ...]:
    """Return the payload classes called ``names``.

    Raises:
        FglauditError: an unknown one; or one text in place of a list, which would be read letter by letter.
    """
    if isinstance(names, str):
        raise FglauditError(f"payloads are given as a list; got the text {names!r}; write ({names!r},)")
    return tuple(map(payload_type, names))
