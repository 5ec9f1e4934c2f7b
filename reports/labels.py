"""Short names of settings: the arguments that distinguish them in this run and are not defaults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fglaudit.reports.summary import PER_NODE, Setting, scheme


@dataclass(frozen=True)
class Labels:
    """Names the settings of one run.

    Attributes:
        varying: by (kind, plugin name), the fields that take several values in this run.
        several_places: whether there is more than one data set and partition.
    """

    varying: dict[tuple[str, str], tuple[str, ...]]
    several_places: bool

    @staticmethod
    def of(settings: Sequence[Setting]) -> Labels:
        seen: dict[tuple[str, str], dict[str, set[str]]] = {}
        for setting in settings:
            for kind, name in (("protocol", setting.first.protocol), ("defense", setting.first.defense)):
                fields = seen.setdefault((kind, name), {})
                for field, value in _fields(setting, kind).items():
                    fields.setdefault(field, set()).add(_plain(value))
        return Labels(
            {key: tuple(f for f, values in fields.items() if len(values) > 1) for key, fields in seen.items()},
            len(set(map(place, settings))) > 1,
        )

    def protocol(self, setting: Setting) -> str:
        """``fedgcn hops=1``."""
        return self._short(setting, "protocol", setting.first.protocol)

    def defense(self, setting: Setting) -> str:
        """``gaussian epsilon=8``; ``no defense`` for none."""
        return "no defense" if setting.undefended else self._short(setting, "defense", setting.first.defense)

    def setting(self, setting: Setting) -> str:
        """Protocol and defense."""
        return f"{self.protocol(setting)}, {self.defense(setting)}"

    def placed(self, setting: Setting) -> str:
        """Protocol and defense, on which data, split how."""
        return f"{self.setting(setting)} on {place(setting)}"

    def told(self, setting: Setting) -> str:
        """Protocol and defense, and on which data where the run has several: two settings are never called the same."""
        return f"{self.setting(setting)}{self.where(setting)}"

    def where(self, setting: Setting) -> str:
        """ " on PLACE" where a run has several of these; else nothing, as the head of a report names it."""
        return f" on {place(setting)}" if self.several_places else ""

    def _short(self, setting: Setting, kind: str, name: str) -> str:
        fields = _fields(setting, kind)
        # Fields at their defaults are not in the columns; naming them in every label would bury what is special.
        special = {part.partition("=")[0] for part in getattr(setting.first, f"{kind}_args").split(";") if part}
        parts = [f"{f}={_plain(fields[f])}" for f in self.varying.get((kind, name), ()) if f in fields and f in special]
        return " ".join([name, *parts])


def _fields(setting: Setting, kind: str) -> dict[str, Any]:
    """Return a plugin's fields from the cell's description, or from the columns where the description has none."""
    described = setting.records[0].description.get(kind)
    if isinstance(described, dict):
        return {key: value for key, value in described.items() if key != "name"}
    pairs = (part.partition("=") for part in getattr(setting.first, f"{kind}_args").split(";") if part)
    return {key: value for key, _, value in pairs}


def _plain(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "+".join(map(_plain, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def arguments(text: str) -> str:
    """``a=1;b=2`` as readers see it."""
    return text.replace(";", ", ")


def place(setting: Setting) -> str:
    """Data set, partition and number of clients; of one per node the number is that of the nodes, and is not known
    where a cell never opened its graph."""
    f = setting.first
    where = ", ".join(part for part in (setting.dataset, arguments(f.partition).removeprefix("scheme=")) if part)
    clients = "" if "clients=" in f.partition or scheme(f) == PER_NODE else f", {f.clients} clients"
    return f"{where}{clients}" + (f", rules broken by {f.server}" if f.server not in ("", "honest") else "")
