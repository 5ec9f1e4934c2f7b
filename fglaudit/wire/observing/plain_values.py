"""What a hook returns, as plain tensors: an object that answers otherwise the second time is compared as one thing and
recorded as another.

Classes of tensors that a hook was given, it may return: a backend may have one of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, TypeVar

from torch import Tensor
from torch.nn import Parameter

from fglaudit.errors import FglauditError
from fglaudit.graph import ClientGraph
from fglaudit.payloads import Payload
from fglaudit.sealing import SealedTensor

P = TypeVar("P", bound=Payload)
_KINDS = (Tensor, Parameter, SealedTensor)


def plain_payload(payload: P, given: Iterable[Tensor] = ()) -> P:
    """Return ``payload`` with its own fields alone, and none of the methods that a hook gave that one object.

    Raises:
        FglauditError: a field is missing, or no plain tensor.
    """
    if not isinstance(payload, Payload):
        raise FglauditError(
            f"release returns a payload; got {type(payload).__name__}; return batch.payload or one made of it"
        )
    held, kind, known = vars(payload), type(payload), tuple(given)
    names = [field.name for field in dataclasses.fields(payload)]  # type: ignore[arg-type]
    return kind.from_tensors({name: plain_tensor(held.get(name), f"{kind.__name__}.{name}", known) for name in names})


def plain_client(client: ClientGraph, given: Iterable[Tensor] = ()) -> ClientGraph:
    """Return ``client`` with its own fields alone, of the class :class:`ClientGraph` itself.

    Raises:
        FglauditError: it is none, or a field is a tensor that is not plain.
    """
    if not isinstance(client, ClientGraph):
        raise FglauditError(
            f"prepare returns a client's graph; got {type(client).__name__}; change client by dataclasses.replace"
        )
    held, known = vars(client), tuple(given)
    fields: dict[str, Any] = {field.name: held[field.name] for field in dataclasses.fields(ClientGraph)}
    tensors = {
        name: plain_tensor(value, f"ClientGraph.{name}", known)
        for name, value in fields.items()
        if isinstance(value, Tensor)
    }
    return ClientGraph(**(fields | tensors))


def plain_tensor(value: object, what: str, given: Iterable[Tensor] = ()) -> Tensor:
    """Return ``value``, where it is a tensor of no class of an author's own, without what was written on it."""
    if type(value) not in _KINDS and type(value) not in map(type, given):
        raise FglauditError(
            f"what leaves a hook are plain tensors; {what} is {type(value).__name__}; return torch.Tensor,"
            " e.g. value.as_subclass(torch.Tensor)"
        )
    assert isinstance(value, Tensor)
    return value.detach() if type(value) is Tensor and (vars(value) or value.requires_grad) else value
