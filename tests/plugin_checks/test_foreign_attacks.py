"""An attack of another author may show a leak, never its absence; it changes nobody's view, and ends no process."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from fglaudit.attacking import run_attacks
from fglaudit.finding import OTHERS, Finding, Status
from fglaudit.interfaces import Attack, Planted, Reconstruction
from fglaudit.observers import ObserverSpec
from fglaudit.payloads import NeighborSums, Payload
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.registry import build
from fglaudit.reports.answers import AnswerWord, judge
from fglaudit.reports.leaks import Leak
from fglaudit.scoring.clusters import Interval
from fglaudit.scoring.score import score
from fglaudit.testing import check_attack, record
from fglaudit.testing.plugin import check
from fglaudit.view import Observer, View

ONE = [ObserverSpec(("client:0",), topology=True, auxiliary=0.1)]
RUN = record(FedGCN(hops=1, rounds=1))


@dataclass(frozen=True)
class Zeros(Attack):
    """Says zeros, of the leak that it plants itself too."""

    name: ClassVar[str] = "zeros"
    consumes: ClassVar[tuple[type[Payload], ...]] = (NeighborSums,)
    metric: ClassVar[str] = "exact_rate"

    spoils: bool = False
    leaves: bool = False
    sets: bool = False
    shifts: bool = False

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        if self.leaves:
            sys.exit(0)
        if self.sets:
            torch.set_default_dtype(torch.float64)
        if self.spoils and view.topology is not None:
            view.topology.zero_()
            view.own[0].x.zero_()
        nodes = torch.arange(view.public.num_nodes)
        return Reconstruction(torch.zeros(len(nodes), view.public.num_features), nodes, self._sure(len(nodes)))

    def _sure(self, rows: int) -> torch.Tensor:
        return torch.rand(rows) if self.shifts else torch.ones(rows)

    def plant(self, view: View, *, rng: torch.Generator) -> Planted:
        found = self.run(view, rng=rng, device=torch.device("cpu"))
        return Planted(view, found.rows, found.nodes)


class NoNumbers(Zeros):
    """Says rows of NaN, which are not equal to themselves."""

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction:
        found = super().run(view, rng=rng, device=device)
        return dataclasses.replace(found, rows=found.rows / 0)


def scored(*attacks: Attack) -> list[Finding]:
    """Return the rows of ``attacks`` by one client."""
    side = dataclasses.replace(RUN.recording.side, auxiliary={0.1: RUN.truth.about([_one()], False)[0].auxiliary})
    recording = dataclasses.replace(RUN.recording, side=side)
    return [measured.finding for measured in score(run_attacks(recording, ONE, attacks), RUN.truth)]


def _one() -> Observer:
    return Observer((0,), topology=True, auxiliary=0.1)


def test_what_an_attack_of_another_author_does_not_find_is_not_held() -> None:
    (row,) = scored(Zeros())
    assert row.status is Status.OK and row.adapted == f"no: {OTHERS}" and not row.can_reassure
    leak = Leak((row,), Interval(0.0, -0.01, 0.01, "beta-binomial", 60), {})
    word, _, why = judge([leak])
    assert word is AnswerWord.NOT_SHOWN
    assert why == "the attacks here are no part of fglaudit: they may show a leak, never its absence"


def test_an_attack_that_changes_its_view_fails_and_spoils_no_other_ones() -> None:
    subset_sum: Attack = build("attack", "subset-sum", {})
    (alone,) = scored(subset_sum)
    spoiling, beside = scored(Zeros(spoils=True), subset_sum)
    assert spoiling.status is Status.FAILED and "zeros changed `own` of client:0" in spoiling.reason
    assert (beside.status, beside.value) == (alone.status, alone.value) and (alone.value or 0.0) > 0.5
    with pytest.raises(AssertionError, match="must not change its view; it changed `own`"):
        check_attack(Zeros(spoils=True), RUN.view(_one()))


def test_an_attack_that_ends_the_process_is_a_failed_row_and_a_fault() -> None:
    (row,) = scored(Zeros(leaves=True))
    assert row.status is Status.FAILED and "must not end the process; SystemExit(0)" in row.reason
    lines = list(check("attack", Zeros(leaves=True), quick=True))
    assert lines[-1].code and "FAULT" in lines[-1].text


def test_an_attack_that_changes_settings_of_torch_fails_and_others_keep_theirs() -> None:
    subset_sum: Attack = build("attack", "subset-sum", {})
    setting, beside = scored(Zeros(sets=True), subset_sum)
    assert setting.status is Status.FAILED and "must not change what others compute with" in setting.reason
    assert beside.status is Status.OK and torch.get_default_dtype() is torch.float32


def test_another_confidence_is_another_result() -> None:
    with pytest.raises(AssertionError, match="same seed, same result"):
        check_attack(Zeros(shifts=True), RUN.view(_one()))


def test_rows_that_are_no_numbers_are_called_so_and_not_another_result() -> None:
    with pytest.raises(AssertionError, match="rows are finite"):
        check_attack(NoNumbers(), RUN.view(_one()))


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("rows", torch.full((60, 24), torch.nan), "60 of 60 that zeros gave have NaN or infinity"),
        ("rows", torch.zeros(60, 5), "rows [R, 24]"),
        ("nodes", torch.arange(60) + 1, "zeros named 60"),
        ("nodes", torch.arange(60) - 2, "zeros named -2"),
        ("nodes", torch.arange(59), "60 rows, 59 nodes"),
        ("confidence", torch.full((60,), torch.nan), "confidences are numbers"),
    ],
)
def test_what_is_no_row_makes_a_failed_one(field: str, value: torch.Tensor, words: str) -> None:
    plain = Reconstruction(torch.zeros(60, 24), torch.arange(60), torch.ones(60))
    (output,) = run_attacks(RUN.recording, [ObserverSpec(("server",))], [Zeros()])
    made = dataclasses.replace(output, results=(dataclasses.replace(plain, **{field: value}),))
    (found,) = score([made], RUN.truth)
    assert found.finding.status is Status.FAILED and words in found.finding.reason
