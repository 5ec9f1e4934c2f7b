"""Neighbouring inputs of a mechanism that stands alone: the pairs on which its promise is put to the test.

A promise of epsilon holds for every pair of neighbours, so the auditor may choose the worst. Where a mistake shows
depends on the mistake: a sensitivity of the wrong norm in rows with all entries, a forgotten clip in long rows, a rare
branch in special values. Broken sparse vectors need entries that move alike, and one against all others (Lyu, Su and Li
2017, section 3); noise that is rounded needs entries that are on no grid; a key that nobody else has, a count that
suppression starts at and a clip that is taken from the data need other records that are so. So there is a pair of each
kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.privacy.accounting import Relation

MOST_NUMBERS = 2**16
LENGTH = 1000.0
"""Rows of any length are this many times longer than ``bound``."""
SHORT = 0.5
"""Short rows have this part of ``bound``."""
UNEVEN = 0.02
"""Entries differ in size by this part, so that they lie on no grid and yet hardly fall short of the bound."""
HELD = ((0, 1), (2, 4), (9, 19))
"""How many other records have the two classes of a pair: counts at which keys appear, or suppression starts."""


class Values(StrEnum):
    """What a row holds."""

    REAL = "real"
    BINARY = "binary"  # zeros and ones
    CLASS = "class"  # one number in 0 .. columns - 1


class Norm(StrEnum):
    """By which rows are bounded."""

    L1 = "l1"
    L2 = "l2"
    LINF = "linf"

    def of(self, rows: Tensor) -> Tensor:
        """Return the norms [...] of rows [..., F]."""
        norms: Tensor = torch.linalg.vector_norm(rows, {"l1": 1, "l2": 2, "linf": torch.inf}[self.value], dim=-1)
        return norms


@dataclass(frozen=True)
class Neighbors:
    """Two inputs that differ in one record.

    Attributes:
        name: what the record is, in words.
        present: with the record, [F], or [N, F] where there are several rows; of classes a number, or [N].
        absent: the same without the record, or with another in its place.
        opposite: whether one record is the other with its sign turned, so that numbers of both worlds are of one size.
    """

    name: str
    present: Tensor
    absent: Tensor
    opposite: bool = False


@dataclass(frozen=True)
class Inputs:
    """The inputs that the promise is about.

    Attributes:
        columns: numbers of a row, or how many classes there are.
        rows: of the data set that a mechanism is called with; one row alone is handed over as [columns].
        values: what they are.
        norm, bound: real rows are at most so long.
        any_length: the mechanism clips rows itself, so longer ones are tried too.
        relation: what happens to one record; where one row is all, it cannot be removed.

    Raises:
        FglauditError: if there are none such.
    """

    columns: int = 16
    rows: int = 1
    values: Values = Values.REAL
    norm: Norm = Norm.L2
    bound: float = 1.0
    any_length: bool = False
    relation: Relation = Relation.REPLACE

    def __post_init__(self) -> None:
        least = 2 if self.values is Values.CLASS else 1
        if not (self.columns >= least and self.rows >= 1 and self.columns * self.rows <= MOST_NUMBERS):
            raise FglauditError(
                f"inputs have at least 1 row of at least {least} columns and at most {MOST_NUMBERS} numbers in all; got"
                f" {self.rows} rows of {self.columns} columns; use e.g. --rows 1 --columns 16"
            )
        if not 0 < self.bound < float("inf"):
            raise FglauditError(f"the bound of a row is positive and finite; got {self.bound}; use e.g. --bound 1")
        if self.relation is Relation.ADD_OR_REMOVE and self.rows == 1:
            raise FglauditError(
                "a record can be added or removed where others stay; got one row; use --rows 2 or more, or --relation"
                " 'zeroed out'"
            )
        if self.relation is Relation.ZERO_OUT and self.values is Values.CLASS:
            raise FglauditError("a class cannot be zeroed out, 0 is one of them; use --relation replaced")
        if self.any_length and self.values is not Values.REAL:
            raise FglauditError(
                f"--any-length is about real rows, others have no length; got --values {self.values}; leave it out"
            )

    def records(self, rng: torch.Generator) -> list[Neighbors]:
        """Return pairs of records, one of which takes the other's place; ``rng`` draws entries."""
        return {Values.CLASS: self._classes, Values.BINARY: self._binary, Values.REAL: self._real}[self.values](rng)

    def pairs(self, rng: torch.Generator, exposed: int = 0) -> list[Neighbors]:
        """Return pairs of neighbours; ``rng`` draws entries and other records. Where there are several rows, the one
        that changes is the first, the last or the one that is ``exposed``, in turn."""
        records = self.records(rng)
        if self.rows == 1:
            return records
        placed = [(record, self._others(rng)) for record in records]
        placed += [
            (Neighbors(f"{records[-1].name}, {words}", records[-1].present, records[-1].absent), others)
            for words, others in self._special_others(rng)
        ]
        places = (0, self.rows - 1, exposed)
        return [self._among(record, others, places[n % 3]) for n, (record, others) in enumerate(placed)]

    def _classes(self, _: torch.Generator) -> list[Neighbors]:
        last = self.columns - 1
        first_two = Neighbors("the first two classes", torch.tensor(0), torch.tensor(1))
        found = [Neighbors("the first and the last class", torch.tensor(0), torch.tensor(last))] * (last > 1)
        return [*found, first_two]

    def _binary(self, rng: torch.Generator) -> list[Neighbors]:
        ones, zeros = torch.ones(self.columns), torch.zeros(self.columns)
        found = [Neighbors("all ones against all zeros", ones, zeros)]
        if self.relation is not Relation.REPLACE:
            return found
        drawn = torch.randint(2, (self.columns,), generator=rng).float()
        flipped = torch.cat([1 - drawn[:1], drawn[1:]])
        return [*found, Neighbors("one entry", flipped, drawn), Neighbors("all of a drawn row", 1 - drawn, drawn)]

    def _real(self, rng: torch.Generator) -> list[Neighbors]:
        signs = torch.randint(2, (self.columns,), generator=rng) * 2.0 - 1
        uneven = 1 - UNEVEN * torch.rand(self.columns, generator=rng)
        alike = torch.ones(self.columns)
        first, last = torch.zeros(2, self.columns)
        first[0], last[-1] = 1.0, -1.0
        against = torch.cat([-alike[:-1], alike[-1:]])
        named = [("its first entry alone", first)]
        if self.columns > 1:
            named += [
                ("its last entry alone", last),
                ("all entries alike", alike),
                ("its last entry against all others", against),
                ("all entries, signs drawn", signs * uneven),
            ]
        rows = [(name, row * (self.bound / float(self.norm.of(row)))) for name, row in named]
        name, dense = rows[-1]
        if self.any_length:
            rows += [(f"{called}, {LENGTH:g} times too long", row * LENGTH) for called, row in (rows[0], rows[-1])]
        if self.relation is not Relation.REPLACE:
            return [Neighbors(called, row, torch.zeros_like(row)) for called, row in rows]
        rows.append((f"{name}, {SHORT:g} times as long", SHORT * dense))
        opposite = [Neighbors(called, row, -row, opposite=True) for called, row in rows]
        # A mechanism may look at how long a row is.
        return [*opposite, Neighbors("a row of zeros", dense, torch.zeros(self.columns))]

    def _among(self, record: Neighbors, others: Tensor, place: int) -> Neighbors:
        """Return the pair with the record at ``place`` of a data set [rows, ...] with ``others`` [rows - 1, ...]."""
        before, after = others[:place], others[place:]
        present = torch.cat([before, record.present[None], after])
        gone = self.relation is Relation.ADD_OR_REMOVE
        without = others if gone else torch.cat([before, record.absent[None], after])
        return Neighbors(record.name, present, without, record.opposite)

    def _special_others(self, rng: torch.Generator) -> list[tuple[str, Tensor]]:
        """Return other records [rows - 1, ...] that are a worst case of their own, each in words."""
        if self.values is Values.CLASS:
            return self._counted_others()
        if self.values is Values.BINARY:
            return []
        # What is taken from the data, a clip or the size of noise, may hang on the one record.
        others = self._others(rng)
        half = others * (self.bound / self.norm.of(others).clamp(min=1e-9))[:, None]
        half[: (self.rows - 1) // 2] = 0
        return [("all others zeros", torch.zeros_like(others)), ("half of the others zeros", half)]

    def _counted_others(self) -> list[tuple[str, Tensor]]:
        """Return other classes [rows - 1], of which the first two classes have few, the others alike many."""
        found = []
        for first, second in HELD:
            rest = self.rows - 1 - first - second
            if rest < 0 or (rest > 0 and self.columns == 2):
                continue
            spread = 2 + torch.arange(rest) % max(1, self.columns - 2)
            counted = [torch.full((first,), 0), torch.full((second,), 1), spread]
            found.append((f"which {first} and {second} others have", torch.cat(counted)))
        return found

    def _others(self, rng: torch.Generator) -> Tensor:
        """Return the rows [rows - 1, ...] that both worlds share, within the bound."""
        shape = (self.rows - 1, self.columns)
        if self.values is Values.CLASS:
            return torch.randint(self.columns, shape[:1], generator=rng)
        if self.values is Values.BINARY:
            return torch.randint(2, shape, generator=rng).float()
        drawn = torch.randn(shape, generator=rng)
        lengths = self.norm.of(drawn)
        scaled: Tensor = drawn * (self.bound * torch.rand(shape[0], generator=rng) / lengths.clamp(min=1e-9))[:, None]
        return scaled
