"""A session is asked again where anything of it is of somebody else, and bytes that it counts say nothing of rows."""

from __future__ import annotations

import dataclasses
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from bench.redteam.borrowed_faults import BytesOfNobody, BytesTell, PartsOfOthers
from bench.redteam.cases import FAMILIES, citations
from bench.redteam.planted import Broken
from fglaudit.defenses.noise.noisy_messages import NoiseSession
from fglaudit.facts import GRADIENTS, Additive, Clipped, Fact, Sampled
from fglaudit.interfaces import DefenseSession
from fglaudit.rng import derive
from fglaudit.testing import CPU
from fglaudit.wire.channel import RecordingChannel
from fglaudit.wire.observing.foreign import is_foreign
from fglaudit.wire.observing.held_objects import known_class


class _Noise:
    __module__ = "builtins"


def own() -> NoiseSession:
    protocol, defense = FAMILIES["sums"].build()
    session = defense.bind(protocol.context(citations()))
    assert isinstance(session, NoiseSession)
    return session


def test_a_session_of_this_package_is_its_own() -> None:
    assert not is_foreign(own())


def test_a_mechanism_of_somebody_else_makes_it_foreign() -> None:
    PartsOfOthers.begin()
    session = PartsOfOthers(own())
    assert type(session) is type(own()) and is_foreign(session)


@pytest.mark.parametrize(
    "held",
    [
        _Noise(),
        lambda values: values,
        partial(max, _Noise()),
        np.array([_Noise(), None], dtype=object),
        dataclasses.make_dataclass("Own", ["part"])([{"a": (_Noise(),)}]),
    ],
)
def test_so_does_whatever_it_holds_wherever_that_lies(held: object) -> None:
    session = own()
    vars(session)["held"] = held
    assert is_foreign(session)


@pytest.mark.parametrize(("kind", "told"), [(BytesTell, True), (BytesOfNobody, False)])
def test_bytes_beside_messages_must_not_follow_from_rows(kind: type[Broken], told: bool) -> None:
    protocol, _ = FAMILIES["sums"].build()
    graph = citations()
    channel = RecordingChannel(kind(DefenseSession()), graph.num_clients, derive(0, "defense"))
    protocol.train(graph, channel, rng=derive(0, "train"), device=torch.device(CPU))
    assert any("bytes beside messages" in change.why for change in channel.unstated) is told


class _Sampled(DefenseSession):
    """Gaussian noise on a sample of gradients; but for every second weight a hundredth of it, if not honest."""

    def __init__(self, honest: bool) -> None:
        self.honest = honest

    def updates(self) -> bool:
        return True

    def facts(self) -> tuple[Fact, ...]:
        return (Clipped(GRADIENTS, "L2", 1.0, "example"), Sampled(GRADIENTS, 0.5), Additive(GRADIENTS, "gaussian", 1.0))

    def local_update(self, gradients: Tensor, rng: torch.Generator) -> Tensor:
        drawn = torch.rand(gradients.shape[:2], generator=rng) < 0.5
        noise = torch.randn(gradients.shape[1:], generator=rng)
        if not self.honest:
            noise[:, 1::2] *= 0.01
        return (gradients * drawn[..., None]).sum(0) + noise


@pytest.mark.parametrize(("losses", "honest", "told"), [(4, True, ""), (4, False, "noise"), (600, True, "not seen")])
def test_noise_on_sums_of_samples_is_looked_at_where_nobody_expects_it(
    losses: int, honest: bool, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RecordingChannel, "many_draws", False)
    channel = RecordingChannel(_Sampled(honest), 2, derive(0, "defense"))
    update = channel.local_update()
    assert update is not None
    update(0.01 * torch.rand(losses, 2, 1024, generator=derive(0, "gradients")))
    assert [change.why for change in channel.unstated if told not in change.why] == []
    assert bool(channel.unstated) is bool(told)


def test_a_cipher_of_a_known_library_is_nobody_s_code() -> None:
    """Its class lies in a part of a compiled module, which is no module of its own."""
    aead = pytest.importorskip("cryptography.hazmat.primitives.ciphers.aead")
    cipher = aead.ChaCha20Poly1305(bytes(32))
    assert not known_class(type(cipher)) and known_class(type(cipher), ("cryptography",))
    says_so = type("ChaCha20Poly1305", (), {"__module__": type(cipher).__module__})
    assert not known_class(says_so, ("cryptography",))
