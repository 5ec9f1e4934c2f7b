"""The payloads, by the names that fields ``on`` of defenses take: what is sent, by whom, and what reads it."""

from __future__ import annotations

from fglaudit import registry
from fglaudit.catalog.text import listed, plain
from fglaudit.plugins.class_source import ClassSource, UnreadableError, class_source, subclasses


def _payloads() -> dict[str, ClassSource]:
    return dict(sorted(subclasses("fglaudit.payloads", "Payload").items()))


def entries() -> dict[str, str]:
    """Return the first sentence about every payload."""
    return {name: f"{_first(source)}." for name, source in _payloads().items()}


def _first(source: ClassSource) -> str:
    return plain(source.doc).split("\n\n")[0].replace("\n", " ").rstrip(".")


def explain(name: str) -> str:
    """Return what ``fglaudit show`` prints of the payload ``name``."""
    source = _payloads()[name]
    sent, read = _naming("protocol", "emits", name), _naming("attack", "consumes", name)
    return "\n".join(
        [
            f"payload {name}",
            "",
            plain(source.doc),
            "",
            *listed([f"{field.name}: {field.type}" for field in source.fields]),
            f"sent by: {', '.join(sent) or 'no protocol here'}",
            f"read by: {', '.join(read) or 'no attack here'}",
        ]
    )


def _naming(kind: str, attribute: str, payload: str) -> list[str]:
    """Return the plugins of ``kind`` whose class attribute names ``payload``; those without a source are left out."""
    found = []
    for name in registry.names(kind):
        module, _, cls = registry.target(kind, name).partition(":")
        try:
            if payload in (class_source(module, cls).constant(attribute) or ()):
                found.append(name)
        except UnreadableError:
            continue
    return found
