"""Homomorphic encryption: keys and custody, fields of slots, layouts, and both schemes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.he.bfv import PARAMETERS, Bfv
from fglaudit.he.ckks import PRODUCTS, SUMS, Ckks
from fglaudit.he.fixed_point import WIDTHS, FixedPoint, pack, per_slot, unpack
from fglaudit.he.keys import ClientKeys, Parameters, PublicContext, from_bytes, seal, to_bytes
from fglaudit.he.layout import Layout
from fglaudit.he.packed_rows import PackedRows, seal_rows
from fglaudit.sealing import sealed_tensor

tenseal = pytest.importorskip("tenseal")


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# --- keys
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("degree", "bits", "words"),
    [
        (4096, (36, 36, 38), ("109", "110", "special prime", "8192")),
        (2048, (54, 20), ("54", "74", "degree of 4096")),
        (16384, (60,) * 8, ("438", "480", "fewer")),
        (3000, (20,), ("3000", "8192")),
    ],
)
def test_parameters_below_128_bits_of_security_are_refused(
    degree: int, bits: tuple[int, ...], words: tuple[str, ...]
) -> None:
    with pytest.raises(FglauditError) as error:
        Parameters("bfv", degree, bits, 1, 1, 20)
    assert all(word in str(error.value) for word in words)


@pytest.mark.parametrize("parameters", [*PARAMETERS.values(), SUMS, PRODUCTS], ids=str)
def test_the_library_agrees_on_security_and_ciphertexts_have_the_counted_size(parameters: Parameters) -> None:
    keys = ClientKeys(parameters)  # SEAL itself refuses parameters below 128 bits
    assert sum(parameters.prime_bits) <= seal().CoeffModulus.MaxBitCount(parameters.degree, seal().SEC_LEVEL_TYPE.TC128)
    plaintext = seal().Plaintext()
    if parameters.scheme == "bfv":
        keys.public.encoder.encode(list(range(parameters.slots)), plaintext)
    else:
        keys.public.encoder.encode([0.5] * parameters.slots, 2.0**90, plaintext)
    fresh = sum(len(keys.encrypted_bytes(plaintext)) for _ in range(20)) / 20
    full = sum(len(to_bytes(keys.encrypt(plaintext))) for _ in range(20)) / 20
    assert 0.985 * parameters.fresh_bytes < fresh < 1.005 * parameters.fresh_bytes
    assert 0.985 * parameters.full_bytes < full < 1.005 * parameters.full_bytes


def test_what_the_server_holds_does_not_decrypt() -> None:
    """From bytes alone: the server's context, ciphertexts as they travel, and their sum."""
    keys, api = ClientKeys(PARAMETERS[4096]), seal()
    secret = [7] * 4096
    plaintext = api.Plaintext()
    keys.public.encoder.encode(secret, plaintext)
    shipped = [keys.public_bytes(), keys.encrypted_bytes(plaintext), keys.encrypted_bytes(plaintext)]
    assert len(shipped[0]) < 200  # no room for a key, whose coefficients alone are 4096
    server = PublicContext(shipped[0])
    total = server.ciphertext(shipped[1])
    server.evaluator.add_inplace(total, server.ciphertext(shipped[2]))
    assert keys.public.encoder.decode_uint64(keys.decrypt(total)) == [14] * 4096
    with pytest.raises(TypeError):
        api.Decryptor(server.context)
    for guess in _guessed_keys(server, shipped):
        opened = api.Plaintext()
        decryptor = api.Decryptor(server.context, guess)
        decryptor.decrypt(total, opened)
        assert decryptor.invariant_noise_budget(total) == 0
        found = server.encoder.decode_uint64(opened)
        assert sum(value == 14 for value in found) < 3
    for blob in shipped:  # nothing that was shipped is a key
        with pytest.raises((RuntimeError, ValueError, IndexError)):
            _load(api.SecretKey(), blob, server)
        with pytest.raises((RuntimeError, ValueError, TypeError)):
            tenseal.bfv_vector_from(tenseal.context_from(shipped[0]), blob).decrypt()
    held = [
        value for value in vars(server).values() if "Key" in type(value).__name__ or "Decryptor" in type(value).__name__
    ]
    assert not held


def _load(thing: object, blob: bytes, server: PublicContext) -> None:
    from_bytes(thing, blob, server.context)


def _guessed_keys(server: PublicContext, shipped: list[bytes]) -> list[object]:
    """Keys that the server can make itself."""
    api = seal()
    return [api.KeyGenerator(server.context).secret_key() for _ in range(3)]


# --- fields of a slot
# ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("signed", [False, True])
def test_packed_fields_add_up(width: int, signed: bool) -> None:
    """Totals at both ends of their range, the next fields being anything."""
    most = 2 ** (width - 1) - 1 if signed else 2**width - 1
    count = per_slot(width)
    totals = torch.randint(-most if signed else 0, most + 1, (50, count), generator=generator(width))
    totals[0], totals[1] = most, -most if signed else 0
    totals[2, ::2] = most
    share = torch.div(totals, 3, rounding_mode="floor")
    slots = pack(share, width) + pack(totals - 2 * share, width) + pack(share, width)
    assert torch.equal(unpack(slots, width, signed=signed).view(50, count), totals)


def test_fields_hold_their_bound_and_nothing_beyond_it_is_sealed() -> None:
    counts = FixedPoint.of_counts(torch.tensor([15.0, 16.0, 255.0, 256.0]), signed=False)
    assert counts.width.tolist() == [4, 8, 8, 14]
    assert FixedPoint.of_counts(torch.tensor([7.0, 8.0]), signed=True).width.tolist() == [4, 8]
    row = torch.tensor([0])
    assert counts.quantise(torch.tensor([[15.0]]), row).item() == 15
    for wrong, words in ((16.0, "0 ... 15"), (-1.0, "0 ... 15"), (0.5, "fraction"), (float("nan"), "not finite")):
        with pytest.raises(FglauditError, match=words):
            counts.quantise(torch.tensor([[wrong]]), row)
    with pytest.raises(FglauditError, match=r"row 0 must lie in -2 .* got 3"):
        FixedPoint.of_reals(torch.tensor([2.0]), torch.tensor([3]), 14, signed=True).quantise(
            torch.tensor([[3.0]]), row
        )
    with pytest.raises(FglauditError, match="raise bits"):
        FixedPoint.of_reals(torch.tensor([1.0]), torch.tensor([40]), 4, signed=False)
    with pytest.raises(FglauditError, match="scheme: ckks"):
        FixedPoint.of_counts(torch.tensor([2.0**57]), signed=False)


@pytest.mark.parametrize("bits", [8, 14, 18, 28, 56])
@pytest.mark.parametrize("signed", [False, True])
def test_fixed_point_totals_stay_within_their_field(bits: int, signed: bool) -> None:
    """The worst case: every share of the bound is rounded up, and float32 put it a little above its bound."""
    parts = 20
    for largest in (0.013, 1.0, 77.7):
        code = FixedPoint.of_reals(torch.tensor([largest]), torch.tensor([parts]), bits, signed=signed)
        share = largest / parts * (1 + 5e-7)
        half_up = (torch.floor(torch.tensor(share) * code.scale) + 0.5 + 1e-9) / code.scale
        values = torch.full((1, 1), min(float(half_up), share), dtype=torch.double)
        total = parts * code.quantise(values, torch.tensor([0]))
        most = 2 ** (bits - 1) - 1 if signed else 2**bits - 1
        assert int(total) <= most
        if signed:
            assert int(parts * code.quantise(-values, torch.tensor([0]))) >= -most


# --- layouts
# ------------------------------------------------------------------------------------------------------------------


def test_a_ciphertext_has_rows_of_one_audience_and_no_two_rows_overlap() -> None:
    rows = torch.tensor([0, 1, 2, 3, 4, 0, 2, 4])
    receivers = torch.tensor([0, 0, 0, 1, 1, 1, 1, 2])
    width = torch.tensor([4, 8, 4, 4, 8])
    layout = Layout.of(rows, receivers, width, columns=100, slots=16)
    audience: dict[int, set[int]] = {}
    for row, receiver in zip(rows.tolist(), receivers.tolist(), strict=True):
        entry = layout.entries_for(torch.tensor([row]), receiver)
        assert int(layout.entry_row[entry]) == row
        for block in layout.blocks_of(entry).tolist():
            audience.setdefault(block, set()).add(row)
            readers = {r for x, r in zip(rows.tolist(), receivers.tolist(), strict=True) if x == row}
            assert receiver in readers
    for members in audience.values():  # whoever gets a ciphertext for one of its rows is to get all of them
        shared = [set(receivers[rows == row].tolist()) for row in members]
        blocks_receivers = set.intersection(*shared)
        assert blocks_receivers
    taken: set[tuple[int, int]] = set()
    for number, (group, start) in enumerate(zip(layout.entry_group.tolist(), layout.entry_start.tolist(), strict=True)):
        places = {(group, start + k) for k in range(100)}
        assert not places & taken, number
        taken |= places
    with pytest.raises(FglauditError, match="row 3 was not made for client 0"):
        layout.entries_for(torch.tensor([3]), 0)


@pytest.mark.parametrize("apart", [False, True])
def test_ciphertexts_of_one_receiver_where_that_is_asked_for(apart: bool) -> None:
    rows, receivers = torch.arange(20).repeat(3), torch.arange(3).repeat_interleave(20)
    layout = Layout.of(rows, receivers, torch.full((20,), 4), columns=100, slots=16, apart=apart)
    assert layout.receivers_of_blocks().tolist() == ([1] * 27 if apart else [3] * 9)
    for receiver in range(3):
        layout.entries_for(torch.arange(20), receiver)


# --- both schemes
# -------------------------------------------------------------------------------------------------------------


def _packed(codec: Bfv | Ckks, width: Tensor, values: Tensor, senders: int, *, padded: bool = False) -> PackedRows:
    """Seal ``values`` [senders, n, D]; row i is for client i % 2."""
    count = values.shape[1]
    rows = torch.arange(count)
    layout = Layout.of(rows, rows % 2, width, values.shape[2], codec.parameters.slots)
    splits = torch.arange(senders + 1) * count
    summands = torch.full((count,), senders)
    return seal_rows(codec, layout, summands, rows.repeat(senders), values.flatten(0, 1), splits, padded=padded)


def _summed(packed: PackedRows, count: int, senders: int) -> Tensor:
    total = torch.index_add(torch.zeros(count, packed.shape[1]), 0, packed.rows, sealed_tensor(packed))
    order = torch.cat([torch.arange(0, count, 2), torch.arange(1, count, 2)])
    picked = total[order].sealed  # type: ignore[attr-defined]
    even = (count + 1) // 2
    read = picked.addressed(torch.tensor([0, even, count]), torch.tensor([0, 1])).opened()
    result = torch.empty_like(read)
    result[order] = read
    return result


@pytest.mark.parametrize("senders", [2, 15])
def test_counts_are_exact_at_their_bound(senders: int) -> None:
    """All fields at the largest total that their width is made for, beside random ones."""
    bound = torch.tensor([15.0, 15.0, 255.0, 30.0, 16383.0])
    code = FixedPoint.of_counts(bound, signed=False)
    shares = torch.div(bound, senders, rounding_mode="floor").repeat(senders, 1)
    shares[0] += bound - shares.sum(0)
    values = shares.unsqueeze(2) * torch.randint(0, 2, (1, 5, 3000), generator=generator(1))
    values[:, :, 0] = shares
    codec = Bfv(4096, code)
    codec.check_budget(senders)
    found = _summed(_packed(codec, code.width, values, senders), 5, senders)
    assert torch.equal(found, values.double().sum(0)) and torch.equal(found[:, 0], bound.double())


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_fixed_point_sums_equal_the_sum_of_what_was_rounded(signed: bool, padded: bool) -> None:
    values = torch.rand(4, 6, 5000, generator=generator(2)) - (0.5 if signed else 0)
    code = FixedPoint.of_reals(values.abs().sum(0).amax(1).double(), torch.full((6,), 4), 14, signed=signed)
    found = _summed(_packed(Bfv(4096, code), code.width, values, 4, padded=padded), 6, 4)
    rows = torch.arange(6)
    reference = code.restore(torch.stack([code.quantise(part, rows) for part in values]).sum(0), rows)
    assert torch.equal(found, reference)
    assert float((found - values.double().sum(0)).abs().max()) <= 4 * 0.5 / float(code.scale.min())


def test_ckks_sums_are_within_1e_5() -> None:
    values = 100 * torch.randn(20, 2, 5000, generator=generator(3), dtype=torch.double)
    codec = Ckks(SUMS, largest=1e4, weight=20, opened=2**22)
    error = (_summed(_packed(codec, torch.zeros(2, dtype=torch.long), values, 20), 2, 20) - values.sum(0)).abs()
    assert float(error.max()) <= 1e-5
    assert 0.9 < float(error.square().mean().sqrt()) / codec.flooding < 1.1  # what is opened has been flooded


def test_ckks_products_are_within_1e_5() -> None:
    values = torch.randn(30, 4096, generator=generator(4), dtype=torch.double)
    weights = torch.randn(30, generator=generator(5), dtype=torch.double)
    codec = Ckks(PRODUCTS, largest=100, weight=float(weights.abs().sum()), opened=2**22)
    found = codec.decrypt([codec.weighted_sum(codec.encrypt(values), weights.tolist())])[0]
    assert float((found - weights @ values).abs().max()) <= 1e-5
    with pytest.raises(FglauditError, match="features outside the range of ckks"):
        Ckks(PRODUCTS, largest=1e30, weight=1.0, opened=1)


def test_flooding_covers_the_noise_of_ciphertexts() -> None:
    """Its standard deviation is 2^39 sqrt(m) times a bound on the noise, of which the measured noise must not be
    larger. Noise below the precision of float64 is measured where it is the message: in a ciphertext of zeros."""
    codec = Ckks(SUMS, largest=1.0, weight=1.0, opened=1)
    zeros = torch.zeros(1, 4096, dtype=torch.double)
    ciphertext = codec.encrypt(zeros)[0]
    noise = max(abs(v) for v in codec.keys.public.encoder.decode_double(codec.keys.decrypt(ciphertext)))
    assert 0 < noise <= codec.flooding / 2.0**39 < 10 * noise
    for _ in range(99):
        codec.server.evaluator.add_inplace(ciphertext, codec.encrypt(zeros)[0])
    summed = max(abs(v) for v in codec.keys.public.encoder.decode_double(codec.keys.decrypt(ciphertext)))
    assert summed <= 100 * codec.flooding / 2.0**39


def test_more_noise_than_budget_is_refused_before_the_run() -> None:
    code = FixedPoint.of_counts(torch.tensor([15.0]), signed=False)
    Bfv(4096, code).check_budget(200)
    with pytest.raises(FglauditError, match=r"more noise than the budget .* degree: 8192"):
        Bfv(4096, code).check_budget(5000)
    Bfv(8192, code).check_budget(5000)


def test_sums_that_packed_ciphertexts_cannot_do_are_refused() -> None:
    code = FixedPoint.of_counts(torch.full((3,), 15.0), signed=False)
    packed = _packed(Bfv(4096, code), code.width, torch.ones(2, 3, 10), 2)
    sealed = sealed_tensor(packed)
    with pytest.raises(FglauditError, match=r"weights are 0 or 1; got 0\.5"):
        sealed * 0.5
    with pytest.raises(FglauditError, match="rows of different nodes"):
        sealed.sum(0)
    with pytest.raises(FglauditError, match="added whole"):
        torch.index_add(torch.zeros(3, 10), 0, packed.rows[:4], sealed[:4])
    total = torch.index_add(torch.zeros(3, 10), 0, packed.rows, sealed)
    with pytest.raises(FglauditError, match="bounded by 2"):
        total + torch.index_add(torch.zeros(3, 10), 0, packed.rows, sealed)
    with pytest.raises(FglauditError, match="row 1 was not made for client 0"):
        total[1:2].sealed.addressed(torch.tensor([0, 1]), torch.tensor([0]))  # type: ignore[attr-defined]
