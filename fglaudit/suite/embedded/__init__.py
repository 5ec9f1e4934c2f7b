"""YAML files of the suites that come with the package."""

from __future__ import annotations

from importlib.resources import files


def embedded() -> dict[str, str]:
    """Return the texts of the suites that come with the package, by name."""
    folder = files(__name__)
    return {p.name.removesuffix(".yaml"): p.read_text("utf-8") for p in folder.iterdir() if p.name.endswith(".yaml")}
