"""What ``fglaudit list`` and ``fglaudit show`` say about everything that a suite can name."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from fglaudit import registry
from fglaudit.datasets.catalog import DESCRIPTIONS as DATASETS
from fglaudit.datasets.catalog import DETAILS
from fglaudit.errors import FglauditError, unknown
from fglaudit.parties import HONEST, SERVERS
from fglaudit.partition.schemes import DESCRIPTIONS as SCHEMES
from fglaudit.plugins.class_source import UnreadableError, class_source
from fglaudit.suite.embedded import embedded


@dataclass(frozen=True)
class Section:
    """One kind of thing: names with a line each, and an explanation of one of them."""

    entries: Callable[[], dict[str, str]]
    explain: Callable[[str], str]


def _plugins(kind: str) -> Section:
    def explain_plugin(name: str) -> str:
        if ".py:" not in name:
            with contextlib.suppress(UnreadableError):
                return _explained(kind, name, described(kind, name))
        return _explained(kind, name, described_class(registry.load(kind, name)))

    return Section(lambda: {name: registry.summary(kind, name) for name in registry.names(kind)}, explain_plugin)


@dataclass(frozen=True)
class Description:
    """What ``show`` says of a plugin: docstrings, one line per field, and class attributes in words."""

    docs: tuple[str, ...]
    fields: tuple[str, ...]
    attributes: tuple[str, ...]


_ATTRIBUTES = (("emits", "sends"), ("consumes", "reads"), ("metric", "primary metric"))


def described(kind: str, name: str) -> Description:
    """Describe a named plugin from its source; nothing is imported.

    Raises:
        UnreadableError: the source alone does not say it all.
    """
    module, _, cls = registry.target(kind, name).partition(":")
    source = class_source(module, cls)
    said = [(words, source.constant(attribute)) for attribute, words in _ATTRIBUTES]
    return Description(
        tuple(filter(None, (source.doc, *source.base_docs, source.module_doc))),
        tuple(f"{f.name}: {f.type}{f.default}" for f in source.fields),
        tuple(f"{words}: {v if isinstance(v, str) else ', '.join(v)}" for words, v in said if v is not None),
    )


def described_class(cls: type[Any]) -> Description:
    """Describe a plugin class that is imported; :func:`described` of a named one is equal."""
    docs = [inspect.getdoc(cls) or ""]
    for base in cls.__mro__[1:]:  # fields that several plugins share are described where they are declared
        if dataclasses.is_dataclass(base) and "Attributes:" in (base.__doc__ or ""):
            docs.append(inspect.cleandoc(base.__doc__ or ""))
    module = inspect.getmodule(cls)
    docs.append(inspect.cleandoc(module.__doc__ or "") if module else "")
    said = [(words, getattr(cls, attribute, None)) for attribute, words in _ATTRIBUTES]
    return Description(
        tuple(filter(None, docs)),
        tuple(_field(f) for f in dataclasses.fields(cls)),
        tuple(
            f"{words}: {v if isinstance(v, str) else ', '.join(t.__name__ for t in v)}"
            for words, v in said
            if v is not None
        ),
    )


def _field(f: dataclasses.Field[Any]) -> str:
    """Return a field with its type and default; a key of a suite entry."""
    if f.default is not dataclasses.MISSING:
        default = f" = {f.default!r}"
    else:
        default = "" if f.default_factory is dataclasses.MISSING else f" = {f.default_factory()!r}"
    return f"{f.name}: {f.type if isinstance(f.type, str) else f.type.__name__}{default}"


def _explained(kind: str, name: str, found: Description) -> str:
    called = name.rpartition(":")[2] if ".py:" in name else name
    docs = [line for doc in found.docs for line in (_plain(doc), "")]
    return "\n".join([f"{kind} {called}", "", *docs, *_listed(found.fields), *found.attributes])


def _plain(doc: str) -> str:
    """Return a docstring as a terminal shows it: names in single backticks, without the roles of Sphinx."""
    return re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", doc).replace("``", "`")


def _listed(lines: Sequence[str]) -> list[str]:
    return ["fields:", *(f"  {line}" for line in lines)] if lines else ["fields: none"]


def _entry(module: str, cls: str) -> list[str]:
    """Return docstring and fields of what an entry of a suite is made into."""
    source = class_source(module, cls)
    return [_plain(source.doc), "", *_listed([f"{f.name}: {f.type}{f.default}" for f in source.fields])]


def _suites() -> dict[str, str]:
    return {name: _purpose(text) for name, text in sorted(embedded().items())}


def _purpose(text: str) -> str:
    """Return the first sentence of the comment at the head of a suite; it may go over several lines."""
    head = list(takewhile(lambda line: line.startswith("#"), text.splitlines()))
    comment = " ".join(line.lstrip("# ") for line in head)
    return re.split(r"(?<=\.)\s+(?=[A-Z`])", comment)[0]


def _dataset(name: str) -> str:
    about = f"data set {name}: {DATASETS[name]}"
    nested = _nested(name)
    return "\n".join([about, "", *_more(name), *_entry("fglaudit.datasets.spec", "DatasetSpec"), *nested])


def _nested(name: str) -> list[str]:
    """Return what stands in the one field of a drawn data set that is a mapping itself."""
    inside = {"csbm": ("csbm", "csbm_options", "CsbmOptions"), "task": ("task", "csbm_tasks", "CsbmTask")}
    drawn = {"csbm": "csbm", "csbm-dnc": "task", "csbm-snc": "task", "csbm-sc": "task"}
    if name not in drawn:
        return []
    key, module, cls = inside[drawn[name]]
    return [
        "",
        f"in {key}: {{...}}, as in {{name: {name}, {key}: {{...}}}}:",
        "",
        *_entry(f"fglaudit.datasets.{module}", cls),
    ]


def _more(name: str) -> list[str]:
    return [DETAILS[name], ""] if name in DETAILS else []


def _partition(name: str) -> str:
    about = f"partition scheme {name}: {SCHEMES[name]}"
    return "\n".join([about, "", *_entry("fglaudit.partition.spec", "PartitionSpec")])


def _servers() -> dict[str, str]:
    found = {HONEST: "All parties follow the protocol."}
    for name, target in SERVERS.items():
        module, _, cls = target.partition(":")
        found[name] = class_source(module, cls).doc.split("\n\n")[0].replace("\n", " ")
    return found


def _server(name: str) -> str:
    if name == HONEST:
        return f"behaviour {name} (suite key server): {_servers()[name]}"
    module, _, cls = SERVERS[name].partition(":")
    return "\n".join(
        [f"behaviour {name} (suite key server)", "", *_entry(module, cls), "", class_source(module, cls).module_doc]
    )


CATALOG: dict[str, Section] = {
    "protocols": _plugins("protocol"),
    "attacks": _plugins("attack"),
    "defenses": _plugins("defense"),
    "servers": Section(_servers, _server),
    "datasets": Section(lambda: dict(DATASETS), _dataset),
    "partitions": Section(lambda: dict(SCHEMES), _partition),
    "suites": Section(_suites, lambda name: embedded()[name].rstrip()),
}


def explain(name: str) -> str:
    """Return what ``fglaudit show`` prints for ``name``; a name of two kinds is explained twice.

    Beside a suite the other explanation is a comment, so that ``fglaudit show NAME > my_suite.yaml`` is a suite.

    Raises:
        FglauditError: if nothing is called ``name``.
    """
    if ".py:" in name:
        return _explain_file(name)
    found = {kind: section.explain(name) for kind, section in CATALOG.items() if name in section.entries()}
    if not found:
        names = dict.fromkeys(n for section in CATALOG.values() for n in section.entries())
        raise unknown("name", name, names, f"fglaudit list {'|'.join(CATALOG)}")
    if "suites" in found:
        found = {kind: text if kind == "suites" else _commented(text) for kind, text in found.items()}
    return "\n\n".join(found.values())


def _commented(text: str) -> str:
    return "\n".join(f"# {line}".rstrip() for line in text.splitlines())


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
