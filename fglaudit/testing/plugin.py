"""``fglaudit check FILE:CLASS``: does a plugin keep the rules, and what does an audit say of it?

First the conformance kit (:mod:`fglaudit.testing`), then a real training on a small built-in graph with every attack,
judged as any other run is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fglaudit import registry
from fglaudit.conformance.of_runs import broken_rule
from fglaudit.errors import FglauditError, shown, unknown
from fglaudit.execution.exit_code import ExitCode, combined
from fglaudit.interfaces import Attack, Defense, FederatedProtocol
from fglaudit.payloads import SERVER
from fglaudit.plugins.exit_guard import no_exit
from fglaudit.plugins.modules import refuse_without_class
from fglaudit.reports.leaks import FEATURES
from fglaudit.testing import check_attack, check_defense, record
from fglaudit.testing.defenses import RefutedError
from fglaudit.testing.plugin_words import (
    Line,
    about,
    answer_line,
    answered,
    compared,
    failures,
    guarantee_lines,
    of_attack,
    stronger,
    unchecked,
)
from fglaudit.testing.small_audits import audited, federated, protocols_for
from fglaudit.view import Observer

SLOW_BIND = 0.3
"""CPU seconds of a binding after which audits take minutes by it."""
BINDS = 400
"""How often audits bind a defense, about."""


@no_exit()
def load_plugin(name: str, values: dict[str, Any]) -> tuple[str, Any]:
    """Return the kind of ``file.py:Class`` (or a known name), and the plugin with ``values`` as its fields.

    Raises:
        FglauditError: no file or class, a class that is no plugin of any kind, or values that it refuses.
    """
    if ".py:" not in name:
        refuse_without_class(name)
        every = {known: kind for kind in registry.KINDS for known in registry.names(kind)}
        if name not in every:
            raise unknown("plugin", name, every, "fglaudit list protocols|defenses|attacks")
        return every[name], registry.build(every[name], name, values)
    reasons = {}
    for kind in registry.KINDS:
        try:
            cls = registry.load(kind, name)
        except FglauditError as error:
            reasons[kind] = error
            continue
        return kind, registry.construct(cls, f"{kind} {cls.name!r}", values)
    wrong = {str(error) for error in reasons.values()}
    if len(wrong) == 1:
        raise next(iter(reasons.values()))
    raise FglauditError(
        f"a plugin is a frozen dataclass that extends Defense, Attack or FederatedProtocol; {shown(name)} is none:"
        f" {reasons['defense']}"
    )


def check(kind: str, plugin: Any, *, protocols: Sequence[str] = (), quick: bool = False) -> Iterator[Line]:
    """Yield what is found out about ``plugin``, a line at a time; the last one is the verdict.

    Args:
        protocols: names of those to check a defense on; by default the first of ``SMALL`` that it serves.
        quick: a smaller graph, one seed, the strongest observers only, and no replays: what is promised is claimed at
            most.

    Raises:
        FglauditError: an unknown protocol, or none that the plugin serves.
    """
    checks: dict[str, Callable[[Any, Sequence[str], bool], Iterator[Line]]] = {
        "defense": _defense,
        "attack": _attack,
        "protocol": _protocol,
    }
    lines = _to_the_end(checks[kind](plugin, tuple(protocols), quick))
    faults: list[Line] = []
    for line in lines:
        yield line
        if line.code:
            faults.append(line)
    code = combined(line.code for line in faults)
    if not faults:
        yield Line(f"verdict: no fault was found in {type(plugin).name}; that is not a guarantee")
        return
    codes = {line.code for line in faults}
    word = "REFUTED" if ExitCode.REFUTED in codes else "FAULT" if ExitCode.FAILED in codes else "NOT CHECKED"
    yield Line(f"verdict: {word}: {_named(faults)}", code)


def _to_the_end(lines: Iterator[Line]) -> Iterator[Line]:
    """Yield ``lines``; where the plugin ends the process in one of them, that is the last one, and a fault."""
    try:
        with no_exit():
            yield from lines
    except FglauditError as error:
        if not isinstance(error.__cause__, SystemExit):
            raise
        yield _fault(error, "check")


def _named(faults: Sequence[Line]) -> str:
    """Return every fault in a few words, once; those who read features together."""
    audited = any(fault.code is ExitCode.REFUTED for fault in faults)  # which says more than the conformance kit
    told = [fault for fault in faults if fault.code is ExitCode.REFUTED or not (audited and fault.refutes)]
    others = dict.fromkeys(fault.fault or fault.text for fault in told if not fault.reader)
    readers = dict.fromkeys(fault.reader for fault in told if fault.reader)
    return "; ".join([*others, *([f"features leak to {' and to '.join(readers)}"] if readers else [])])


def _fault(error: BaseException, doing: str) -> Line:
    """Return what a plugin's own code raised as a fault, in a line."""
    said = " ".join(str(error).split()) or type(error).__name__
    name = "" if isinstance(error, AssertionError | FglauditError) else f"{type(error).__name__}: "
    text = f"{doing}: {name}{said}"
    return Line(text, ExitCode.FAILED, text.split("; ")[0], refutes=isinstance(error, RefutedError))


def _defense(plugin: Defense, asked: Sequence[str], quick: bool) -> Iterator[Line]:
    for protocol in protocols_for(plugin, asked):
        name = type(protocol).name
        try:
            protocol.check(federated(protocol))
            without = audited(protocol, "none", quick)
        except FglauditError as error:  # the protocol's own word on the graph, no fault of the defense
            yield Line(f"cannot be checked on {name}: {error}", ExitCode.INPUT)
            continue
        try:
            check_defense(plugin, protocol, federated(protocol), quick=True)  # the run below is audited
        except Exception as error:
            yield _fault(error, f"conformance on {name}")
            if not isinstance(error, AssertionError):
                continue  # it does not run: there is nothing to audit
        else:
            yield Line(f"conformance on {name}: the rules are kept")
        if not quick:
            yield from _slow_bind(plugin, protocol)
        try:
            under = audited(protocol, plugin, quick)
        except Exception as error:
            yield _fault(error, f"audit on {name}")
            continue
        yield from compared(under, without)
        yield from guarantee_lines(under.records)
        yield from failures(under.records)


def _slow_bind(plugin: Defense, protocol: FederatedProtocol) -> Iterator[Line]:
    """Say so where binding takes long the second time too: every replay binds afresh."""
    context = protocol.context(federated(protocol))
    try:
        plugin.bind(context)
        start = time.process_time()
        plugin.bind(context)
    except Exception:  # a plugin's own code: the audit says what it raised
        return
    if (took := time.process_time() - start) > SLOW_BIND:
        yield Line(
            f"bind takes {took:.1f} s, and audits bind some {BINDS} times for every seed: compute slow things, such as"
            " the scale of the noise, in a function of their numbers under functools.lru_cache"
        )


def _attack(plugin: Attack, asked: Sequence[str], quick: bool) -> Iterator[Line]:
    for protocol in protocols_for(plugin, asked):
        name = type(protocol).name
        run = record(protocol, federated(protocol))
        reasons = []
        for observer in (
            Observer((SERVER,), topology=True, auxiliary=0.2),
            Observer((0,), topology=True, auxiliary=0.2),
        ):
            try:
                view = run.view(observer)
                if (why := plugin.unsupported(view)) is not None:
                    reasons.append(f"{observer.name}: {why}")
                    continue
                check_attack(plugin, view)
            except Exception as error:
                yield _fault(error, f"conformance on what {observer.name} sees of {name}")
            else:
                yield Line(f"conformance on what {observer.name} sees of {name}: the rules are kept")
        for reason in reasons:
            yield Line(f"not applicable on {name} to {reason}")
        if len(reasons) == 2:
            yield Line(f"no observer of {name} can use it", ExitCode.FAILED)
            continue
        rows = [row for one in audited(protocol, "none", quick, [plugin]).records for row in one.findings]
        yield from map(of_attack, rows)
        yield from stronger(rows, audited(protocol, "none", quick))


def _protocol(plugin: FederatedProtocol, asked: Sequence[str], quick: bool) -> Iterator[Line]:
    if (error := broken_rule(plugin, federated(plugin))) is None:
        yield Line("conformance: the rules are kept")
    else:
        yield _fault(error, "conformance")
        if not isinstance(error, AssertionError):
            return
    try:
        found = audited(plugin, "none", quick)
    except Exception as error:
        yield _fault(error, "audit")
        return
    if error is None:
        yield from (Line(f"conformance: {why}", ExitCode.FAILED, why) for why in unchecked(found.records))
    for answer in answered(found):
        if answer.leak is not None or answer.quantity == FEATURES:
            yield about(answer, answer_line(answer))
    yield from failures(found.records)
