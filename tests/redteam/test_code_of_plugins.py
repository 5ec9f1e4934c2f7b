"""What a plugin's code does beside its hooks: looks at who runs it, replaces functions, returns two-faced objects."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import textwrap
import types
from pathlib import Path

import pytest
import torch

from fglaudit import registry
from fglaudit.errors import FglauditError
from fglaudit.guarantees import Outcome, Word
from fglaudit.interfaces import Defense
from fglaudit.payloads import NeighborSums
from fglaudit.plugins.audit_events import watched
from fglaudit.plugins.monkeypatch_guard import altered, functions
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.recording import record_training
from fglaudit.testing import example_graph, record
from fglaudit.view import Observer

PROTOCOL = FedGCN(hops=1, rounds=2)
SOURCE = """
import collections, copy, dataclasses, gc, inspect, logging, os, sys
import torch
import fglaudit.empirical.verdict_word as word
from fglaudit.facts import ROWS, Additive, Clipped, Field
from fglaudit.interfaces import Defense, DefenseSession, Guarantee
from fglaudit.payloads import SERVER, NeighborSums
from fglaudit.privacy.accounting import Relation

class TwoFaced(torch.Tensor):
    pass

class Session(DefenseSession):
    def changes(self, payload):
        return payload is NeighborSums
    def prepare(self, client, rng):
        return dataclasses.replace(client, x=client.x / client.x.norm(dim=-1, keepdim=True).clamp(min=1.0))
    def release(self, batch, rng):
        sent = batch.payload
        if not isinstance(sent, NeighborSums) or bool((batch.senders == SERVER).all()):
            return sent
        noise = torch.randn(sent.sums.shape, generator=rng)
        noisy = dataclasses.replace(sent, sums=sent.sums + 2.5 * noise)
        BODY
        return noisy
    def facts(self):
        return Clipped(ROWS, "L2", 1.0, "row"), Additive(Field("NeighborSums", "sums", "up"), "gaussian", 2.5)
    def guarantee(self):
        about = Relation.ZERO_OUT
        return Guarantee("noise", delta=DELTA, unit="node", relation=about, adjacency=about.of("one row"))

@dataclasses.dataclass(frozen=True)
class Mine(Defense):
    name = "mine"
    def bind(self, context):
        return Session()
"""


def plugin(folder: Path, body: str = "pass", top: str = "", delta: float = 1e-5) -> Defense:
    path = folder / "mine.py"
    path.write_text(SOURCE.replace("BODY", body).replace("DELTA", str(delta)) + top)
    defense: Defense = registry.build("defense", f"{path}:Mine", {})
    return defense


def said(folder: Path, body: str) -> str:
    """Return what an audit says of the code of a defense that does ``body`` in its hook."""
    recording, _ = record_training(example_graph(), PROTOCOL, plugin(folder, body))
    audits = [audit for audit in recording.verdict.audits if audit.name == "code"]
    assert all(audit.outcome is Outcome.UNTESTED for audit in audits)
    return "; ".join(audit.detail for audit in audits)


@pytest.mark.parametrize(
    ("body", "asks"),
    [
        ("sys._getframe()", "sys._getframe"),
        ("getattr(sys, '_get' + 'frame')(0)", "sys._getframe"),
        ("inspect.currentframe()", "sys._getframe"),
        ("inspect.stack(0)", "sys._getframe"),
        ("logging.currentframe()", "sys._getframe"),
        ("gc.get_referents(self)", "gc.get_referents"),
        ("(one for one in ()).gi_frame", "gi_frame"),
        ("sys.settrace(None)", "sys.settrace"),
        ("open(os.devnull, 'a').close()", "writes a file"),
        ("os.environ['FGLAUDIT_TEST_SEEN'] = '1'", "os.putenv"),
    ],
)
def test_looking_at_who_runs_it_is_noticed(tmp_path: Path, body: str, asks: str) -> None:
    assert asks in said(tmp_path, body)


@pytest.mark.parametrize(
    "body",
    [
        "pass",
        "collections.namedtuple('Pair', 'one other')",
        "logging.getLogger('mine').warning('a release')",
        "open(os.devnull).close()",
        "copy.deepcopy(self)",
    ],
)
def test_what_every_program_does_is_no_fault(tmp_path: Path, body: str) -> None:
    assert said(tmp_path, body) == ""


def test_nothing_is_noted_outside_of_a_block() -> None:
    with watched() as first:
        exec("import sys; sys._getframe()", {"__name__": "somebody"})
    exec("import sys; sys._getframe()", {"__name__": "somebody"})
    assert len(first) == 1


def test_one_who_looks_is_not_verified(tmp_path: Path) -> None:
    recording, _ = record_training(example_graph(), PROTOCOL, plugin(tmp_path, "sys._getframe()"), empirical=True)
    assert recording.verdict.word is Word.CLAIMED


@pytest.mark.parametrize(
    "top",
    [
        "word.verdict_of = lambda *a, **k: None",
        "word.verdict_of.__code__ = (lambda *a, **k: None).__code__",
        "DefenseSession.facts = lambda self: ()",
        "real = torch.randn\ntorch.randn = lambda *a, **k: real(*a, **k)",
        "real = copy.deepcopy\ncopy.deepcopy = lambda *a, **k: real(*a, **k)",
    ],
)
def test_a_file_that_replaces_what_it_is_audited_with_is_refused(tmp_path: Path, top: str) -> None:
    import copy

    import fglaudit.empirical.verdict_word as word
    from fglaudit.interfaces import DefenseSession

    kept = word.verdict_of, word.verdict_of.__code__, DefenseSession.facts, torch.randn, copy.deepcopy
    try:
        with pytest.raises(FglauditError, match="leaves alone what it is audited with"):
            plugin(tmp_path, top=top)
    finally:
        word.verdict_of, code, DefenseSession.facts, torch.randn, copy.deepcopy = kept  # type: ignore[method-assign]
        word.verdict_of.__code__ = code


@pytest.mark.parametrize(
    ("new", "fault"),
    [
        (textwrap.dedent, ""),  # as torch.package does once it is imported
        (contextlib.contextmanager(textwrap.dedent), ""),  # type: ignore[arg-type]
        (lambda held: "", "inspect.getfile"),
        (contextlib.contextmanager(lambda held: iter(())), "inspect.getfile"),
        (functools.partial(textwrap.dedent, "here"), "inspect.getfile"),
    ],
)
def test_libraries_may_patch_one_another(monkeypatch: pytest.MonkeyPatch, new: object, fault: str) -> None:
    before = functions()
    monkeypatch.setattr(inspect, "getfile", new)
    assert altered(before) == fault


MADE_UP = """
def f(): return 1
def g(): return 2
class C:
    def m(self): return 1
    def n(self): return 2
    @staticmethod
    def s(): return 1
    @classmethod
    def c(cls): return 1
    @property
    def p(self): return 1
"""


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ("f = g", "f"), ("f, g = g, f", "f"), ("del g", "g"), ("f.__code__ = g.__code__", "f"),
        ("C.m = C.n", "C.m"), ("C.m.__code__ = C.n.__code__", "C.m"), ("C.m, C.n = C.n, C.m", "C.m"),
        ("C.s = staticmethod(g)", "C.s"), ("vars(C)['s'].__init__(g)", "C.s"), ("C.s.__code__ = f.__code__", "C.s"),
        ("vars(C)['c'].__init__(g)", "C.c"), ("C.c.__func__.__code__ = g.__code__.replace(co_argcount=0)", "C.c"),
        ("C.p = property(g)", "C.p"), ("vars(C)['p'].__init__(g)", "C.p"), ("C = type('C', (), {})", "C"),
        ("C.p.fget.__code__ = C.m.__code__", "C.p"), ("del C.m", "C.m"), ("del C", "C"),
    ],
)  # fmt: skip
def test_whatever_is_exchanged_is_named(change: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also within a function, a method or a property that stays the same object; what only comes anew is none of it."""
    module = types.ModuleType("fglaudit.made_up")
    exec(MADE_UP, module.__dict__)
    monkeypatch.setitem(sys.modules, "fglaudit.made_up", module)
    before = functions()
    exec("h = f", module.__dict__)
    assert altered(before) == altered(before) == ""
    exec(change, module.__dict__)
    assert altered(before) == altered(before) == f"fglaudit.made_up.{name}"


def test_a_hook_that_replaces_a_function_ends_the_run(tmp_path: Path) -> None:
    import fglaudit.empirical.verdict_word as word

    kept = word.verdict_of
    try:
        with pytest.raises(FglauditError, match=r"fglaudit\.empirical\.verdict_word\.verdict_of"):
            record_training(example_graph(), PROTOCOL, plugin(tmp_path, "word.verdict_of = print"))
    finally:
        word.verdict_of = kept


def test_a_payload_is_what_its_fields_are(tmp_path: Path) -> None:
    """One that shows noise to whoever compares, and clean sums to whoever records, is recorded as compared."""
    body = "object.__setattr__(noisy, 'tensors', lambda: sent.tensors())"
    run = record(PROTOCOL, example_graph(), plugin(tmp_path, body))
    assert not run.channel.unstated
    first = next(iter(run.recording.transcript.seen_by(Observer(wire=True)).of(NeighborSums)))
    assert float(first.payload.tensors()["sums"].std()) > 2  # noise of 2.5, on rows of length 1 at most


def test_a_tensor_of_an_authors_own_class_is_refused(tmp_path: Path) -> None:
    body = "noisy = dataclasses.replace(noisy, sums=noisy.sums.as_subclass(TwoFaced))"
    with pytest.raises(FglauditError, match=r"NeighborSums\.sums is TwoFaced; return torch.Tensor"):
        record(PROTOCOL, example_graph(), plugin(tmp_path, body))


@pytest.mark.all_draws
@pytest.mark.parametrize(
    ("seed", "why"),
    [
        ("torch.randint(2**27, (1,), generator=rng)", "one draw of 32 bits"),
        ("int(torch.randint(2**62, (1,), generator=rng)) % 2**20", "noise of few seeds"),
    ],
)
def test_noise_of_few_seeds_is_not_believed(tmp_path: Path, seed: str, why: str) -> None:
    body = (
        f"own = torch.Generator().manual_seed(int({seed}));"
        " noisy = dataclasses.replace(sent, sums=sent.sums + 2.5 * torch.randn(sent.sums.shape, generator=own))"
    )
    # the noise that SOURCE draws first would use up the generator
    path = tmp_path / "seeded.py"
    text = SOURCE.replace("noise = torch.randn(sent.sums.shape, generator=rng)", "noise = 0").replace("BODY", body)
    path.write_text(text.replace("DELTA", "1e-5"))
    run = record(PROTOCOL, example_graph(), registry.build("defense", f"{path}:Mine", {}))
    assert any(why in change.why for change in run.channel.unstated)


def test_a_large_delta_is_said_to_protect_nobody(tmp_path: Path) -> None:
    recording, _ = record_training(example_graph(), PROTOCOL, plugin(tmp_path, delta=0.5), empirical=True)
    assert recording.verdict.reason.startswith("protects nobody: a delta of 0.5 with 60 nodes")
