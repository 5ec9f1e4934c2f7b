"""The table of quantities says what their classes say."""

from __future__ import annotations

from fglaudit.quantities import QUANTITIES, quantity


def test_keys_are_the_names_of_the_classes() -> None:
    assert [quantity(key).name for key in QUANTITIES] == list(QUANTITIES)
