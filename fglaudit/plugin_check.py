"""``fglaudit check FILE:CLASS``: does a plugin keep the rules, and what does an audit say of it?

First the conformance kit (:mod:`fglaudit.testing`), then a real training on a small embedded graph with every attack,
judged as any other run is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fglaudit import registry
from fglaudit.auditing import Report, audit
from fglaudit.datasets.csbm import CsbmOptions, draw
from fglaudit.errors import FglauditError, shown, unknown
from fglaudit.execution.exit_code import ExitCode, combined
from fglaudit.finding import CellRecord, Finding, Status
from fglaudit.graph import Graph, canonical_edges
from fglaudit.guarantees import Word as Guarantee
from fglaudit.interfaces import Attack, Defense, FederatedProtocol
from fglaudit.observers import ObserverSpec
from fglaudit.partition.spec import PartitionSpec
from fglaudit.payloads import SERVER
from fglaudit.plugin_modules import refuse_without_class
from fglaudit.reports.answers import Answer, Word, answers
from fglaudit.reports.leaks import FEATURES
from fglaudit.reports.records import Run
from fglaudit.reports.summary import summarize
from fglaudit.testing import check_attack, check_defense, check_protocol, record
from fglaudit.view import Observer

QUICK, WHOLE = (150, 300, 100, 6), (400, 800, 200, 10)
"""Nodes, edges, features and clients of the embedded graph."""
SMALL: dict[str, dict[str, Any]] = {
    "fedgcn": {"hops": 1, "rounds": 5},
    "fedgat": {"rounds": 3, "heads": 2, "hidden": 4},
    "gfl-appnp": {"rounds": 5},
    "nfedgnn": {"rounds": 5},
    "fedgt": {"rounds": 2},
}
"""Trainings that take seconds, by what is sent; the first one that fits a plugin is taken."""
ON_NODES = ("gfl-appnp", "nfedgnn")
"""Protocols in which every node is a client."""


@dataclass(frozen=True)
class Line:
    """One line of the outcome; ``code`` is not 0 where it names a fault, ``fault`` is that in a few words."""

    text: str
    code: ExitCode = ExitCode.DONE
    fault: str = ""


def load_plugin(name: str, values: dict[str, Any]) -> tuple[str, Any]:
    """Return the kind of ``file.py:Class`` (or a known name), and the plugin with ``values`` as its fields.

    Raises:
        FglauditError: no file or class, a class that is no plugin of any kind, or values that it refuses.
    """
    if ".py:" not in name:
        refuse_without_class(name)
        every = {known: kind for kind in registry.KINDS for known in registry.names(kind)}
        if name not in every:
            raise unknown("plugin", name, every)
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
    lines = checks[kind](plugin, tuple(protocols), quick)
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


_LEAK = "features leak to "
REFUTED = "the guarantee is refuted"


def _named(faults: Sequence[Line]) -> str:
    """Return every fault in a few words, once; those who read features together."""
    audited = any(fault.code is ExitCode.REFUTED for fault in faults)  # which says more than the conformance kit
    told = [f for f in faults if f.code is ExitCode.REFUTED or not (audited and REFUTED in f.text)]
    words = list(dict.fromkeys(fault.fault or fault.text for fault in told))
    readers = [said.removeprefix(_LEAK) for said in words if said.startswith(_LEAK)]
    others = [said for said in words if not said.startswith(_LEAK)]
    return "; ".join([*others, *([_LEAK + " and to ".join(readers)] if readers else [])])


def _fault(error: BaseException, doing: str) -> Line:
    """Return what a plugin's own code raised as a fault, in a line."""
    said = " ".join(str(error).split()) or type(error).__name__
    name = "" if isinstance(error, AssertionError | FglauditError) else f"{type(error).__name__}: "
    text = f"{doing}: {name}{said}"
    return Line(text, ExitCode.FAILED, text.split("; ")[0])


def _protocols_for(plugin: Any, asked: Sequence[str]) -> list[FederatedProtocol]:
    """Return small trainings of the protocols that ``plugin`` can be tried on."""
    names = asked or tuple(SMALL)
    built = [registry.build("protocol", name, SMALL.get(name, {})) for name in names]
    if isinstance(plugin, Attack):
        consumes = set(type(plugin).consumes)
        fitting = [p for p in built if consumes <= set(type(p).emits)]
        why = f"none of {', '.join(names)} sends all of {', '.join(t.__name__ for t in consumes)}"
    else:
        reasons = {type(p).name: plugin.unsupported(p.context(_federated(p))) for p in built}
        fitting = [p for p in built if reasons[type(p).name] is None]
        why = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    if not fitting:
        raise FglauditError(
            f"a plugin is checked on a protocol that it serves; {type(plugin).name} serves none: {why}; name another"
            " one with --protocol"
        )
    return fitting if asked else fitting[:1]


def _federated(protocol: FederatedProtocol) -> Any:
    from fglaudit.testing import example_graph

    if type(protocol).name not in ON_NODES:
        return example_graph()
    shared = example_graph(clients=1)  # whose only client holds all nodes in order
    nodes, train, val, test = (
        part[0].unsqueeze(1).unbind() for part in (shared.clients, shared.train, shared.val, shared.test)
    )
    edges = _connected(shared.edge_index, shared.num_nodes)
    return dataclasses.replace(shared, edge_index=edges, clients=nodes, train=train, val=val, test=test)


def _connected(edges: Tensor, nodes: int) -> Tensor:
    """Return ``edges`` and those of a path through all nodes: some protocols on nodes refuse graphs in parts."""
    ids = torch.arange(nodes)
    return canonical_edges(torch.cat([edges, torch.stack([ids[:-1], ids[1:]])], 1), nodes)


def _defense(plugin: Defense, asked: Sequence[str], quick: bool) -> Iterator[Line]:
    for protocol in _protocols_for(plugin, asked):
        name = type(protocol).name
        try:
            protocol.check(_federated(protocol))
            without = _audited(protocol, "none", quick)
        except FglauditError as error:  # the protocol's own word on the graph, no fault of the defense
            yield Line(f"cannot be checked on {name}: {error}", ExitCode.INPUT)
            continue
        try:
            check_defense(plugin, protocol, _federated(protocol), quick=True)  # the run below is audited
        except Exception as error:
            yield _fault(error, f"conformance on {name}")
            if not isinstance(error, AssertionError):
                continue  # it does not run: there is nothing to audit
        else:
            yield Line(f"conformance on {name}: the rules are kept")
        try:
            under = _audited(protocol, plugin, quick)
        except Exception as error:
            yield _fault(error, f"audit on {name}")
            continue
        yield from _compared(under, without)
        yield from guarantee_lines(under.records)
        yield from _failures(under.records)


def _attack(plugin: Attack, asked: Sequence[str], quick: bool) -> Iterator[Line]:
    for protocol in _protocols_for(plugin, asked):
        name = type(protocol).name
        run = record(protocol, _federated(protocol))
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
        for row in (row for one in _audited(protocol, "none", quick, [plugin]).records for row in one.findings):
            yield _of_attack(row)


def _of_attack(row: Finding) -> Line:
    if row.status is Status.OK:
        figures = f"{row.metric} {_n(row.value)} (a guess: {_n(row.control)}), advantage {_n(row.advantage)}"
        return Line(f"{_who(row)}, {row.quantity}: {figures} [{_n(row.advantage_low)}, {_n(row.advantage_high)}]")
    fault = ExitCode.DONE if row.status is Status.NOT_APPLICABLE else ExitCode.FAILED
    return Line(f"{_who(row)}: {row.status}: {row.reason}", fault)


def _protocol(plugin: FederatedProtocol, asked: Sequence[str], quick: bool) -> Iterator[Line]:
    try:
        check_protocol(plugin, _federated(plugin))
    except Exception as error:
        yield _fault(error, "conformance")
        if not isinstance(error, AssertionError):
            return
    else:
        yield Line("conformance: the rules are kept")
    try:
        found = _audited(plugin, "none", quick)
    except Exception as error:
        yield _fault(error, "audit")
        return
    for answer in _answers(found):
        if answer.leak is not None or answer.quantity == FEATURES:
            yield Line(_said(answer))
    yield from _failures(found.records)


def _audited(protocol: Any, defense: Any, quick: bool, attacks: Any = "all") -> Report:
    nodes, edges, features, clients = QUICK if quick else WHOLE
    options = CsbmOptions(nodes=nodes, edges=edges, dimensions=features)
    observers = [
        ObserverSpec(("server",), topology=True, auxiliary=0.1),
        ObserverSpec(("client:each",), topology=True, auxiliary=0.1),
    ]
    if not quick:
        observers += [ObserverSpec(("server",)), ObserverSpec(("client:each",))]
    per_node = type(protocol).name in ON_NODES
    if per_node:
        nodes = clients = min(nodes, 60)
        options = dataclasses.replace(options, nodes=nodes, edges=2 * nodes)
        observers = [observers[0], ObserverSpec(("client:0",), topology=True, auxiliary=0.1)]
    graph: Graph = draw(options, "embedded")
    if per_node:
        graph = dataclasses.replace(graph, edge_index=_connected(graph.edge_index, graph.num_nodes))
    seeds = (0,) if quick else (0, 1, 2)
    with torch.random.fork_rng(devices=[]):
        return audit(
            graph,
            protocol=protocol,
            defense=defense,
            observers=observers,
            attacks=attacks,
            clients=clients,
            partition=PartitionSpec("per-node") if per_node else None,
            seeds=seeds,
            device="cpu",
            split="random",
            name="embedded",
            empirical=not quick,
        )


def _answers(report: Report) -> list[Answer]:
    return answers(summarize(Run(report.name, report.records, planned=True)))


def _compared(under: Report, without: Report) -> Iterator[Line]:
    """Say who still learns what, beside what is learned without the defense, and what that costs."""
    plain = {(answer.observer, answer.quantity): answer for answer in _answers(without)}
    for answer in _answers(under):
        before = plain.get((answer.observer, answer.quantity))
        if answer.quantity != FEATURES and answer.leak is None and (before is None or before.leak is None):
            continue  # nothing here asks that of this protocol, with or without the defense
        was = f"; without the defense: {_figure(before)}" if before is not None else ""
        read = answer.word is Word.LEAKS and answer.quantity == FEATURES
        text = f"{_said(answer)}{was}"
        yield Line(text, ExitCode.FAILED, _LEAK + _observer(answer)) if read else Line(text)
    accuracy, old = _accuracy(under.records), _accuracy(without.records)
    yield Line(f"accuracy {_n(accuracy)}; without the defense {_n(old)}")


def _said(answer: Answer) -> str:
    who = _observer(answer)
    figure = f": {_figure(answer)}" if answer.leak is not None else ""
    reason = f" ({answer.reason})" if answer.word in (Word.NOT_SHOWN, Word.NOT_TESTED) else ""
    return f"{who}, {answer.quantity}: {answer.word}{figure}{reason}"


def _observer(answer: Answer) -> str:
    parties, knowledge = answer.observer
    return f"{parties} ({knowledge})" if knowledge else parties


def _figure(answer: Answer | None) -> str:
    leak = None if answer is None else answer.leak
    if leak is None:
        return "nothing was measured"
    return (
        f"{leak.metric} {_n(leak.mean('value'))} (a guess: {_n(leak.mean('control'))}) by {leak.attack}, advantage"
        f" {_n(leak.advantage)} [{_n(leak.low)}, {_n(leak.high)}]"
    )


def guarantee_lines(records: Sequence[CellRecord]) -> Iterator[Line]:
    """Say what became of the guarantee: by the verdict of the records, else by the epsilon that replays showed."""
    first = records[0].findings[0]
    verdicts = [record.verdict for record in records if record.verdict is not None]
    for verdict in verdicts:
        if verdict.word is Guarantee.REFUTED:
            yield Line(f"{REFUTED}: {verdict.reason}", ExitCode.REFUTED)
            return
    if any(setting.contradicted for setting in summarize(Run("check", tuple(records), planned=True))):
        shown_epsilon = max(row.epsilon_empirical or 0.0 for one in records for row in one.findings)
        yield Line(
            f"{REFUTED}: replays show an epsilon of at least {shown_epsilon:.3g}, above the"
            f" {first.epsilon_accounted:.3g} that is stated",
            ExitCode.REFUTED,
        )
        return
    if verdicts:
        said = verdicts[0]
        promised = "" if said.claimed is None else f", epsilon {said.claimed:.3g} by its author"
        yield Line(f"guarantee: {said.word}{promised}{f': {said.reason}' if said.reason else ''}")
    elif first.epsilon_claimed is not None or first.epsilon_accounted is not None:
        stated = first.epsilon_accounted if first.epsilon_accounted is not None else first.epsilon_claimed
        yield Line(f"guarantee: claimed: epsilon {stated:.3g} per {first.privacy_unit or 'no unit'}; not contradicted")
    else:
        yield Line("guarantee: none is promised")


def _failures(records: Sequence[CellRecord]) -> Iterator[Line]:
    lost = {f"{row.attack}: {row.reason}" for r in records for row in r.findings if row.status is Status.FAILED}
    for reason in sorted(lost):
        yield Line(f"failed: {reason}", ExitCode.FAILED, f"{reason.partition(':')[0]} failed")


def _accuracy(records: Sequence[CellRecord]) -> float | None:
    found = [next((f.accuracy for f in r.findings if f.accuracy is not None), None) for r in records]
    known = [value for value in found if value is not None]
    return sum(known) / len(known) if known else None


def _who(row: Finding) -> str:
    return f"{row.observer} ({row.observer_knowledge})" if row.observer_knowledge else row.observer


def _n(value: float | None) -> str:
    return "?" if value is None else f"{value:.3f}"
