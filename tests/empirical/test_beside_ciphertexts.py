"""What is shown beside ciphertexts: planted faults are refuted, honest seals verified."""

from __future__ import annotations

import pytest

from bench.redteam import sealed_faults
from bench.redteam.cases import CASES
from bench.redteam.measure import judged
from fglaudit.guarantees import Word

BY_NAME = {case.name: case for case in CASES}


STOPS = [" ".join(each) for each in sealed_faults.BROKEN if each[0] == "SealsAtFirst"]


@pytest.mark.parametrize("name", [name for each in sealed_faults.BROKEN if (name := " ".join(each)) not in STOPS])
def test_what_is_shown_beside_ciphertexts_must_not_tell_what_is_in_them(name: str) -> None:
    result = judged(BY_NAME[name], seed=0)
    assert result.outcome is Word.REFUTED
    assert result.by == ("beside ciphertexts",)


@pytest.mark.parametrize("name", STOPS)
def test_what_is_sealed_in_the_first_rounds_alone_is_not_verified(name: str) -> None:
    result = judged(BY_NAME[name], seed=0)
    assert result.outcome is Word.CLAIMED
    assert "ModelUpdate (up): it is said to be sealed, and vector left in the clear" in result.detail


@pytest.mark.parametrize("name", ["SealedAgain bfv", "ckks-models", "bfv", "ckks", "masked-sums"])
def test_honest_seals_are_verified(name: str) -> None:
    result = judged(BY_NAME[f"honest {name}"], seed=0)
    assert result.outcome is Word.VERIFIED, result.detail
