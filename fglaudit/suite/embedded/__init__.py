"""YAML files of the suites that come with the package."""

from __future__ import annotations

from importlib.resources import files


def embedded() -> dict[str, str]:
    """Return the texts of the suites that come with the package, by name."""
    folder = files(__name__)
    return {p.name.removesuffix(".yaml"): p.read_text("utf-8") for p in folder.iterdir() if p.name.endswith(".yaml")}


def how_to_copy(suite: str) -> str:
    """Return how an embedded ``suite`` is changed, whose keys stand in no file of the user's; nothing for others."""
    if suite not in embedded():
        return ""
    return f"{suite} is an embedded suite; to change it: fglaudit show {suite} > my_suite.yaml, then run my_suite.yaml"
