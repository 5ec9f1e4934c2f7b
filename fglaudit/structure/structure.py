"""All statements of a protocol together."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from fglaudit.errors import FglauditError
from fglaudit.structure.messages import (
    Attention,
    BoundaryRows,
    Centroids,
    Codes,
    EmbeddedRows,
    Encoder,
    Functional,
    Generators,
    Latent,
    NoisyRows,
    Propagation,
    Reports,
    SpreadReports,
    Sums,
)
from fglaudit.structure.statement import NotStated, NotStatedError, Statement
from fglaudit.structure.training import Convolutions, Models, PersonalAverages, Training, Transformer

S = TypeVar("S", bound=Statement)


@dataclass(frozen=True)
class Unread(Statement):
    """A statement of a class that was not known when it was loaded."""

    about: ClassVar[str] = "anything that this distribution can read"

    kind: str
    stated: tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Structure:
    """All that a protocol states, at most one statement of a kind."""

    statements: tuple[Statement, ...] = ()

    def __post_init__(self) -> None:
        names = [_name(statement) for statement in self.statements]
        for name in names:
            if names.count(name) > 1:
                raise FglauditError(f"a protocol states {name} at most once; got {names.count(name)}; keep one of them")

    def get(self, kind: type[S]) -> S | None:
        """Return the statement of this ``kind``, or None."""
        for statement in self.statements:
            if isinstance(statement, kind):
                return statement
            if isinstance(statement, Unread) and statement.kind == kind.__name__:
                return kind(**dict(statement.stated))
        return None

    def of(self, kind: type[S]) -> S:
        """Return the statement of this ``kind``.

        Raises:
            NotStatedError: with what is open, and the fix.
        """
        found = self.get(kind)
        if found is None:
            raise NotStatedError(kind.missing())
        return found

    def missing(self, *kinds: type[Statement]) -> NotStated | None:
        """Return the reason for ``Attack.unsupported`` if one of ``kinds`` is not stated, or None."""
        return next((kind.missing() for kind in kinds if self.get(kind) is None), None)

    def replace(self, kind: type[Statement], **values: Any) -> Structure:
        """Return a copy in which the statement of this ``kind``, if there is one, has other ``values``."""
        old = self.get(kind)
        if old is None:
            return self
        rest = tuple(s for s in self.statements if _name(s) != kind.__name__)
        return Structure((*rest, dataclasses.replace(old, **values)))  # type: ignore[type-var]

    def to_json(self) -> dict[str, dict[str, Any]]:
        """Return the statements' values by the name of their class, for JSON."""
        return {_name(s): dict(s.stated) if isinstance(s, Unread) else s.values() for s in self.statements}

    @staticmethod
    def from_json(stored: Mapping[str, Mapping[str, Any]]) -> Structure:
        """Read what :meth:`to_json` returned. Classes that are not known yet are looked up when they are asked for."""
        found = []
        for name, values in stored.items():
            kind = BUILT_IN.get(name)
            found.append(Unread(name, tuple(values.items())) if kind is None else kind(**values))
        return Structure(tuple(found))


BUILT_IN: dict[str, type[Statement]] = {
    kind.__name__: kind
    for kind in (
        *(
            Sums,
            Attention,
            Latent,
            NoisyRows,
            Encoder,
            Propagation,
            Centroids,
            Codes,
            Reports,
            SpreadReports,
            EmbeddedRows,
            Generators,
            Functional,
            BoundaryRows,
            Models,
            PersonalAverages,
            Transformer,
            Convolutions,
            Training,
        ),
    )
}


def _name(statement: Statement) -> str:
    return statement.kind if isinstance(statement, Unread) else type(statement).__name__
