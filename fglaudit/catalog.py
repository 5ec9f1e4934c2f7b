"""What ``fglaudit list`` and ``fglaudit show`` say about everything that a suite can name."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fglaudit import registry
from fglaudit.errors import FglauditError, unknown


@dataclass(frozen=True)
class Section:
    """One kind of thing: names with a line each, and an explanation of one of them."""

    entries: Callable[[], dict[str, str]]
    explain: Callable[[str], str]


def _plugins(kind: str) -> Section:
    def explain_plugin(name: str) -> str:
        cls = registry.load(kind, name)
        facts = [f"{kind} {cls.name}", "", inspect.getdoc(cls) or "", ""]
        for base in cls.__mro__[1:]:  # fields that several plugins share are described where they are declared
            if dataclasses.is_dataclass(base) and "Attributes:" in (base.__doc__ or ""):
                facts += [inspect.cleandoc(base.__doc__ or ""), ""]
        module = inspect.getmodule(cls)
        if module is not None and module.__doc__:
            facts += [inspect.cleandoc(module.__doc__), ""]
        facts += _fields(cls)
        for attribute, words in (("emits", "sends"), ("consumes", "reads"), ("metric", "primary metric")):
            if (value := getattr(cls, attribute, None)) is not None:
                facts.append(f"{words}: {value if isinstance(value, str) else ', '.join(t.__name__ for t in value)}")
        return "\n".join(facts)

    return Section(lambda: {name: registry.summary(kind, name) for name in registry.names(kind)}, explain_plugin)


def _fields(cls: type[Any]) -> list[str]:
    """One line per field with its type and default; keys of a suite entry."""
    lines = []
    for f in dataclasses.fields(cls):
        if f.default is not dataclasses.MISSING:
            default = f" = {f.default!r}"
        else:
            default = "" if f.default_factory is dataclasses.MISSING else f" = {f.default_factory()!r}"
        lines.append(f"  {f.name}: {f.type if isinstance(f.type, str) else f.type.__name__}{default}")
    return ["fields:", *lines] if lines else ["fields: none"]


def _suites() -> dict[str, str]:
    from fglaudit.suite.suite import embedded

    return {name: text.partition("\n")[0].lstrip("# ") for name, text in sorted(embedded().items())}


def _suite_text(name: str) -> str:
    from fglaudit.suite.suite import embedded

    return embedded()[name].rstrip()


def _datasets() -> dict[str, str]:
    from fglaudit.datasets import dataset_names

    return dataset_names()


def _dataset(name: str) -> str:
    from fglaudit.datasets import DatasetSpec

    return "\n".join(
        [f"data set {name}: {_datasets()[name]}", "", inspect.getdoc(DatasetSpec) or "", "", *_fields(DatasetSpec)]
    )


def _partitions() -> dict[str, str]:
    from fglaudit.partition import partition_schemes

    return partition_schemes()


def _partition(name: str) -> str:
    from fglaudit.partition import PartitionSpec

    about = f"partition scheme {name}: {_partitions()[name]}"
    return "\n".join([about, "", inspect.getdoc(PartitionSpec) or "", "", *_fields(PartitionSpec)])


CATALOG: dict[str, Section] = {
    "protocols": _plugins("protocol"),
    "attacks": _plugins("attack"),
    "defenses": _plugins("defense"),
    "datasets": Section(_datasets, _dataset),
    "partitions": Section(_partitions, _partition),
    "suites": Section(_suites, _suite_text),
}


def explain(name: str) -> str:
    """Return what ``fglaudit show`` prints for ``name``; a name of two kinds is explained twice.

    Raises:
        FglauditError: if nothing is called ``name``.
    """
    if ".py:" in name:
        return _explain_file(name)
    found = [section.explain(name) for section in CATALOG.values() if name in section.entries()]
    if not found:
        raise unknown("name", name, [n for section in CATALOG.values() for n in section.entries()])
    return "\n\n".join(found)


def _explain_file(name: str) -> str:
    """Explain ``file.py:Class``, whichever kind of plugin it is."""
    reasons = []
    for kind, section in (("protocol", "protocols"), ("defense", "defenses"), ("attack", "attacks")):
        try:
            registry.load(kind, name)
        except FglauditError as error:
            reasons.append(error)
            continue
        return CATALOG[section].explain(name)
    raise reasons[0]
