"""Observers as a suite writes them, and the threat models they stand for."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fglaudit.errors import FglauditError
from fglaudit.files.field_types import CheckedFields
from fglaudit.payloads import SERVER
from fglaudit.view import Observer


@dataclass(frozen=True)
class ObserverSpec(CheckedFields):
    """An observer as a suite writes it, before "client:each" is expanded.

    >>> ObserverSpec(parties=("client:each",), auxiliary=0.1)

    Attributes:
        parties: "server", "client:3", "wire", or "client:each": every client in turn, pooled. Several collude.
        topology, degrees, initial_weights, auxiliary, sensitive: what they know beforehand, see
            :class:`fglaudit.view.Observer`.
    """

    parties: tuple[str, ...] = ()
    topology: bool = False
    degrees: bool | None = None
    initial_weights: bool = False
    auxiliary: float = 0.0
    sensitive: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if (least := min(self.sensitive, default=0)) < 0:
            raise FglauditError(f"sensitive numbers columns of the features from 0; got {least}; correct it")
        if list(self.sensitive) != sorted(set(self.sensitive)):
            raise FglauditError(
                f"sensitive names columns of the features, ascending and each once; got {list(self.sensitive)}; sort"
                " them"
            )
        if self.sensitive and not self.auxiliary:
            raise FglauditError(
                "sensitive columns are missing in every second auxiliary row; got no auxiliary rows; add e.g."
                " auxiliary: 0.5"
            )

    @property
    def name(self) -> str:
        """The observer column: ``server``, ``client:each``, ``server+client:0`` ..."""
        return "+".join(self.parties)

    @property
    def knowledge(self) -> str:
        """The observer_knowledge column, see :attr:`fglaudit.view.Observer.knowledge`."""
        return _known(self).knowledge


def _known(spec: ObserverSpec) -> Observer:
    """Return an observer with the side knowledge of ``spec`` and no party but the wire."""
    return Observer(
        wire="wire" in spec.parties,
        topology=spec.topology,
        degrees=spec.degrees,
        initial_weights=spec.initial_weights,
        auxiliary=spec.auxiliary,
        sensitive=spec.sensitive,
    )


def expand(spec: ObserverSpec, num_clients: int) -> tuple[list[Observer], bool]:
    """Return the observers that ``spec`` stands for, and whether they are one client in turn, to be pooled.

    Raises:
        FglauditError: for an unknown party or a client that does not exist.
    """
    each = "client:each" in spec.parties
    fixed = [_party(name, num_clients) for name in spec.parties if name not in ("client:each", "wire")]
    groups = [(*fixed, k) for k in range(num_clients)] if each else [tuple(fixed)]
    return [replace(_known(spec), parties=group) for group in groups], each


def _party(name: str, num_clients: int) -> int:
    kind, _, number = name.partition(":")
    if name == "server":
        return SERVER
    if kind != "client" or not number.isdigit() or int(number) >= num_clients:
        raise FglauditError(
            f"a party is server, wire, client:each or client:0 ... client:{num_clients - 1}; got {name!r}; change it"
        )
    return int(number)
