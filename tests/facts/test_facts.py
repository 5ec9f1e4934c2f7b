"""Typed facts: selection, and a saved recording reads them back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from fglaudit.errors import FglauditError
from fglaudit.facts import (
    EDGES,
    GRADIENTS,
    K_ARY,
    MULTI_BIT,
    ROWS,
    Absent,
    Additive,
    Clipped,
    Correlated,
    DegreeBound,
    DroppedEdges,
    Fact,
    Field,
    Foreign,
    KeptColumns,
    Masked,
    Memoised,
    Merged,
    Randomised,
    Rounded,
    Sampled,
    Scaled,
    Sealed,
    first,
    on,
    rebuilt,
)
from fglaudit.facts.stored import fact_from_json, from_json, to_json
from fglaudit.facts.values import STATED
from fglaudit.interfaces import Guarantee
from fglaudit.payloads import ModelUpdate
from fglaudit.privacy.accounting import Relation

SUMS = Field("NeighborSums", "sums", "up")
ALL = (
    Clipped(ROWS, "L2", 1.0, "row"),
    Randomised(ROWS, MULTI_BIT, tuple((name, 0.5) for name in STATED[MULTI_BIT])),
    Scaled(ROWS, 0.5, 2.0),
    KeptColumns(ROWS, (1, 4)),
    DroppedEdges(EDGES, 2),
    DegreeBound(EDGES, 5, 0),
    Merged(EDGES, 2),
    Clipped(GRADIENTS, "L2", 1.0, "example"),
    Sampled(GRADIENTS, 0.5),
    Additive(GRADIENTS, "gaussian", 0.3),
    Additive(SUMS, "laplace", 0.3),
    Rounded(SUMS, 0.1, 0.0, 16),
    Memoised(SUMS),
    Masked(SUMS),
    Correlated(SUMS, ((1.0, 0.0), (0.5, 1.0))),
    Absent(Field("ModelUpdate"), (2,), 0.1),
    Sealed(Field("ModelUpdate", since=1), "ckks", 1, 1e-6, 1e-5),
)


@dataclass(frozen=True)
class Swapped(Fact):
    pairs: tuple[int, ...]


def test_facts_survive_json() -> None:
    assert from_json(json.loads(json.dumps(to_json(ALL)))) == ALL


def test_a_plugins_fact_is_read_back_as_foreign() -> None:
    (back,) = from_json(json.loads(json.dumps(to_json([Swapped(ROWS, (1, 2))]))))
    assert back == Foreign(ROWS, "Swapped", (("pairs", (1, 2)),))
    assert from_json(to_json([back])) == (back,)


def test_a_plugins_fact_with_a_built_in_name_is_not_taken_for_it() -> None:
    @dataclass(frozen=True)
    class Scaled(Fact):
        factor: float

    (back,) = from_json(to_json([Scaled(ROWS, 2.0)]))
    assert isinstance(back, Foreign)


def test_an_unknown_stored_fact_is_an_error() -> None:
    with pytest.raises(FglauditError, match="Wished"):
        fact_from_json({"fact": "Wished", "target": "rows"})


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ((), "must state keep; got (); add it"),
        ((("keep", 0.9),), "must state classes; got (('keep', 0.9),); add it"),
        ((("keep", "high"), ("classes", 3)), "keep of random reports of kind 'k-ary response' is a number; got"),
        ((("keep", True), ("classes", 3)), "is a number; got True"),
        (("keep", 0.9), "must state keep; got ('keep', 0.9)"),
    ],
)
def test_reports_of_a_known_kind_state_what_is_read_of_them(parameters: Any, told: str) -> None:
    """The accountant, audits and attacks read them: without one each of these ended in an error of Python's."""
    with pytest.raises(FglauditError) as found:
        Randomised(ROWS, K_ARY, parameters)
    assert told in str(found.value)
    with pytest.raises(FglauditError, match="kind 'mine' must state std"):
        Randomised(ROWS, "mine").parameter("std")


@pytest.mark.parametrize(
    ("stated", "told"),
    [
        ((Additive, "ModelUpdate", "gaussian", 1.0), "is about ROWS, EDGES, GRADIENTS or a Field; got 'ModelUpd"),
        ((Additive, ROWS, "gaussian", "1.0"), "scale of Additive must be a number; got '1.0'"),
        ((Clipped, ROWS, "L2", None), "bound of Clipped must be a number; got None"),
        ((Sampled, GRADIENTS, True), "rate of Sampled must be a number; got True"),
        ((DegreeBound, EDGES, "5", 0), "bound of DegreeBound must be a number; got '5'"),
    ],
)
def test_a_fact_is_about_a_target_and_has_numbers(stated: Any, told: str) -> None:
    """A name in place of a target was a fact about nothing; a text in place of a number failed where it was read."""
    kind, *values = stated
    with pytest.raises(FglauditError) as found:
        kind(*values)
    assert told in str(found.value)


def test_facts_are_selected_by_payload_field_and_direction() -> None:
    assert on(ALL, "NeighborSums") == ALL[10:15]
    assert on(ALL, "NeighborSums", "nodes") == ()
    assert on(ALL, "NeighborSums", "sums", "down") == ()
    assert on(ALL, ModelUpdate, "vector", "down") == ALL[15:]  # no name and no direction: every one
    assert first(ALL, Additive, GRADIENTS) == ALL[9]
    assert first(ALL, Additive, "NeighborSums") == ALL[10]
    assert first(ALL, Additive, SUMS) == ALL[10]
    assert first(ALL, Additive, ROWS) is None
    assert first(ALL, Sealed) == ALL[16]


def test_std_of_noise() -> None:
    assert Additive(ROWS, "gaussian", 0.5).std == 0.5
    assert Additive(ROWS, "laplace", 0.5).std == pytest.approx(0.5 * 2**0.5)


def test_a_field_is_named_as_reports_name_it() -> None:
    assert str(Field("NeighborSums", "sums", "up")) == "NeighborSums.sums (up)"
    assert str(Field("ModelUpdate")) == "ModelUpdate"
    assert str(Field("Latents", "x", since=2)) == "Latents.x (from round 2)"


class _Odd(float):
    """More in a product than it is."""

    def __mul__(self, other: float) -> float:
        return 10 * float(self) * other


@pytest.mark.parametrize("scale", [_Odd(0.5), np.float64(0.5), torch.tensor(0.5), Fraction(1, 2), Decimal("0.5")])
def test_stated_numbers_are_kept_by_value(scale: float) -> None:
    kept = Additive(SUMS, "gaussian", scale).scale
    assert type(kept) is float
    assert kept == 0.5


def test_a_fact_that_is_edited_later_leaves_a_rebuilt_one_alone() -> None:
    fact = Additive(SUMS, "gaussian", 0.5)
    (kept,) = rebuilt([fact])
    object.__setattr__(fact, "scale", 5.0)
    assert kept == Additive(SUMS, "gaussian", 0.5)
    object.__setattr__(fact, "scale", _Odd(5.0))
    (again,) = rebuilt([fact])
    assert isinstance(again, Additive)
    assert type(again.scale) is float


@pytest.mark.parametrize("epsilon", [float("nan"), -1.0])
def test_an_epsilon_is_a_number_of_at_least_zero(epsilon: float) -> None:
    with pytest.raises(FglauditError, match="an epsilon is a number of at least 0; got"):
        Guarantee(epsilon_claimed=epsilon)


def test_a_relation_is_one_of_those_known() -> None:
    class Odd:
        moves = 0.1

    with pytest.raises(FglauditError, match="a neighbouring relation is one of"):
        Guarantee(relation=Odd())  # type: ignore[arg-type]
    assert Guarantee(relation=Relation.REPLACE).relation is Relation.REPLACE
