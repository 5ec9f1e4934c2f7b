"""What an attacker may do with the public defense: bind it afresh, on rows and messages of its own."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from recordings import obfuscated, recorded

from fglaudit.errors import FglauditError
from fglaudit.interfaces import Defense
from fglaudit.payloads import SERVER, Latents, MessageBatch, ModelUpdate, NeighborSums
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.recording import Recording
from fglaudit.registry import build
from fglaudit.rng import derive
from fglaudit.testing import CPU, Run, example_graph, record
from fglaudit.view import Observer, PublicFacts, View
from fglaudit.wire.rehearsal import rehearsal

SERVER_VIEW = Observer(parties=(SERVER,))


def run_under(defense: Defense) -> Run:
    """Record FedGCN's first messages."""
    return record(FedGCN(hops=1, rounds=1), defense=defense)


def uploads(view: View) -> MessageBatch:
    """Return the first batch that clients sent."""
    return next(b for b in view.messages.of(NeighborSums) if bool((b.senders != SERVER).all()))


def sums(batch: MessageBatch) -> torch.Tensor:
    """Return the rows of a batch of sums."""
    assert isinstance(batch.payload, NeighborSums)
    return batch.payload.sums


def released(public: PublicFacts, batch: MessageBatch, seed: int) -> torch.Tensor:
    """Return what the public defense makes of a batch."""
    assert public.release is not None
    return sums(public.release(example_graph(), [batch], rng=derive(seed, "attacker")).batches[0])


def test_code_and_constants_are_public() -> None:
    """A fixed map of made-up rows is the map of the run: both are known exactly."""
    view = run_under(obfuscated("rotation")).view(SERVER_VIEW)
    plain = uploads(run_under(build("defense", "none", {})).view(SERVER_VIEW))
    assert torch.allclose(released(view.public, plain, 0), sums(uploads(view)), atol=1e-6)
    assert torch.equal(released(view.public, plain, 0), released(view.public, plain, 1))


def test_secrets_of_the_run_are_out_of_reach() -> None:
    """What a run draws is drawn afresh from the attacker's generator, never taken from the live session."""
    view = run_under(obfuscated("rotation", secret=True)).view(SERVER_VIEW)
    plain = uploads(run_under(build("defense", "none", {})).view(SERVER_VIEW))
    seen = sums(uploads(view))
    assert not torch.allclose(released(view.public, plain, 0), seen, atol=1e-2)
    assert not torch.allclose(released(view.public, plain, 0), released(view.public, plain, 1), atol=1e-2)
    assert torch.equal(released(view.public, plain, 0), released(view.public, plain, 0))


def test_what_no_fact_explains_is_named() -> None:
    """The attacker may compare facts with what is done, as the channel does; the given messages are left alone."""
    view = run_under(obfuscated("signs")).view(SERVER_VIEW)
    batch = uploads(view)
    before = sums(batch).clone()
    assert view.public.release is not None
    made = view.public.release(example_graph(), [batch], rng=derive(0, "attacker"))
    assert "NeighborSums" in str([u.target for u in made.unstated]) and view.public.hooks == ("release",)
    assert torch.equal(sums(batch), before)


def test_training_and_rehearsals_are_defended_on_request() -> None:
    view = run_under(obfuscated("signs")).view(SERVER_VIEW)
    graph = example_graph(seed=3)
    assert view.public.fit is not None and view.public.rehearse is not None
    plain, hidden = (
        view.public.fit(graph, derive(0, "fit"), CPU, **({"defended": True} if defended else {}))
        for defended in (False, True)
    )
    assert any(not torch.equal(plain.weights[name], hidden.weights[name]) for name in plain.weights)
    wire = Observer(wire=True)
    messages = [
        view.public.rehearse(graph, wire, [NeighborSums], rounds=0, rng=derive(0, "r"), device=CPU, defended=defended)
        for defended in (False, True)
    ]
    first, second = (sums(next(iter(m.of(NeighborSums)))) for m, _ in messages)
    assert torch.allclose(first.abs(), second.abs()) and not torch.equal(first, second)


def test_a_saved_recording_has_the_same_public_defense(tmp_path: Path) -> None:
    run = run_under(obfuscated("rotation", secret=True))
    run.recording.save(tmp_path)
    saved, live = Recording.load(tmp_path, trust_plugins=True).public, run.recording.public
    batch = uploads(run.view(SERVER_VIEW))
    assert saved.hooks == live.hooks == ("release",)
    assert torch.equal(released(saved, batch, 0), released(live, batch, 0))


def test_without_the_defense_nothing_is_pretended() -> None:
    run = run_under(obfuscated("signs"))
    public = dataclasses.replace(run.recording.public, **rehearsal(run.protocol))
    assert public.fit is not None
    with pytest.raises(FglauditError, match="needs the public defense"):
        public.fit(example_graph(), derive(0, "fit"), CPU, defended=True)


def test_a_rehearsal_goes_on_with_the_models_that_the_run_received() -> None:
    """With the run's first model and the run's rows, a rehearsal of other randomness sends the run's latents."""
    run = recorded("cnfgnn-sgd")
    view = run.view(SERVER_VIEW)
    assert view.public.rehearse is not None
    seen = next(view.messages.of(Latents))
    latents = []
    for received in ((), tuple(view.messages.of(ModelUpdate))):
        messages, _ = view.public.rehearse(
            run.graph, view.observer, [Latents], rounds=1, received=received, rng=derive(1, "attacker"), device=CPU
        )
        latents.append(next(messages.of(Latents)).payload.tensors()["values"])
    truth = seen.payload.tensors()["values"]
    assert torch.equal(latents[1], truth) and not torch.allclose(latents[0], truth)
