"""The keys of a suite as they are written, and what is wrong with others: which key, what was given, the fix."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fglaudit.errors import FglauditError, shown, unknown
from fglaudit.files import plain_words
from fglaudit.observers import ObserverSpec
from fglaudit.suite.cell import Record

EXAMPLES = {
    "name": "name: my-suite",
    "datasets": "datasets: [{name: csbm-cora}]",
    "partitions": "partitions: [{scheme: dirichlet, clients: 10, beta: 10000}]",
    "protocols": "protocols: [{name: fedgcn, hops: 1}]",
    "server": "server: [honest]",
    "defenses": "defenses: [{name: none}]",
    "observers": 'observers: [{parties: [server]}, {parties: ["client:each"]}]',
    "attacks": "attacks: all, or attacks: [subset-sum, row-space]",
    "auxiliary": "auxiliary: 0.1, for one row in ten",
    "record": "record: needed",
    "empirical": "empirical: true",
    "seeds": "seeds: [0, 1, 2]",
    "plugins": "protocols: [{name: my_protocol.py:MyProtocol}], which runs a file beside the suite; for files elsewhere"
    " plugins: {my_protocol.py: SHA-256 of the file in hex digits}",
}
"""By key, what may be written."""


class ObserverEntry(BaseModel):
    """An observer as written."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    parties: list[str] = Field(min_length=1)
    topology: bool = False
    degrees: bool | None = None
    initial_weights: bool = False
    auxiliary: float = Field(default=0.0, ge=0, lt=1)
    sensitive: list[int] = Field(default=[])

    def spec(self) -> ObserverSpec:
        lists = {"parties": tuple(self.parties), "sensitive": tuple(self.sensitive)}
        return ObserverSpec(**{**self.model_dump(), **lists})


class SuiteFile(BaseModel):
    """The keys of a suite as written; plugins and specs are resolved afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    datasets: list[str | dict[str, Any]] = Field(min_length=1)
    partitions: list[str | dict[str, Any]] = Field(min_length=1)
    protocols: list[str | dict[str, Any]] = Field(min_length=1)
    server: list[str | dict[str, Any]] = Field(default=["honest"], min_length=1)
    defenses: list[str | dict[str, Any]] = Field(default=["none"], min_length=1)
    observers: list[ObserverEntry] = Field(min_length=1)
    attacks: Literal["all"] | Annotated[list[str | dict[str, Any]], Field(min_length=1)] = "all"
    record: Record = "needed"
    empirical: bool = True
    seeds: list[int] = Field(default=[0], min_length=1)
    plugins: dict[str, str] = Field(default={})


def validated(data: dict[str, Any]) -> SuiteFile:
    """Return the keys ``data`` of a suite, their values of the types wanted.

    Raises:
        FglauditError: for the first that is unknown, missing or of another type.
    """
    try:
        return SuiteFile.model_validate(data)
    except ValidationError as error:
        # Of a union such as "text | mapping" pydantic reports every branch: an unknown key, or what lies deepest, says
        # most.
        problems = sorted(error.errors(), key=lambda e: (e["type"] != "extra_forbidden", -len(e["loc"])))
        problem = problems[0]
        where = _place(problem["loc"])
        same = [each for each in problems if _place(each["loc"]) == where]
        if problem["type"] == "extra_forbidden":
            model = ObserverEntry if problem["loc"][0] == "observers" else SuiteFile
            key, parent = str(problem["loc"][-1]), _place(problem["loc"][:-1])
            raise FglauditError(
                f"{parent + ': ' if parent else ''}{unknown('key', key, model.model_fields)}"
            ) from error
        if problem["type"] == "missing":
            raise FglauditError(
                f"the key {where} is required; write e.g. {EXAMPLES.get(where, where + ': ...')}"
            ) from error
        if problem["type"] == "string_pattern_mismatch":  # of the name, which files are called by
            rule = ": a name has letters a to z or A to Z, digits, dots, dashes, underscores, a letter or digit first"
        else:
            rule = f" {plain_words.rule(same)}"
        plain = plain_words.fix(rule.strip(), problem["input"])
        fix = f"; {plain}" if plain else _example(where)
        raise FglauditError(f"{where}{rule}; got {shown(problem['input'])}{fix}") from error


def _example(where: str) -> str:
    parts = re.split(r"[.\[]", where)
    example = EXAMPLES.get(parts[-1]) or EXAMPLES.get(parts[0])
    return f"; write e.g. {example}" if example else ""


def _place(loc: Sequence[int | str]) -> str:
    """``("protocols", 1, "hops")`` as ``protocols[1].hops``; pydantic's names of union branches are left out."""
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part in SuiteFile.model_fields or part in ObserverEntry.model_fields or text == "plugins":
            text += f".{part}" if text else part
    return text
