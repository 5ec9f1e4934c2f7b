"""What threshold encryption of sums would cost: OpenFHE's BFV with a share of the key per client, beside this
repository's BFV with one key for all clients.

One million whole numbers per client, ten clients, sums up to 255, everything encrypted, added and opened. OpenFHE's
wheels for Linux hold a library for one Python each (3.10 and 3.12), so it runs in an interpreter of its own:
``$FGLAUDIT_OPENFHE_PYTHON``, e.g. that of a virtual environment with ``pip install openfhe``. Where there is none the
measurement says so and ends.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import time
from pathlib import Path
from typing import Any

import torch

from fglaudit.errors import FglauditError
from fglaudit.he.bfv import Bfv
from fglaudit.he.fixed_point import FixedPoint, per_slot
from fglaudit.rng import derive

PARTIES, NUMBERS, BITS = 10, 1_000_000, 8
PYTHON = "FGLAUDIT_OPENFHE_PYTHON"
WORKER = Path(__file__).with_name("openfhe_sums.py")


def run() -> None:
    """Print both measurements, or why one is missing."""
    mega = 1e6
    print("| | MB up per client | MB of shares | CPU s: keys, encrypt, add, open | peak GB |\n|---|---|---|---|---|")
    try:
        found = shared_key()
        up = found["ciphertexts"] * found["bytes"]["ciphertext"] / mega
        print(f"| one key for all (TenSEAL) | {up:.2f} | none | {_times(found)} | {found['peak_gb']:.2f} |")
    except ImportError as error:
        print(f"one key for all: not measured: {error}")
    try:
        found = threshold()
    except FglauditError as error:
        print(f"a share per client: not measured: {error}")
        return
    sizes, count = found["bytes"], found["ciphertexts"]
    print(
        f"| a share of the key per client (OpenFHE) | {count * sizes['ciphertext'] / mega:.2f} |"
        f" {PARTIES * count * sizes['share'] / mega:.2f} | {_times(found)} | {found['peak_gb']:.2f} |"
    )
    print(
        f"opened with all {PARTIES} shares: {100 * found['opened_by_all']:.1f} %, with {PARTIES - 1}:"
        f" {100 * found['opened_without_one']:.1f} %"
    )


def _times(found: dict[str, Any]) -> str:
    return ", ".join(f"{found['seconds'][name]:.2f}" for name in ("keys", "encrypt", "add", "open"))


def threshold() -> dict[str, Any]:
    """Return what OpenFHE measured in its own interpreter.

    Raises:
        FglauditError: if there is none, or it fails.
    """
    python = os.environ.get(PYTHON, "")
    if not python:
        raise FglauditError(
            f"OpenFHE has no wheel for every Python; {PYTHON} names an interpreter that has it, and is not set; make an"
            " environment of Python 3.10 with `pip install openfhe` and set it"
        )
    command = [python, str(WORKER), str(PARTIES), str(NUMBERS), str(BITS)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    except (OSError, subprocess.SubprocessError) as error:
        last = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1]
        raise FglauditError(f"{PYTHON} must run OpenFHE; got {last!r}; install openfhe there") from error
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    found["seconds"]["open"] = found["seconds"]["shares"] + found["seconds"]["join"]
    return found


def shared_key() -> dict[str, Any]:
    """Return the same of :class:`fglaudit.he.bfv.Bfv`, whose clients share one key; fresh ciphertexts travel with a
    seed in place of half their numbers."""
    rng, spent, start = derive(0, "sums"), {}, time.process_time()
    codec = Bfv(4096, FixedPoint.of_counts(torch.tensor([2**BITS - 1.0]), signed=False))
    spent["keys"] = time.process_time() - start
    largest = 2**BITS // PARTIES
    room = codec.parameters.slots * per_slot(BITS)
    plain = [torch.randint(largest, (-(-NUMBERS // room), room), generator=rng) for _ in range(PARTIES)]
    start = time.process_time()
    sent = [codec.encrypt(values, BITS) for values in plain]
    spent["encrypt"], start = time.process_time() - start, time.process_time()
    sums = sent[0]
    for other in sent[1:]:
        for total, ciphertext in zip(sums, other, strict=True):
            codec.server.evaluator.add_inplace(total, ciphertext)
    spent["add"], start = time.process_time() - start, time.process_time()
    opened = codec.decrypt(sums, BITS)
    spent["open"] = time.process_time() - start
    if not torch.equal(opened, torch.stack(plain).sum(0)):
        raise FglauditError("sums must open to what was added; they do not")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    sizes = {"ciphertext": codec.parameters.fresh_bytes}
    return {"ciphertexts": len(sums), "bytes": sizes, "seconds": spent, "peak_gb": peak}
