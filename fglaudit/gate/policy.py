"""A policy, as other people's scripts write it::

    observers:
      "client:each": {features: {advantage_high: 0.05}, labels: {advantage_high: 0.2}}
      server:        {features: {verdict: held}}
    accuracy: {min: 0.75}
    epsilon:  {max: 8, delta: 1.0e-5, guarantee: verified, unit: node, against: ["client:each"]}
    trainings: {min: 5}
    allow:    {claimed: false, unexamined: false, failed: 0, broken: 0}

Every key may be left out, but not all three of observers, accuracy and epsilon.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fglaudit.context import Unit
from fglaudit.errors import FglauditError, shown, unknown
from fglaudit.files import limits, plain_words
from fglaudit.files.user import read_text, user_path
from fglaudit.quantities import QUANTITIES
from fglaudit.reports.wording.names import quantity_name
from fglaudit.suite.yaml_text import read_yaml

MOST_DELTA = 1e-5
"""Largest delta where a policy names none; it must also be below one over the number of nodes."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Want(_Strict):
    """What is asked of one observer and quantity.

    Attributes:
        advantage_high: no upper end, corrected for the number of attacks, may lie above it.
        verdict: "held": see ``fglaudit.reports.answers``.
    """

    advantage_high: float | None = Field(default=None, ge=0, lt=1)
    verdict: Literal["held"] | None = None


class Accuracy(_Strict):
    """Attributes:
    min: least accuracy (mean over clients) of any trained model of the run.
    """

    min: float = Field(ge=0, le=1)


class Trainings(_Strict):
    """Attributes:
    min: fewest trainings (seeds) that any setting of the run rests on: of one nobody knows how another would do.
    """

    min: int = Field(ge=1)


class Epsilon(_Strict):
    """Attributes:
    max: largest epsilon of any setting of the run.
    delta: largest probability with which epsilon may be exceeded; None: ``MOST_DELTA``, and below one over the number
        of nodes.
    guarantee: the least that must be said of it.
    unit: what the guarantee is about.
    relation: what may happen to one record between the data sets that epsilon compares; an epsilon for less counts as
        what it is worth for that, see :mod:`fglaudit.gate.relations`. "any" takes every epsilon as it stands. Left out:
        "replaced", of an edge "added or removed".
    against: observers whom it must hold against; empty: those that the policy names under ``observers``, or where it
        names none all of the run.
    """

    max: float = Field(gt=0)
    delta: float | None = Field(default=None, ge=0, lt=1)
    guarantee: Literal["verified", "claimed"] = "verified"
    unit: Unit
    relation: Literal["replaced", "zeroed out", "added or removed", "any"] | None = None
    against: list[str] = Field(default=[])

    @property
    def asked_relation(self) -> str:
        """The relation that is asked for, also where it is left out. An edge is there or not: nothing replaces it."""
        return self.relation or ("added or removed" if self.unit == "edge" else "replaced")


class Allow(_Strict):
    """What does not break the gate.

    Attributes:
        claimed: a guarantee that is its author's number alone.
        unexamined: fields of messages that move with the data and that no fact and no attack covers.
        failed: so many failed rows.
        broken: so many rows of attacks that fail their self-test; where such an attack is on a quantity that is asked
            about, the answer is still not shown.
        servers: behaviours of parties that break the rules; a run with another one, beside honest, breaks the gate.
    """

    claimed: bool = False
    unexamined: bool = False
    failed: int = Field(default=0, ge=0)
    broken: int = Field(default=0, ge=0)
    servers: list[str] = Field(default=[])


class Policy(_Strict):
    """See the module."""

    observers: dict[str, dict[str, Want]] = Field(default={})
    accuracy: Accuracy | None = None
    epsilon: Epsilon | None = None
    trainings: Trainings | None = None
    allow: Allow = Allow()


_MODELS: dict[str, type[BaseModel]] = {
    "accuracy": Accuracy,
    "epsilon": Epsilon,
    "trainings": Trainings,
    "allow": Allow,
}
_EXAMPLES = {
    "observers": "observers: {server: {features: {verdict: held}}}",
    "accuracy": "accuracy: {min: 0.75}",
    "epsilon": 'epsilon: {max: 8, unit: node, against: ["client:each"]}',
    "trainings": "trainings: {min: 5}",
    "allow": "allow: {failed: 0, servers: []}",
}

_FRACTIONS = ("min", "advantage_high")
"""Keys whose values are fractions of one, where per cent may be meant."""


def read_policy(path: str | Path) -> Policy:
    """Read a policy file.

    Raises:
        FglauditError: no such file, no YAML mapping, unknown keys (the nearest known one is named), values that cannot
            be, keys that contradict each other, or nothing asked at all.
    """
    file = user_path(path, "a policy")
    text = read_text(file, "a policy", limits.SUITE_BYTES)
    try:
        found = read_yaml(text)
        if not isinstance(found, dict):
            raise FglauditError(
                f"a policy must be a mapping with keys {', '.join(Policy.model_fields)}; got {shown(found)}; write e.g."
                f" {_EXAMPLES['accuracy']}"
            )
        return _checked(_validated(found))
    except FglauditError as error:
        raise FglauditError(f"policy {file}: {error}") from error


def _validated(data: dict[str, Any]) -> Policy:
    try:
        return Policy.model_validate(data)
    except ValidationError as error:
        problems = sorted(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
        problem = problems[0]
        where = ".".join(map(str, problem["loc"]))
        if problem["type"] == "extra_forbidden":
            *above, key = problem["loc"]
            model = Policy if not above else Want if above[0] == "observers" else _MODELS[str(above[0])]
            place = f"{'.'.join(map(str, above))}: " if above else ""
            raise FglauditError(f"{place}{unknown('key', str(key), model.model_fields)}") from error
        if problem["type"] == "missing":
            raise FglauditError(f"the key {where} is required; {_example(problem['loc'])}") from error
        fix = _fix(problem["type"], problem["input"], str(problem["loc"][-1])) or _example(problem["loc"])
        raise FglauditError(f"{where} {plain_words.rule([problem])}; got {shown(problem['input'])}; {fix}") from error


def _fix(kind: str, given: Any, key: str) -> str:
    """Say what to write in place of the values that people write most often, yes, 75 and 5%; nothing for others."""
    if kind == "bool_type":
        return plain_words.flag_meant(given)
    text = given.strip().removesuffix("%") if isinstance(given, str) else str(given)
    try:
        share = float(text) / 100
    except ValueError:
        return ""
    of_one = key in _FRACTIONS and not kind.startswith("int_")
    if of_one and 0 < share <= 1 and (float(text) > 1 or text != str(given).strip()):
        return f"write {share:g}"
    return ""


def _example(place: Sequence[int | str]) -> str:
    return f"write e.g. {_EXAMPLES[str(place[0])]}"


_EARLIER_NAMES = {"rows held": "held-rows"}
"""What reports of earlier versions called quantities."""


def _checked(policy: Policy) -> Policy:
    for observer, quantities in policy.observers.items():
        if not quantities:
            raise FglauditError(
                f"observers.{observer}: an observer is asked about quantities; got none; write e.g."
                " {features: {verdict: held}}"
            )
        for name, want in quantities.items():
            if name not in QUANTITIES:
                words = _EARLIER_NAMES | {quantity_name(key): key for key in QUANTITIES}
                wrong = unknown("quantity", name, QUANTITIES, "fglaudit list quantities", words)
                raise FglauditError(f"observers.{observer}: {wrong}")
            if want.advantage_high is None and want.verdict is None:
                raise FglauditError(
                    f"observers.{observer}.{name}: a threshold is needed; got none; write advantage_high: 0.05 or"
                    " verdict: held"
                )
    if policy.epsilon is not None and (policy.epsilon.guarantee == "claimed") != policy.allow.claimed:
        raise FglauditError(
            "epsilon.guarantee: claimed and allow.claimed: true go together; got guarantee:"
            f" {policy.epsilon.guarantee}, claimed: {str(policy.allow.claimed).lower()}; change one of them"
        )
    if not policy.observers and policy.accuracy is None and policy.epsilon is None:
        raise FglauditError("a policy must ask something; got neither observers nor accuracy nor epsilon; add one")
    return policy
