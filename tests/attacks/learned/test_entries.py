"""Fields as rows of entries."""

import pytest
import torch

from fglaudit.attacks.learned.entries import entries, mapped, with_rows
from fglaudit.payloads import SERVER, MaskedMatrices, MessageBatch

_FEATURES = 5


def _batch(count: int) -> MessageBatch:
    made = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=made)

    payload = MaskedMatrices(
        torch.arange(count),
        normal(count, _FEATURES, 4, 4),
        normal(count, _FEATURES, 4, 4),
        normal(count, 4),
        normal(count, 4, _FEATURES),
    )
    return MessageBatch(0, torch.full((count,), SERVER), torch.zeros(count, dtype=torch.long), payload)


@pytest.mark.parametrize("most", [1, 13, 40, 10**6])
@pytest.mark.parametrize("name", ["m1", "k1", "k2"])
def test_a_map_of_rows_is_the_same_however_many_are_taken_at_once(name: str, most: int) -> None:
    batch = _batch(3)
    width = entries(batch, name, _FEATURES).rows.shape[1]
    turn = torch.randn(width, width, generator=torch.Generator().manual_seed(1), dtype=torch.double)
    value = batch.payload.tensors()[name]
    at_once = with_rows(batch, {name: entries(batch, name, _FEATURES).rows @ turn}, _FEATURES).payload.tensors()[name]
    assert not torch.equal(at_once, value)
    assert torch.allclose(mapped(value, _FEATURES, lambda rows: rows @ turn, most), at_once, atol=1e-6)


def test_a_field_without_messages_is_left() -> None:
    value = torch.empty(0, _FEATURES, 4, 4)
    assert mapped(value, _FEATURES, torch.neg, 100).shape == value.shape
