"""Messages of several widths: masked matrices of neighbourhoods of several sizes, as FedGAT sends them."""

import torch

from fglaudit.attacks.learned.cleaning import plausible_rows
from fglaudit.payloads import SERVER, MaskedMatrices, MessageBatch

_FEATURES = 5


def _batch(count: int, size: int) -> MessageBatch:
    square = torch.ones(count, _FEATURES, size, size)
    vector, rows = torch.ones(count, size), torch.ones(count, size, _FEATURES)
    payload = MaskedMatrices(torch.arange(count), square, square, vector, rows)
    return MessageBatch(0, torch.full((count,), SERVER), torch.zeros(count, dtype=torch.long), payload)


def test_rows_of_a_width_that_no_rehearsal_has_are_those_that_were_sent_as_wide() -> None:
    wire = (_batch(3, 2), _batch(4, 6))
    for rehearsed in ([], [(_batch(7, 6), _batch(7, 6))]):
        assert plausible_rows(rehearsed, wire, False, "k1", _FEATURES).shape == (3, 2)
    assert plausible_rows([(_batch(9, 2), _batch(9, 2))], wire, False, "k1", _FEATURES).shape == (9, 2)
