"""Messages with all that was learned of a defense undone, payload by payload."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from fglaudit.attacks.learned.cleaned_messages import CleanedMessages
from fglaudit.attacks.learned.cleaning import PublicMaps, are_totals, learn_maps, public_maps
from fglaudit.attacks.learned.probes import is_large
from fglaudit.payloads import Payload, RawFeatures
from fglaudit.rng import split
from fglaudit.view import View


@dataclass(frozen=True)
class Undone:
    """What is left of a defense.

    Attributes:
        cleaned: the view with every payload cleaned of which something was learned.
        uploads: the same, but what the server made of hidden parts is as it was sent.
        payloads: those that were cleaned.
        left: root mean square of what cleaning left, by payload and field, where it is more than the wire's precision.
        of_run: whether any map is a secret of the run: more known rows may tell more of it.
        public: what the public code alone told, by payload: no row that is known changes it.
    """

    cleaned: View
    uploads: View
    payloads: tuple[type[Payload], ...]
    left: Mapping[tuple[str, str], float]
    of_run: bool
    public: Mapping[type[Payload], PublicMaps]


def undone(
    view: View,
    seen: Sequence[type[Payload]],
    rng: torch.Generator,
    device: torch.device,
    before: Mapping[type[Payload], PublicMaps] | None = None,
) -> Undone:
    """Learn what was done to the payloads ``seen``, and undo it.

    Args:
        before: what the public code told when other rows were known.
    """
    public = dict(before or {})
    cleaned, uploads, payloads = view, view, []
    left: dict[tuple[str, str], float] = {}
    of_run = False
    large = any(is_large(view.messages.of(payload)) for payload in seen)  # a rehearsal makes them all
    for payload in seen:
        learning = split(rng, payload.__name__)
        if payload not in public:
            public[payload] = public_maps(view, payload, split(learning, "public"), device, large=large)
        maps = learn_maps(view, payload, public[payload], split(learning, "known rows"), device)
        if not maps:
            continue
        totals = are_totals(view, payload, maps, split(rng, "totals"))
        messages = CleanedMessages(cleaned.messages, payload, maps, view.public.num_features, totals)
        cleaned = dataclasses.replace(cleaned, messages=messages)
        if payload is not RawFeatures and all(upwards for upwards, _ in maps):
            own = CleanedMessages(uploads.messages, payload, maps, view.public.num_features)
            uploads = dataclasses.replace(uploads, messages=own)
        payloads.append(payload)
        left |= {(payload.__name__, n): m.left for (_, n), m in maps.items() if m.coarse}
        of_run = of_run or any(m.of_run for m in maps.values())
    return Undone(cleaned, uploads, tuple(payloads), left, of_run, public)
