"""A fork server: cases run in children of a process that has torch and every plugin loaded, so that one takes
milliseconds. The parent sees how each child ended: with a value, with one message, with a traceback, or not at all.
"""

from __future__ import annotations

import io
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass

from fglaudit.errors import MESSAGE, FglauditError

HANG_SECONDS = 20
"""Of processor time: on a busy machine a case may wait for long without hanging."""
WAIT_SECONDS = 120.0
"""Of wall time, for a case that waits for what never comes."""
MEMORY = 4 * 2**30
"""Bytes of address space that a case may add: a bomb that unfolds ends in a MemoryError, not in a swapping machine."""


@dataclass(frozen=True)
class Outcome:
    """How one case ended.

    Attributes:
        kind: accepted | refused | equal (to a run left alone) | traceback | hang | crash | wrong | message.
        text: the message, the traceback, or the signal. ``wrong``: accepted, and not what the file says. ``message``:
            refused with a message that lacks rule, value or fix.
    """

    kind: str
    text: str
    seconds: float

    @property
    def fault(self) -> bool:
        return self.kind not in ("accepted", "refused", "equal")


def judge(message: str) -> str:
    """Return ``refused`` for a message of the form rule; value; fix on one printable line, else ``message``.

    A name that is not known has the list of known ones in place of a fix.
    """
    whole = message.isprintable() and 20 <= len(message) <= MESSAGE + 20
    return "refused" if whole and ("; " in message or "(known: " in message) else "message"


def run(case: Callable[[], None]) -> Outcome:
    """Run ``case`` in a forked child; it returns, or raises FglauditError, or AssertionError for what it got wrong."""
    sys.stdout.flush()
    sys.stderr.flush()
    here, there = os.pipe()
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(here)
        _report(there, case)
    os.close(there)
    answer = b""
    try:
        while True:
            left = WAIT_SECONDS - (time.monotonic() - start)
            if not select.select([here], [], [], max(left, 0))[0]:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return Outcome("hang", answer.decode("utf-8", "replace"), time.monotonic() - start)
            part = os.read(here, 65536)
            if not part:
                break
            answer += part
    finally:
        os.close(here)
    status = os.waitpid(child, 0)[1]
    seconds = time.monotonic() - start
    kind, _, text = answer.decode("utf-8", "replace").partition("\n")
    if not kind:
        overrun = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU
        return Outcome("hang" if overrun else "crash", f"wait status {status}", seconds)
    return Outcome(kind, text, seconds)


def _report(pipe: int, case: Callable[[], None]) -> None:
    _limit()
    out = io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(out):
            case()
        kind, text = "accepted", ""
    except FglauditError as error:
        kind, text = judge(str(error)), str(error)
    except AssertionError:
        kind, text = "wrong", traceback.format_exc()
    except BaseException:
        kind, text = "traceback", traceback.format_exc()
    if "Traceback (most recent call last)" in out.getvalue():
        kind, text = "traceback", out.getvalue()
    payload = f"{kind}\n{text[-20000:]}".encode("utf-8", "backslashreplace")
    while payload:
        payload = payload[os.write(pipe, payload) :]
    os._exit(0)


def _limit() -> None:
    """Limit memory and processor time of a child, above what the fork server itself has used."""
    try:
        import resource
        from pathlib import Path

        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + HANG_SECONDS, hard))
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    except (ImportError, OSError, ValueError):  # not on this system
        return


def preload() -> None:
    """Import what the children need: torch, every plugin, and what the checks import late."""
    import torch

    from fglaudit import registry
    from fglaudit.execution import display, preflight  # noqa: F401
    from fglaudit.suite.overrides import load_suite

    torch.set_num_threads(1)  # a forked pool of threads waits forever
    for kind in registry.KINDS:
        for name in registry.names(kind):
            registry.load(kind, name)
    load_suite("quickstart").cells()[0].hash()
