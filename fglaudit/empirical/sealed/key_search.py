"""Could the server decrypt what it saw? Key material is searched for in everything that it got in the clear.

Looked for are the keys as bytes, and as numbers of one byte or one word each. A key that travels in another disguise
(scaled, permuted, encrypted under something public) is not found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from torch import Tensor

from fglaudit.defenses.aggregation.secure_aggregation import MaskingRound
from fglaudit.guarantees import Audit, AuditName, Outcome
from fglaudit.he.codec import Codec

_WINDOW = 24
"""Bytes of a key that are searched for at a time: 192 bits do not occur by chance."""
_WINDOWS = 8


def key_audit(clear: Sequence[tuple[str, Tensor]], codecs: Sequence[Codec], rounds: Sequence[MaskingRound]) -> Audit:
    """Return whether ``clear``, with its names, or what the server holds of the scheme contains key material."""
    keys = [needle for codec in codecs for needle in _of_codec(codec)]
    keys += [needle for current in rounds for needle in _of_round(current)]
    looked = 0
    for name, blob in _seen(clear, codecs, rounds):
        looked += len(blob)
        if any(needle in blob for needle in keys):
            return Audit(
                AuditName.KEY_MATERIAL,
                Outcome.REFUTED,
                f"the server got key material in {name}: it can read what is sealed",
            )
    return Audit(
        AuditName.KEY_MATERIAL, Outcome.PASSED, f"no key material in {looked} bytes that the server saw or holds"
    )


def _of_codec(codec: Codec) -> Iterator[bytes]:
    for blob, words in codec.key_material():
        yield from _windows(blob)
        raw = np.array(words, dtype=np.uint64)
        for kind, width in ((np.uint64, 8), (np.float64, 8), (np.float32, 4)):
            yield from _windows(raw.astype(kind).tobytes(), width)


def _of_round(current: MaskingRound) -> Iterator[bytes]:
    """Yield what the server must not have: keys of everybody but those for masks of members that dropped out, and
    seeds of those alone."""
    for number, member in enumerate(current.aggregation.members):
        mask, share, seed = member.key_material()
        yield share
        yield mask if number in current.aggregation.survivors else seed


def _windows(blob: bytes, width: int = 1) -> Iterator[bytes]:
    last = (len(blob) - _WINDOW) // width
    yield from (blob[at * width : at * width + _WINDOW] for at in np.linspace(0, last, _WINDOWS).astype(int).tolist())


def _seen(
    clear: Sequence[tuple[str, Tensor]], codecs: Sequence[Codec], rounds: Sequence[MaskingRound]
) -> Iterator[tuple[str, bytes]]:
    for name, value in clear:
        array = np.ascontiguousarray(value.numpy())
        yield name, array.tobytes()
        if array.dtype.kind in "fiu":
            whole = np.nan_to_num(array.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
            yield name, np.clip(np.rint(whole), 0, 255).astype(np.uint8).tobytes()
    yield from (("the parameters that it was given", codec.public_bytes()) for codec in codecs)
    for current in rounds:
        server = current.aggregation.server
        held = [*(keys.masks + keys.shares for keys in server.publics.values()), *server.routed.values()]
        held += [*server.seeds.values(), *(key.private_bytes_raw() for key in server.mask_keys.values())]
        yield "what it holds of an aggregation", b"|".join(held)
