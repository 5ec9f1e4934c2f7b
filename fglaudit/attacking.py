"""Attacks on a recording: every observer with every attack, without the truth."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from fglaudit import registry
from fglaudit.adversary.local_reports import as_sent, attack_reports, before_reports, runs_on_reports
from fglaudit.adversary.modelled import decides, late, out_of_order
from fglaudit.adversary.running.attack_stream import attack_stream
from fglaudit.adversary.running.contained import contained
from fglaudit.adversary.running.guarded_view import changed, own_view
from fglaudit.adversary.running.once_per_view import forget
from fglaudit.doing import tell
from fglaudit.errors import FglauditError
from fglaudit.facts import Additive, Fact, Field, Randomised, kind_of
from fglaudit.finding import LEARNED, OTHERS, Cause, Finding, Reason, Status, adapted_column
from fglaudit.guarantees import Word
from fglaudit.interfaces import SERVER_TRUSTED, Attack
from fglaudit.nn.torch_settings import check_torch_settings
from fglaudit.observers import ObserverSpec, expand
from fglaudit.payloads import Ciphertexts, Payload
from fglaudit.quantities import quantity
from fglaudit.recording import Recording
from fglaudit.scoring.output import Output
from fglaudit.scoring.selftest import BlindViews, NoiseRuns, planted_flaw
from fglaudit.structure import NotStated, NotStatedError
from fglaudit.tracebacks import kept
from fglaudit.view import Observer, View

NothingToAsk = Callable[[str, Sequence[Observer], bool], str | None]
"""From a quantity's name, an observer's members and whether they are pooled to why nothing can be asked, or None."""


def run_attacks(
    recording: Recording,
    observers: Sequence[ObserverSpec],
    attacks: Sequence[Attack],
    *,
    device: torch.device | None = None,
    nothing_to_ask: NothingToAsk | None = None,
    most_members: int | None = None,
    self_tests: bool = True,
) -> list[Output]:
    """Run every attack for every observer on ``recording``; one output each, observers in the outer loop.

    An attack that raises becomes a `failed` output.

    Args:
        device: the CPU by default.
        nothing_to_ask: by the scorer, if there is one: pairs without a question are then not run.
        most_members: of an observer that is each client in turn, how many take their turn; None: all.
        self_tests: whether attacks prove themselves, without which nothing may be reported of them.

    Raises:
        FglauditError: an observer knows what was not recorded, or torch is set to compute otherwise.
    """
    check_torch_settings()
    device = device or torch.device("cpu")
    outputs, blind = [], BlindViews()
    for spec in observers:
        members, pooled = expand(spec, recording.public.num_clients)
        members = members[:most_members]
        views = tuple(recording.view(member) for member in members)
        for attack in attacks:
            blank = _blank(recording, spec, members, attack)
            asked = nothing_to_ask or (lambda *_: None)
            outputs.append(_attempt(attack, blank, views, pooled, device, asked, blind if self_tests else None))
        for view in views:
            forget(view)  # outputs keep their views
    return outputs


def _attempt(
    attack: Attack,
    blank: Finding,
    views: tuple[View, ...],
    pooled: bool,
    device: torch.device,
    nothing_to_ask: NothingToAsk,
    blind: BlindViews | None,
) -> Output:
    """Run ``attack`` on every view and self-test it; whatever goes wrong ends in the row (rule 7).

    Args:
        blind: the views of noise that attacks share in their self-tests; None: no self-tests.
    """
    output = Output(blank, attack, pooled, views)
    given = views if registry.shipped("attack", attack) else tuple(map(own_view, views))
    try:
        asked = type(attack).quantity, [view.observer for view in views], pooled
        last = quantity(asked[0]).asks_last
        why = None if last else nothing_to_ask(*asked)
        why = why or next((why for view in given if (why := unsuitable(attack, view)) is not None), None)
        why = why or (nothing_to_ask(*asked) if last else None)
        if why is not None:
            return replace(output, blank=blank.ended(Status.NOT_APPLICABLE, why))
        name = f"attack {blank.attack} by {blank.observer}"
        tell(name)
        start = time.perf_counter()
        read: set[tuple[str, str]] = set()
        streams = [attack_stream(attack, view, "attack") for view in views]
        results = tuple(
            attack_reports(attack, view.noted(read), rng, device) for view, rng in zip(given, streams, strict=True)
        )
        seconds = time.perf_counter() - start
        _refuse_changed(attack, views, given)
        if blind is None:
            return replace(output, blank=replace(blank, seconds_attack=seconds), results=results, on_noise=None)
        tell(f"{name}: its self-test on a planted leak")
        tested = _widest(views)
        rng = attack_stream(attack, views[tested], "self-test")
        flaw = planted_flaw(attack, given[tested], rng, device)
    except NotStatedError as error:
        return replace(output, blank=blank.ended(Status.NOT_APPLICABLE, str(error)))
    except Exception as error:
        reason = kept(error, f"attack {blank.attack} by {blank.observer} {blank.observer_knowledge}".rstrip())
        return replace(output, blank=blank.ended(Status.FAILED, reason))
    return replace(
        output,
        blank=replace(blank, seconds_attack=seconds),
        results=results,
        flaw=flaw,
        on_noise=NoiseRuns(attack, given[tested], rng, device, blind),
        tested=tested,
        read=frozenset(read),
    )


def _refuse_changed(attack: Attack, views: Sequence[View], given: Sequence[View]) -> None:
    """Raise :class:`FglauditError` where ``attack`` wrote into a view that it was ``given``, its own copy of one of
    ``views``."""
    for before, after in zip(views, given, strict=True):
        if after is not before and (part := changed(before, after)):
            raise FglauditError(
                f"an attack must not change its view; {type(attack).name} changed `{part}` of {before.observer.name};"
                " let it work on clones"
            )


def _widest(views: Sequence[View]) -> int:
    """Return the view whose clients have the most neighbours at others: the most that a self-test can plant."""
    return max(range(len(views)), key=lambda i: sum(len(client.remote_nodes) for client in views[i].own))


def unsuitable(attack: Attack, view: View) -> str | None:
    """Return why ``attack`` cannot work on ``view``, or None.

    Where a payload that it needs does not reach the observer, that is the reason: what a protocol does not state of
    payloads that it does not send is nobody's concern.
    """
    if why := _unreadable(attack, view):
        return why
    if (why := _unsupported(attack, view)) is None:
        return None
    lacking = [payload for payload in type(attack).consumes if not _reaches(view, payload)]
    if not lacking and isinstance(why, NotStated) and not any(_reaches(view, payload) for payload in why.payloads):
        lacking = list(why.payloads)
    return f"no {' or '.join(payload.__name__ for payload in lacking)} reaches this observer" if lacking else why


def _reaches(view: View, payload: type[Payload]) -> bool:
    return next(iter(view.messages.of(payload)), None) is not None


def _unsupported(attack: Attack, view: View) -> str | None:
    """Return why ``attack`` cannot work on what the protocol computed with: randomised rows are real-valued."""
    with contained(attack):
        return attack.unsupported(as_sent(view) if runs_on_reports(attack, view.public.facts) else view)


def _unreadable(attack: Attack, view: View) -> str | None:
    """Return which payload of those that ``attack`` needs the observer has as ciphertexts only, or None."""
    if Ciphertexts in type(attack).also_reads:
        return None
    for payload in type(attack).consumes:
        if payload.__name__ in view.public.sealed and not _reaches(view, payload):
            return Reason(
                f"{view.observer.name} sees ciphertexts only of {payload.__name__}, and holds no key", Cause.SEALED
            )
    return None


def _blank(recording: Recording, spec: ObserverSpec, members: Sequence[Observer], attack: Attack) -> Finding:
    """Return the row of ``attack`` by ``spec`` before anything is measured."""
    columns: dict[str, Any] = {
        **recording.columns,
        **_guarantee_columns(recording, members),
    }
    return Finding(
        suite="",
        observer=spec.name,
        observer_knowledge=spec.knowledge,
        attack=type(attack).name,
        status=Status.OK,
        adapted=adapted(attack, recording.public.facts),
        **columns,
    )


def adapted(attack: Attack, facts: Sequence[Fact]) -> str:
    """Return the column ``adapted``: whether ``attack`` allows for every fact about rows, edges, gradients and the
    payloads it reads.

    Of an attack that is run on reports it is asked whether it allows for what makes them random; what is done to rows
    before that is allowed for where rows are decided.
    """
    kind = type(attack)
    read = {payload.__name__ for payload in (*kind.reads(), *kind.computed_from)}
    asked = [fact for fact in facts if not isinstance(fact.target, Field) or fact.target.payload in read]
    reports = before_reports(facts) if runs_on_reports(attack, facts) else ()
    unexpected = (*out_of_order(asked), *late(asked))
    names = dict.fromkeys(
        kind_of(fact)
        for fact in asked
        if fact in unexpected
        or not (decides(fact) if fact in reports else attack.models(fact))
        or (fact in reports and isinstance(fact, Additive | Randomised) and not attack.models(fact))
    )
    if not names and kind.leaks_only:
        return adapted_column([LEARNED])
    if not names and not registry.shipped("attack", attack):  # what it says of itself, and plants, is its own word
        return adapted_column([OTHERS])
    return adapted_column(names)


def _guarantee_columns(recording: Recording, members: Sequence[Observer]) -> dict[str, Any]:
    """Return what a row says of the promise; an observer that it is not about gets no epsilon."""
    promise, verdict = recording.guarantee, recording.verdict
    words = (
        promise.mechanism,
        promise.key_custody,
        promise.adjacency,
        SERVER_TRUSTED if promise.server_trusted else "",
    )
    columns: dict[str, Any] = {
        "mechanism": "; ".join(filter(None, words)),
        "privacy_unit": promise.unit,
        "releases": promise.releases,
        "guarantee": Word.NONE.value,
    }
    if not all(promise.covers(observer) for observer in members):
        return columns
    return {
        **columns,
        "epsilon_claimed": verdict.claimed,
        "epsilon_accounted": verdict.epsilon,
        "delta": promise.delta,
        "epsilon_empirical": None if verdict.measured is None else verdict.measured.epsilon,
        "epsilon_p_value": verdict.contradicted_at,
        "guarantee": verdict.word.value,
    }
