"""What threshold encryption of sums costs: OpenFHE's BFV with a share of the key per client (the defense
``threshold-encryption``) beside the BFV with one key for all clients.

One million whole numbers per client, ten clients, sums up to 255, everything encrypted, added and opened; then FedGCN's
sums on Cora. OpenFHE runs in an interpreter of its own (:mod:`fglaudit.he.openfhe_process`); where there is none the
rows say so.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any

import torch

from fglaudit.datasets import DatasetSpec
from fglaudit.defenses.encryption.homomorphic_encryption import HomomorphicEncryption
from fglaudit.defenses.encryption.packed_session import PackedSession
from fglaudit.defenses.encryption.threshold_encryption import ThresholdEncryption
from fglaudit.defenses.none import NoDefense
from fglaudit.errors import FglauditError
from fglaudit.graph import FederatedGraph
from fglaudit.he.bfv import Bfv
from fglaudit.he.codec import Codec
from fglaudit.he.fixed_point import SLOT_BITS, FixedPoint, per_slot
from fglaudit.he.openfhe_process import missing
from fglaudit.he.threshold_bfv import SLOT_BITS as THRESHOLD_BITS
from fglaudit.he.threshold_bfv import WIDTHS, ThresholdBfv
from fglaudit.interfaces import Defense
from fglaudit.partition import PartitionSpec
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.rng import derive
from fglaudit.wire.channel import RecordingChannel

PARTIES, NUMBERS, BITS = 10, 1_000_000, 8
COUNTS = FixedPoint.of_counts(torch.tensor([2**BITS - 1.0]), signed=False, widths=WIDTHS)
CODECS: dict[str, Callable[[], Codec]] = {
    "one key for all": lambda: Bfv(4096, COUNTS),
    "a share per client": lambda: ThresholdBfv(PARTIES, COUNTS, PARTIES),
}
DEFENSES: dict[str, Defense] = {
    "plain float32": NoDefense(),
    "one key for all": HomomorphicEncryption(),
    "a share per client": ThresholdEncryption(),
}


def run(root: str | None) -> None:
    """Print both tables, or why a row is missing."""
    why = missing()
    print("| | MB up per client | MB of shares | CPU s: keys, encrypt, add, open | peak GB |\n|---|---|---|---|---|")
    for name, make in CODECS.items():
        if name == "a share per client" and why is not None:
            print(f"{name}: not measured: {why}")
            continue
        found = million(make)
        times = ", ".join(f"{found[step]:.2f}" for step in ("keys", "encrypt", "add", "open"))
        print(f"| {name} | {found['up'] / 1e6:.2f} | {found['shares'] / 1e6:.2f} | {times} | {found['peak']:.2f} |")
    print("\nCora, 10 clients (dirichlet, beta 10000), 1 hop, everything before the first round")
    print("| sums | | MB up | MB down | CPU s | peak GB |\n|---|---|---|---|---|---|")
    spec = DatasetSpec("cora", root=root)
    graph = PartitionSpec("dirichlet", PARTIES, 10000.0).apply(spec.load(), spec, derive(0, "partition"))
    for aggregate in ("counts", "normalised"):
        protocol = FedGCN(hops=1, aggregate=aggregate, rounds=1)
        for name, defense in DEFENSES.items():
            if name == "a share per client" and why is not None:
                print(f"{name}: not measured: {why}")
                continue
            print(f"| {aggregate} | {name} | {sums(protocol, graph, defense)} |")


def _spent(codec: Codec | None) -> tuple[float, float]:
    """Return processor seconds and peak gigabytes of this process, and of OpenFHE's."""
    here, peak = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    if not isinstance(codec, ThresholdBfv):
        return here, peak
    there, more = codec.spent()
    return here + there, peak + more


def million(make: Callable[[], Codec]) -> dict[str, float]:
    """Encrypt, add and open; every number is compared."""
    start, codec, found = time.process_time(), make(), dict[str, float]()

    def step(name: str, begun: float, result: Any) -> tuple[Any, float]:
        now, found["peak"] = _spent(codec)
        found[name] = now - begun
        return result, now

    _, now = step("keys", start, None)
    rng, slot_bits = derive(0, "sums"), THRESHOLD_BITS if isinstance(codec, ThresholdBfv) else SLOT_BITS
    room = codec.parameters.slots * per_slot(BITS, slot_bits)
    plain = [torch.randint(2**BITS // PARTIES, (-(-NUMBERS // room), room), generator=rng) for _ in range(PARTIES)]
    _, now = step("drawing", now, None)
    sent, now = step("encrypt", now, [codec.encrypt(values, BITS) for values in plain])
    totals, now = step("add", now, [codec.total(each) for each in zip(*sent, strict=True)])
    opened, _ = step("open", now, codec.decrypt(totals, BITS))
    if not torch.equal(opened, torch.stack(plain).sum(0)):
        raise FglauditError("sums must open to what was added; they do not")
    found["up"] = float(len(totals) * codec.parameters.fresh_bytes)
    found["shares"] = float(len(totals) * PARTIES * codec.share_bytes) if isinstance(codec, ThresholdBfv) else 0.0
    return found


def sums(protocol: FedGCN, graph: FederatedGraph, defense: Defense) -> str:
    """Return the bytes, seconds and memory of everything before the first round."""
    context, start = protocol.context(graph), time.process_time()
    session = defense.bind(context)
    channel = RecordingChannel(session, graph.num_clients, derive(0, "defense"))
    protocol.pretrain(graph, channel, torch.device("cpu"))
    sealers = session.sealers.values() if isinstance(session, PackedSession) else ()
    seconds, peak = _spent(next((getattr(sealer, "codec", None) for sealer in sealers), None))
    up, down = (int(size.sum()) / 1e6 for size in (channel.bytes_up, channel.bytes_down))
    return f"{up:.1f} | {down:.1f} | {seconds - start:.1f} | {peak:.2f}"
