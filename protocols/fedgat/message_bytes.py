"""How large FedGAT's masked messages are: refused where they cannot be made, told where very many are sent."""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.federated.needs import refuse_made, refuse_memory
from fglaudit.protocols.fedgat.masking import Masked, node_bytes


def bytes_by_size(sizes: Tensor, features: int, masked: type[Masked]) -> dict[int, int]:
    """Return the bytes of all messages about neighbourhoods of ``sizes`` [n], by size."""
    each, count = torch.unique(sizes, return_counts=True)
    pairs = zip(each.tolist(), count.tolist(), strict=True)
    return {size: number * node_bytes(size, features, masked) for size, number in pairs}


def refuse_too_large(protocol: str, graph: str, sizes: Tensor, features: int, masked: type[Masked]) -> None:
    """Raise :class:`FglauditError` if messages about neighbourhoods of ``sizes`` [n] are too large to be made."""
    made = bytes_by_size(sizes, features, masked)
    what, fix = masked.__name__, "use variant: vector, a sparser graph, or attacks that do not read them"
    refuse_made(protocol, graph, sum(made.values()), what, fix)
    largest = 2 * node_bytes(max(made, default=0), features, masked)  # the message, and a copy on its way
    refuse_memory(protocol, graph, largest, f"the largest of its {what}", fix)


def how_to_send_less(variant: str, remote: str) -> str:
    """Return which fields send less, as far as they are not set already."""
    options = ["variant: vector"] if variant == "matrix" else []
    options += ["remote: embeddings"] if remote == "matrices" else []
    return f"use {', '.join([*options, 'a sparser graph or fewer clients'])}"
