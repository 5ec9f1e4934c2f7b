"""Keys and masks that others know, or that something shown tells: planted, none is verified."""

from __future__ import annotations

import contextlib
import fractions
import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from bench.redteam import secret_faults
from bench.redteam.cases import CASES
from bench.redteam.measure import judged
from fglaudit.empirical import judge as judging
from fglaudit.empirical.fields.examined import examined
from fglaudit.empirical.sealed.other_keys import other_keys_audits
from fglaudit.empirical.sealed.replay import sealed_replay
from fglaudit.guarantees import Word
from fglaudit.testing import CPU

BY_NAME = {case.name: case for case in CASES}
WHY = {
    "KeyInOrder bfv": "beside ciphertexts is another one under other keys",
    "KeyInFacts bfv": "what the defense states is something else when it is bound anew",
    "KeyInBytes bfv": "beside ciphertexts is another one under other keys",
    "KeyInFunction bfv": "beside ciphertexts is another one under other keys",
    "KeyAtServer bfv": "a PublicContext has decryptor",
    "OneKeyForAllRuns bfv": "the defense bound anew has the same key",
    "HardlyFlooded ckks": "hides its key from",
    "FewMasks masked-sums": "of the author's own making",
    "FewSeedsLater masked-sums": "not those that this tool drew",
    "OpenedByServer bfv": "the server opened what is said to be sealed",
    "FewSeeds masked-sums": "not those that this tool drew",
    "EqualMessagesOnce bfv": "equal plaintexts give equal bytes, the same message twice",
    "ZerosOnce bfv": "messages of zeros give equal bytes",
    "CopyInScheme ckks-models": "what lies beside ciphertexts, tells",
    "CopyBeside bfv": "what lies beside ciphertexts, tells",
    "PublicMasks masked-sums": "equal plaintexts give equal bytes, under other keys",
    "MasksAgain masked-sums": "equal plaintexts give equal bytes, the same message twice",
    "LastColumnBare masked-sums": "masks are not random",
    "SomeNumbersBare masked-sums": "numbers are zero",
    "SharesOfOne masked-sums": "the shares of 1 of 3 clients give the keys of one, and 2 are stated",
    "LowThreshold masked-sums": "the shares of 1 of 3 clients give the keys of one, and 2 are stated",
    "KeyInModule bfv": "where keys outlive their session",
    "KeyInOtherModule bfv": "in the module fractions, where keys outlive their session",
    "KeyInClass bfv": "where keys outlive their session",
    "FactorTells masked-sums": "what lies beside ciphertexts, tells",
}


@pytest.fixture(autouse=True)
def few_replacements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaced records have tests of their own."""
    monkeypatch.setattr(judging, "examined", lambda *a, **k: examined(*a, **k, quick=True))


@pytest.mark.parametrize("name", [" ".join(each) for each in secret_faults.TOLD])
def test_what_messages_or_shares_show_is_refuted(name: str) -> None:
    result = judged(BY_NAME[name], seed=0)
    assert result.outcome is Word.REFUTED
    assert WHY[name] in result.detail


@pytest.mark.parametrize("name", [" ".join(each) for each in secret_faults.KNOWN])
def test_secrets_that_are_not_the_tools_own_are_claimed(name: str) -> None:
    result = judged(BY_NAME[name], seed=0)
    assert result.outcome is Word.CLAIMED
    assert WHY[name] in result.detail


@pytest.mark.parametrize("name", [" ".join(each) for each in secret_faults.HONEST])
def test_honest_seals_of_others_are_verified(name: str) -> None:
    result = judged(BY_NAME[f"honest {name}"], seed=0)
    assert result.outcome is Word.VERIFIED, result.detail


@contextlib.contextmanager
def written_by_a_thread() -> Iterator[None]:
    stop = threading.Event()

    def beat() -> None:
        while not stop.is_set():
            fractions.ticks = object()  # type: ignore[attr-defined]
            time.sleep(0.01)

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextlib.contextmanager
def written_at_collections() -> Iterator[None]:
    def collected(phase: str, info: object) -> None:
        fractions.ticks = object()  # type: ignore[attr-defined]

    gc.callbacks.append(collected)
    try:
        yield
    finally:
        gc.callbacks.remove(collected)


@pytest.mark.parametrize("others", [written_by_a_thread, written_at_collections])
def test_what_others_write_is_nobodys_key(others: Callable[[], AbstractContextManager[None]]) -> None:
    protocol, graph, defense = BY_NAME["honest bfv"].build()
    context = protocol.context(graph)
    trace = sealed_replay(protocol, graph, defense, context, seed=0, device=CPU)
    thresholds = gc.get_threshold()
    gc.set_threshold(1)
    try:
        with others():
            assert other_keys_audits(trace, defense, context, 0) == ()
    finally:
        gc.set_threshold(*thresholds)
        del fractions.ticks  # type: ignore[attr-defined]
