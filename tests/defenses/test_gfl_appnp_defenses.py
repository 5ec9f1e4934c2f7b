"""Noise, clipping and quantisation of what GFL-APPNP's clients send."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from node_graphs import graph
from stated_facts import stated

from fglaudit.attacks.jacobians.jacobian_reading import JacobianReading
from fglaudit.attacks.jacobians.mask_flip import MaskFlip
from fglaudit.context import Context
from fglaudit.defenses.noise.clipping import Clipping
from fglaudit.defenses.noise.gaussian import Gaussian
from fglaudit.defenses.noise.joint_noise import JointNoise
from fglaudit.defenses.noise.local_features import LocalFeatures
from fglaudit.defenses.noise.quantisation import Quantisation
from fglaudit.errors import FglauditError
from fglaudit.facts import Additive
from fglaudit.interfaces import Attack, Defense
from fglaudit.payloads import SERVER, HiddenRepresentations, Jacobians, MessageBatch, ModelUpdate
from fglaudit.privacy.accounting import Relation, compose, epsilon_of, event_of
from fglaudit.protocols.gfl_appnp.gfl_appnp import GFLAPPNP, Variant
from fglaudit.rng import derive
from fglaudit.testing import check_attack, check_defense, record
from fglaudit.view import Observer

PROTOCOL = GFLAPPNP(hidden=8, rounds=3, local_steps=2)


def context(protocol: GFLAPPNP = PROTOCOL) -> Context:
    return Context("gfl-appnp", protocol.rounds, 30, 12, protocol.releases(graph()))


def sent(payload: HiddenRepresentations | Jacobians | ModelUpdate, receiver: int = SERVER) -> MessageBatch:
    (value,) = payload.tensors().values()
    clients = torch.arange(len(value))
    other = torch.full_like(clients, SERVER)
    return MessageBatch(1, clients, other, payload) if receiver == SERVER else MessageBatch(1, other, clients, payload)


@pytest.mark.parametrize("variant", ["full", "v1", "v2"])
@pytest.mark.parametrize("defense", [JointNoise(epsilon=100.0), Clipping(), Quantisation()])
def test_conformance(defense: Defense, variant: Variant) -> None:
    check_defense(defense, GFLAPPNP(variant=variant, hidden=8, rounds=3, local_steps=2), graph(), quick=True)


@pytest.mark.parametrize("attack, party", [(JacobianReading(), SERVER), (MaskFlip(), 0)])
def test_attacks_keep_their_promises_where_rows_are_disturbed_before_anything_is_sent(
    attack: Attack, party: int
) -> None:
    """Nothing but rows is clipped; without the noise, as in self-tests, that must not be taken for a clip of
    messages."""
    view = record(PROTOCOL, graph(), LocalFeatures(epsilon=1000.0)).view(Observer(parties=(party,)))
    clips = tuple(fact for fact in view.public.facts if not isinstance(fact, Additive))
    quiet = replace(view, public=replace(view.public, facts=clips))
    check_attack(attack, quiet)


def test_noise_is_accounted_over_all_payloads_and_rounds() -> None:
    session = JointNoise(epsilon=8.0, clip=(0.5, 2.0, 1.0)).bind(context())
    promise = session.guarantee()
    assert promise.releases == (3 + 1) + 3 + 3
    assert promise.epsilon_accounted == pytest.approx(8.0, rel=1e-3)
    multiplier = stated(session, Additive, "HiddenRepresentations").scale / 0.5  # per clip
    event = compose(event_of("gaussian", multiplier), 10)
    assert epsilon_of(event, 1e-5, Relation.REPLACE) == pytest.approx(8.0, rel=1e-3)
    assert stated(session, Additive, "Jacobians").scale == pytest.approx(multiplier * 2.0)


def test_no_epsilon_where_a_message_that_depends_on_features_is_left_out() -> None:
    session = JointNoise(clip=(1.0, 1.0), on=("HiddenRepresentations", "Jacobians")).bind(context())
    assert session.guarantee().epsilon_accounted is None
    assert "no ModelUpdate" in session.guarantee().mechanism
    v2 = GFLAPPNP(variant="v2", hidden=8, rounds=3, local_steps=2)
    covered = JointNoise(clip=(1.0, 1.0), on=("HiddenRepresentations", "ModelUpdate")).bind(context(v2))
    assert covered.guarantee().epsilon_accounted is not None


def test_noised_messages_are_clipped_first() -> None:
    session = JointNoise(epsilon=8.0, clip=(0.5, 2.0, 1.0)).bind(context())
    values = torch.randn(400, 2, 112, generator=derive(0, "values"))
    released = session.release(sent(Jacobians(values)), derive(0, "noise"))
    assert isinstance(released, Jacobians)
    noise = released.values - values * (2.0 / values.flatten(1).norm(dim=1)).view(-1, 1, 1)
    scale = stated(session, Additive, "Jacobians").scale
    assert float(noise.std()) == pytest.approx(scale, rel=0.02) and abs(float(noise.mean())) < 0.02 * scale
    assert session.release(sent(Jacobians(values), receiver=0), derive(0, "noise")).tensors()["values"] is values


def test_models_are_clipped_as_changes_of_the_model_received() -> None:
    session = JointNoise(epsilon=1e4, clip=(1.0, 1.0, 0.1)).bind(context())
    model = torch.randn(1, 112, generator=derive(0, "model")).expand(5, -1)
    session.release(sent(ModelUpdate(model), receiver=0), derive(0, "noise"))
    change = torch.randn(5, 112, generator=derive(1, "change"))
    released = session.release(sent(ModelUpdate(model + change)), derive(0, "noise"))
    assert isinstance(released, ModelUpdate)
    noise = released.vector - model - change * 0.1 / change.norm(dim=1, keepdim=True)
    assert float(noise.std()) == pytest.approx(stated(session, Additive, "ModelUpdate").scale, rel=0.1)


def test_clipping_alone_keeps_directions_and_small_messages() -> None:
    session = Clipping(clip=(1.0, 3.0)).bind(context())
    values = torch.tensor([[3.0, 4.0], [0.3, 0.4]])
    released = session.release(sent(HiddenRepresentations(values)), derive(0, "unused"))
    torch.testing.assert_close(released.tensors()["values"], torch.tensor([[0.6, 0.8], [0.3, 0.4]]))
    assert session.guarantee().epsilon_claimed is None


def test_quantisation_is_unbiased_and_has_its_levels() -> None:
    session = Quantisation(bits=2).bind(context())
    values = torch.tensor([[0.0, 0.1, 0.5, 0.9]]).expand(20000, -1)
    released = session.release(sent(HiddenRepresentations(values)), derive(0, "round")).tensors()["values"]
    levels = torch.tensor([0.0, 0.3, 0.6, 0.9])
    assert float((released.unsqueeze(2) - levels).abs().amin(2).max()) < 1e-6
    torch.testing.assert_close(released.mean(0), values[0], atol=0.005, rtol=0)
    constant = torch.full((3, 2), 0.7)
    kept = session.release(sent(HiddenRepresentations(constant)), derive(0, "round"))
    torch.testing.assert_close(kept.tensors()["values"], constant)


def test_what_is_noised_is_trained_on() -> None:
    plain, defended = record(PROTOCOL, graph()), record(PROTOCOL, graph(), JointNoise(epsilon=1.0))
    assert any(not torch.equal(plain.trained.weights[name], w) for name, w in defended.trained.weights.items())


def test_noise_for_bounded_features_says_why_it_does_not_apply() -> None:
    reason = Gaussian(on="Jacobians").unsupported(context())
    assert reason is not None and "clip the messages" in reason


@pytest.mark.parametrize(
    "make",
    [
        lambda: JointNoise(clip=(1.0,)),
        lambda: JointNoise(clip=(1.0, 0.0, 1.0)),
        lambda: JointNoise(on=("Jacobians", "Jacobians", "ModelUpdate")),
        lambda: Clipping(clip=(1.0, -1.0)),
        lambda: Quantisation(on=("NeighborSums",)),
        lambda: Quantisation(bits=0),
    ],
)
def test_meaningless_settings_are_refused(make: type[Defense]) -> None:
    with pytest.raises(FglauditError):
        make()
