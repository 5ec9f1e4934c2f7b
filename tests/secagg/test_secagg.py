"""Secure aggregation's parts: fixed point, shares, masks, and what a server that holds all it may hold can do with
them."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest
import sympy  # type: ignore[import-untyped]
import torch
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.secagg.aggregation import Aggregation
from fglaudit.secagg.fixed_point import WORDS, ModularFixedPoint
from fglaudit.secagg.masks import add_mask, add_stream, agreed
from fglaudit.secagg.member import Member
from fglaudit.secagg.rows import MaskedRows
from fglaudit.secagg.shares import PRIME, join, split

SIZE, THRESHOLD = 5, 4


def random_words(*shape: int, bits: int = 32, seed: int = 0) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    top = 2 ** (bits - 1)
    return torch.randint(-top, top - 1, shape, generator=rng).to(WORDS[bits])


def looks_random(words: Tensor) -> bool:
    """Whether the bytes of ``words`` pass a chi-squared test of uniformity at 1e-9."""
    counts = torch.bincount(words.contiguous().view(torch.uint8).flatten().int(), minlength=256).double()
    expected = counts.sum() / 256
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return statistic < 255 + 6.5 * math.sqrt(2 * 255)


def masked(aggregation: Aggregation, inputs: Tensor) -> Tensor:
    """The words [n, ...] as the members send them."""
    words = inputs.clone()
    for number in range(len(inputs)):
        aggregation.mask(number, words[number], 0)
    return words


# Fixed point


@given(
    largest=st.floats(1e-3, 1e6),
    summands=st.integers(1, 5000),
    bits=st.sampled_from([32, 64]),
    sign=st.sampled_from([-1, 1]),
)
@settings(max_examples=60, deadline=None)
def test_worst_case_sums_do_not_overflow(largest: float, summands: int, bits: int, sign: int) -> None:
    code = ModularFixedPoint.of(largest, summands, bits)
    value = torch.tensor([sign * largest], dtype=torch.float64)
    word = int(code.encode(value))
    assert abs(word) * summands < 2 ** (bits - 1)
    assert abs(word - Fraction(float(value)) * Fraction(2) ** code.fraction) <= Fraction(1, 2)
    assert code.rounding(summands) == summands * 2.0**-code.fraction / 2
    twice = Fraction(code.largest) * Fraction(2) ** (code.fraction + 1) + Fraction(1, 2)
    assert code.fraction == bits or twice * summands > 2 ** (bits - 1) - 1 - summands  # no room is wasted
    total = int(torch.full((summands,), word, dtype=WORDS[bits]).sum(0, dtype=WORDS[bits]))
    assert total == word * summands
    decoded = float(code.decode(torch.tensor([total])))
    assert decoded == pytest.approx(summands * float(value), rel=1e-12, abs=code.rounding(summands))


def test_whole_numbers_are_exact_up_to_the_last_one() -> None:
    code = ModularFixedPoint.of(100.0, 10, 32, integers=True)
    assert int(code.decode(code.encode(torch.full((10, 1), 100.0)).sum(0, dtype=torch.int32))) == 1000
    assert code.rounding(10) == 0
    ModularFixedPoint.of(float((2**31 - 1) // 10), 10, 32, integers=True)
    with pytest.raises(FglauditError, match="bits: 64"):
        ModularFixedPoint.of(float((2**31 - 1) // 10 + 1), 10, 32, integers=True)
    with pytest.raises(FglauditError, match="whole numbers"):
        code.encode(torch.tensor([0.5]))


@pytest.mark.parametrize("value", [1.01, -1.01, math.nan, math.inf, -math.inf])
def test_values_out_of_range_are_an_error(value: float) -> None:
    with pytest.raises(FglauditError, match="range"):
        ModularFixedPoint.of(1.0, 10, 32).encode(torch.tensor([0.0, value]))


# Shares


def test_every_set_of_threshold_holders_puts_the_secrets_together_and_smaller_ones_do_not() -> None:
    assert sympy.isprime(PRIME) and PRIME > 2**256
    secrets = [0, 1, 2**256 - 1, 123456789 << 200]
    shares = split(secrets, 3, 5)
    for holders in itertools.combinations(range(5), 3):
        assert join({h: shares[h] for h in holders}) == secrets
    assert join({h: shares[h] for h in range(5)}) == secrets
    for pair in itertools.combinations(range(5), 2):
        assert not set(join({h: shares[h] for h in pair})) & set(secrets)


def test_too_few_shares_fit_every_secret() -> None:
    """Two points and any value at 0 lie on one parabola: each secret is as likely as before."""
    shares = split([42], 3, 5)
    first, second = shares[0][0], shares[1][0]
    for guess in (0, 42, 2**255):
        third = guess - 3 * first + 3 * second  # the parabola through (0, guess), (1, first), (2, second), at 3
        assert join({0: [first], 1: [second], 2: [third % PRIME]}) == [guess]


# Masks and drop-outs


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("dropped", [(), (0,), (4,), (2,)])
def test_sums_of_survivors_are_exact(bits: int, dropped: tuple[int, ...]) -> None:
    inputs = random_words(SIZE, 7, 3, bits=bits)
    survivors = [n for n in range(SIZE) if n not in dropped]
    aggregation = Aggregation(SIZE, survivors, THRESHOLD)
    sent = masked(aggregation, inputs)[survivors]
    aggregation.reveal()
    total = sent.sum(0, dtype=inputs.dtype) - aggregation.remainder((7, 3), inputs.dtype, 0)
    assert torch.equal(total, inputs[survivors].sum(0, dtype=inputs.dtype))


def test_both_ends_agree_on_a_mask_and_long_masks_are_those_of_the_cipher() -> None:
    a, b = X25519PrivateKey.generate(), X25519PrivateKey.generate()
    seeds = [agreed(k, o.public_key().public_bytes_raw(), b"mask") for k, o in ((a, b), (b, a))]
    assert seeds[0] == seeds[1] != agreed(a, b.public_key().public_bytes_raw(), b"shares")
    long, short = torch.zeros(200_001, dtype=torch.int32), torch.zeros(7, dtype=torch.int32)
    add_stream(long, seeds[0], 0, 1)
    add_stream(short, seeds[0], 0, 1)
    assert torch.equal(long[:7], short) and looks_random(long)
    assert len(torch.unique(long)) > 199_900  # parts of a long mask do not repeat
    other = torch.zeros(7, dtype=torch.int32)
    add_stream(other, seeds[0], 1, 1)
    assert not bool((other == short).any())
    add_stream(long, seeds[0], 0, -1)
    assert not bool(long.any())


def test_too_many_drop_outs_and_lone_clients_are_refused() -> None:
    with pytest.raises(FglauditError, match=r"needs 4 of 5 clients to the end; 2 dropped out"):
        Aggregation(SIZE, [0, 1, 2], THRESHOLD)
    with pytest.raises(FglauditError, match="at least two"):
        Aggregation(1, [0], 1)
    with pytest.raises(FglauditError, match="needs 2 of 3"):
        Aggregation(3, [1], 1)


# The server


def attempts(aggregation: Aggregation, sent: Tensor, target: int) -> list[Tensor]:
    """Everything a server can subtract from one member's masked words with what it holds: each revealed stream, all of
    them, masks agreed with keys of its own, and masks from keys of members that dropped out."""
    state, words = aggregation.server, sent[target]
    publics = {number: keys.masks for number, keys in state.publics.items()}
    seeds = list(state.seeds.values())
    seeds += [agreed(key, publics[target], b"mask") for key in state.mask_keys.values()]
    own = X25519PrivateKey.generate()
    seeds += [agreed(own, public, b"mask") for public in publics.values()]
    results = [words.clone()]
    for signs in itertools.product((-1, 0, 1), repeat=2):
        result = words.clone()
        for seed in seeds:
            add_stream(result, seed, 0, signs[0])
        if target in state.seeds:
            add_mask(result, 0, target, state.seeds[target], own, publics, signs[1])
        results.append(result)
    for seed in seeds:
        result = words.clone()
        add_stream(result, seed, 0, -1)
        results.append(result)
    rest = sent[[n for n in aggregation.survivors if n != target]].sum(0, dtype=words.dtype)
    results += [words - rest, words + rest]
    return results


@pytest.mark.parametrize("dropped", [(), (3,)])
def test_a_server_with_all_it_holds_sees_only_noise_of_one_member(dropped: tuple[int, ...]) -> None:
    inputs = torch.zeros(SIZE, 4096, dtype=torch.int32)  # nothing is easier to recognise than zeros
    survivors = [n for n in range(SIZE) if n not in dropped]
    aggregation = Aggregation(SIZE, survivors, THRESHOLD)
    sent = masked(aggregation, inputs)
    aggregation.reveal()
    assert set(aggregation.server.seeds) == set(survivors) and set(aggregation.server.mask_keys) == set(dropped)
    for target in range(SIZE):  # the message of a member that dropped out may arrive late
        assert all(looks_random(result) for result in attempts(aggregation, sent, target))
    assert not looks_random(inputs[0])


def test_a_server_cannot_read_shares_on_the_way_or_pass_its_own_off() -> None:
    aggregation = Aggregation(SIZE, range(SIZE), THRESHOLD)
    state, own = aggregation.server, X25519PrivateKey.generate()
    assert set(state.routed) == set(itertools.permutations(range(SIZE), 2))
    for (sender, receiver), sealed in state.routed.items():
        for public in (state.publics[sender], state.publics[receiver]):
            key = ChaCha20Poly1305(agreed(own, public.shares, b"shares"))
            with pytest.raises(InvalidTag):
                key.decrypt(sender.to_bytes(12, "big"), sealed, sender.to_bytes(8, "big") + receiver.to_bytes(8, "big"))
    with pytest.raises(InvalidTag):  # swapped on the way
        aggregation.members[1].receive(0, state.routed[2, 1])


def test_shares_are_revealed_once() -> None:
    member = Member(0)
    publics = {0: member.publics(), 1: Member(1).publics()}
    member.share(publics, 2)
    member.reveal(frozenset({0, 1}))
    with pytest.raises(FglauditError, match="once"):
        member.reveal(frozenset({1}))


def test_threshold_members_and_the_server_open_every_message_and_fewer_do_not() -> None:
    inputs = random_words(SIZE, 64, seed=3)
    aggregation = Aggregation(SIZE, range(SIZE), THRESHOLD)
    sent = masked(aggregation, inputs)
    for number in range(SIZE):
        aggregation.expose(number, sent[number], 0, [0, 1, 3, 4])
    assert torch.equal(sent, inputs)
    sent = masked(aggregation, inputs)
    aggregation.expose(1, sent[1], 0, [0, 2, 3])
    assert not bool((sent[1] == inputs[1]).any())


# Rows


def test_rows_know_when_masks_cancel() -> None:
    rows = MaskedRows(
        torch.tensor([[1], [2], [4], [8]], dtype=torch.int32),
        1,
        0,
        torch.tensor([0, 1, 0, 1]),
        torch.eye(2, dtype=torch.int32).repeat_interleave(2, 0),
        torch.ones(4, dtype=torch.float64),
    )

    def combine(weights: list[list[float]]) -> MaskedRows:
        result = rows.combine(torch.tensor(weights, dtype=torch.float64).to_sparse_coo().coalesce())  # type: ignore[no-untyped-call]
        assert isinstance(result, MaskedRows)
        return result

    mean = combine([[0.5, 0, 0.5, 0], [0, 0, 0, 0], [0, 3, 0, 3]])
    assert mean.words.flatten().tolist() == [5, 0, 10] and mean.factor.tolist() == [0.5, 1, 3]
    assert mean.slot.tolist() == [0, -1, 1] and mean.parts.tolist() == [[1, 1], [0, 0], [1, 1]]
    with pytest.raises(FglauditError, match="different weights"):
        combine([[0.5, 0, 0.25, 0]])
    with pytest.raises(FglauditError, match="different nodes"):
        combine([[1, 1, 0, 0]])
