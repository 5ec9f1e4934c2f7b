"""Protocols whose own words are false, that look at test labels, or pool all data, are named by the conformance kit."""

from __future__ import annotations

import pytest
from untrue_protocols import BestRound, Pooled, Told

from fglaudit.interfaces import FederatedProtocol
from fglaudit.testing import check_protocol, example_graph


def test_true_words_are_no_fault() -> None:
    check_protocol(Told(rounds=2, hops=1))


@pytest.mark.parametrize(
    ("protocol", "words"),
    [
        (Told(rounds=2, hops=1, gain=0.8), "the gain is"),
        (Told(rounds=2, hops=1, sums="counts"), "`structure` states counts sums"),
        (Told(rounds=2, hops=2, sums="row-mean"), "`structure` states row-mean sums"),
        (Told(rounds=2, hops=0, uploaded="changes"), "they look like weights"),
    ],
)
def test_false_words_are_named(protocol: FederatedProtocol, words: str) -> None:
    with pytest.raises(AssertionError) as told:
        check_protocol(protocol)
    assert words in str(told.value)


def test_a_round_chosen_by_test_labels_is_named() -> None:
    with pytest.raises(AssertionError, match="labels of test nodes change which round's accuracy counts"):
        check_protocol(BestRound(rounds=12, hops=1))


def test_data_in_one_place_are_not_data_that_stay_where_they_are() -> None:
    check_protocol(Pooled(pooled=False), example_graph())
    with pytest.raises(AssertionError, match="no message is sent at all"):
        check_protocol(Pooled(), example_graph())
