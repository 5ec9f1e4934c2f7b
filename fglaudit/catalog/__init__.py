"""What ``fglaudit list`` and ``fglaudit show`` say about everything that a suite can name."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile

from fglaudit import registry
from fglaudit.catalog import payloads, quantities
from fglaudit.catalog.plugins import Description, described, described_class
from fglaudit.catalog.text import entry, listed, plain
from fglaudit.datasets.catalog import DESCRIPTIONS as DATASETS
from fglaudit.datasets.catalog import DETAILS
from fglaudit.errors import FglauditError, unknown
from fglaudit.parties import HONEST, SERVERS
from fglaudit.partition.schemes import partition_schemes
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


def _explained(kind: str, name: str, found: Description) -> str:
    called = name.rpartition(":")[2] if ".py:" in name else name
    docs = [line for doc in found.docs for line in (plain(doc), "")]
    named = any(re.search(r"\bPayloadName\b", field) for field in found.fields)
    return "\n".join(
        [
            f"{kind} {called}",
            "",
            *docs,
            *listed(found.fields),
            *(["  (PayloadName: one of fglaudit list payloads, or of a plugin)"] if named else []),
            *found.attributes,
        ]
    )


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
    return "\n".join([about, "", *_more(name), *entry("fglaudit.datasets.spec", "DatasetSpec"), *nested])


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
        *entry(f"fglaudit.datasets.{module}", cls),
    ]


def _more(name: str) -> list[str]:
    return [DETAILS[name], ""] if name in DETAILS else []


def _partition(name: str) -> str:
    about = f"partition scheme {name}: {partition_schemes()[name]}"
    return "\n".join([about, "", *entry("fglaudit.partition.spec", "PartitionSpec")])


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
        [f"behaviour {name} (suite key server)", "", *entry(module, cls), "", class_source(module, cls).module_doc]
    )


CATALOG: dict[str, Section] = {
    "protocols": _plugins("protocol"),
    "attacks": _plugins("attack"),
    "defenses": _plugins("defense"),
    "payloads": Section(payloads.entries, payloads.explain),
    "quantities": Section(quantities.entries, quantities.explain),
    "servers": Section(_servers, _server),
    "datasets": Section(lambda: dict(DATASETS), _dataset),
    "partitions": Section(partition_schemes, _partition),
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


def facts_allowed(name: str) -> list[str]:
    """Return the lines that ``fglaudit show`` adds of an attack: which facts it allows for; none of other things.

    Beside a suite of the same name they are comments, as all that :func:`explain` says there.
    """
    of_file = ".py:" in name
    if not (_kind_in_file(name) == "attack" if of_file else name in registry.names("attack")):
        return []
    from fglaudit.catalog.allowed_facts import allowed_by

    lines = allowed_by(registry.load("attack", name))
    return [_commented(line) for line in lines] if name in CATALOG["suites"].entries() else lines


def _commented(text: str) -> str:
    return "\n".join(f"# {line}".rstrip() for line in text.splitlines())


def _explain_file(name: str) -> str:
    """Explain ``file.py:Class``, whichever kind of plugin it is."""
    return CATALOG[f"{_kind_in_file(name)}s"].explain(name)


def _kind_in_file(name: str) -> str:
    """Return which kind of plugin ``file.py:Class`` is.

    Raises:
        FglauditError: it is none.
    """
    reasons = []
    for kind in ("protocol", "defense", "attack"):
        try:
            registry.load(kind, name)
        except FglauditError as error:
            reasons.append(error)
            continue
        return kind
    raise reasons[0]
