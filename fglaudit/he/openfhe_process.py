"""OpenFHE in an interpreter of its own: its wheels hold a library for one Python each, seldom the one that runs this.

``$FGLAUDIT_OPENFHE_PYTHON`` names that interpreter, e.g. of a virtual environment with ``pip install openfhe``. The
worker (:mod:`fglaudit.he.openfhe_worker`) holds the key shares of all clients of one training, as this process holds
those of other schemes.
"""

from __future__ import annotations

import functools
import os
import subprocess
import weakref
from pathlib import Path
from typing import Any

import torch

from fglaudit.errors import FglauditError
from fglaudit.he import openfhe_worker

PYTHON = "FGLAUDIT_OPENFHE_PYTHON"
_FIX = f"make an environment of Python 3.10 or 3.12, `pip install openfhe` there, and let {PYTHON} name its python"
_PATIENCE = 60


def missing() -> str | None:
    """Return why OpenFHE cannot be had here, and the fix; None if it can."""
    python = os.environ.get(PYTHON, "")
    if not python:
        return f"threshold encryption needs OpenFHE in an interpreter of its own, and {PYTHON} is not set; {_FIX}"
    why = _tried(python)
    return None if why is None else f"{PYTHON} must name an interpreter that has OpenFHE; got {why}; {_FIX}"


@functools.cache
def _tried(python: str) -> str | None:
    """Return what goes wrong when ``python`` imports OpenFHE, or None."""
    try:
        command = [python, "-I", "-c", "import openfhe"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{python!r}: {error}"
    if not done.returncode:
        return None
    return f"{python!r}: {(done.stderr.strip() or 'no OpenFHE').splitlines()[-1]}"


class OpenFhe:
    """A worker that holds the key shares of all parties of one training.

    Args:
        parties: clients that hold a share each.
        slot_bits: of the numbers in slots.
        additions: how many ciphertexts are added up at most.

    Attributes:
        described: parameters and sizes, see :meth:`fglaudit.he.openfhe_worker.Parties.described`.
        public: what everybody may hold, as bytes.

    Raises:
        FglauditError: if OpenFHE cannot be had, or fails.
    """

    def __init__(self, parties: int, slot_bits: int, additions: int) -> None:
        if (why := missing()) is not None:
            raise FglauditError(why)
        command = [os.environ[PYTHON], "-I", str(Path(openfhe_worker.__file__))]
        threads = {"OMP_NUM_THREADS": str(torch.get_num_threads())}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=os.environ | threads
        )
        self._end = weakref.finalize(self, _ended, self._process)
        self.described, self.public = self._asked(
            {"parties": parties, "slot_bits": slot_bits, "additions": additions}, []
        )

    def ask(self, what: str, blobs: list[bytes], **header: Any) -> tuple[dict[str, Any], list[bytes]]:
        """Let a method of the worker's :class:`fglaudit.he.openfhe_worker.Parties` answer.

        Raises:
            FglauditError: if it fails.
        """
        return self._asked({"do": what, **header}, blobs)

    def _asked(self, header: dict[str, Any], blobs: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None and answers is not None
        try:
            openfhe_worker.write(requests, header, blobs)
            answer = openfhe_worker.read(answers)
        except (OSError, ValueError) as error:
            raise FglauditError(f"OpenFHE's process must go on answering; got {error}; run again") from error
        if answer is None:
            raise FglauditError("OpenFHE's process must go on answering; it ended; is there enough memory? run again")
        if "error" in answer[0]:
            raise FglauditError(f"OpenFHE refused: {answer[0]['error']}; use fewer clients or homomorphic-encryption")
        return answer


def _ended(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        assert stream is not None
        stream.close()
    process.wait()
