"""A device of pretence: it computes on the CPU, says that it is elsewhere, and refuses what a GPU refuses.

Inside ``with pretending() as traffic:`` the device ``PRETEND`` can be used as ``cuda:0`` can. An operation on tensors
of two devices, a generator of another device than the tensor that it fills, and ``.numpy()`` of a tensor on the device
raise :class:`RefusedError`, where a GPU raises as well. ``traffic`` counts what crosses between the two memories.
Numbers are those of the CPU: the same seed gives the same values on both, so results can be compared bit for bit.

It rests on torch's Python backend for ``PrivateUse1``, which is experimental; where torch is too old to have one, or
beside a GPU, :func:`pretending` skips the test and says why. What it cannot show: ``numpy()`` that a
library calls inside, pinned memory, branches on ``device.type == "cuda"``, races between streams, and COO tensors,
which claim to be strided here; code that runs on devices uses CSR (:mod:`fglaudit.nn.sparse`).
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

NAME, WHY_NOT = "privateuseone", ""
"""The device's kind, and why it cannot be used here; "" where it can."""
if torch.cuda.is_available():
    WHY_NOT = "this machine has a GPU, and gradients on it fail in a process with another kind of device beside it"
else:
    try:
        from torch.utils.backend_registration import _setup_privateuseone_for_python_backend
    except ImportError:
        WHY_NOT = f"torch {torch.__version__} has no Python backends"
    else:
        NAME = "pretend"
        _setup_privateuseone_for_python_backend(NAME)
PRETEND = torch.device(NAME, 0)
CPU = torch.device("cpu")

_COPIES = frozenset({"_to_copy", "copy_", "copy", "_copy_from"})
_INDEXED = frozenset({"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put"})
_WAITS = frozenset(
    {
        "nonzero",
        "_unique2",
        "unique_dim",
        "unique_consecutive",
        "masked_select",
        "repeat_interleave",
        "bincount",
        "equal",
    }
)


class RefusedError(RuntimeError):
    """Something that a GPU refuses."""


@dataclass
class Traffic:
    """What crossed so far.

    Attributes:
        up, down: copies to the device and from it.
        scalars: single numbers that were asked for: ``.item()``, ``bool(t)``, ``.tolist()``.
        waits: operations whose result has a size that the host must wait for, such as ``nonzero``.
        operations: what the device computed.
    """

    up: int = 0
    down: int = 0
    scalars: int = 0
    waits: int = 0
    operations: int = field(default=0, compare=False)

    def total(self) -> int:
        """Everything that makes host and device wait for each other."""
        return self.up + self.down + self.scalars + self.waits


_open: list[Traffic] = []


def _note(kind: str) -> None:
    for traffic in _open:
        setattr(traffic, kind, getattr(traffic, kind) + 1)


class DeviceTensor(Tensor):
    """A tensor on the device; ``held`` has its values."""

    held: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, held: Tensor) -> DeviceTensor:
        where: dict[str, Any] = {}
        if held.layout is torch.strided:
            where = {"strides": held.stride(), "storage_offset": held.storage_offset()}
        made = Tensor._make_wrapper_subclass(
            cls, held.shape, dtype=held.dtype, layout=torch.strided, device=PRETEND, requires_grad=False, **where
        )
        made.held = held
        return made

    def tolist(self) -> Any:
        _note("scalars")
        return self.held.tolist()

    def numpy(self, *_: Any, **__: Any) -> Any:
        raise RefusedError(f"can't convert a tensor on {PRETEND} to numpy; use Tensor.cpu() first")

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"{self.held!r} on {PRETEND}"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return _execute(func, args, kwargs or {})


# It stands for torch's own tensors: who asks by whom a session's objects were written is told so.
DeviceTensor.__module__ = "torch"
torch.DeviceTensor = DeviceTensor  # type: ignore[attr-defined]


class DeviceGenerator(torch.Generator):
    """A generator of the device. Operators get another object for the same generator: ``_cdata`` tells which one."""

    def __init__(self) -> None:
        _made[self._cdata] = self  # type: ignore[attr-defined]

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return PRETEND


_made: weakref.WeakValueDictionary[int, DeviceGenerator] = weakref.WeakValueDictionary()


class _Generators(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _REAL_GENERATOR)


_REAL_GENERATOR = torch.Generator


class _Generator(metaclass=_Generators):
    """Stands in for ``torch.Generator``, which makes none for a backend that has no C++ side."""

    def __new__(cls, device: torch.device | str = "cpu") -> Any:
        return DeviceGenerator() if torch.device(device).type == NAME else _REAL_GENERATOR(device)


def _execute(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run one operator on the CPU, if a GPU would run it."""
    tensors = [value for value in _leaves((*args, *kwargs.values())) if isinstance(value, Tensor)]
    held = {id(value.held): value for value in tensors if isinstance(value, DeviceTensor)}
    wanted = kwargs.get("device")
    goes_up = bool(held) if wanted is None else torch.device(wanted).type == NAME
    if not held and not goes_up and not _made:
        return func(*args, **kwargs)
    name = func.overloadpacket.__name__
    if name.startswith("copy") and wanted is None:
        goes_up = isinstance(args[0], DeviceTensor)
    if held:
        _check_devices(name, tensors, args)
    _check_generator(name, kwargs, bool(held) or goes_up, args)
    _count(name, tensors, goes_up, bool(held), args, kwargs)
    plain = {key: _plain(value) for key, value in kwargs.items()}
    if "pin_memory" in plain:
        plain["pin_memory"] = False
    result = func(*(_plain(value) for value in args), **plain)
    return _placed(result, held) if goes_up else result


def _leaves(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, tuple | list):
            yield from _leaves(value)
        else:
            yield value


def _plain(value: Any) -> Any:
    if isinstance(value, DeviceTensor):
        return value.held
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    return CPU if isinstance(value, torch.device) else value


def _placed(value: Any, held: dict[int, DeviceTensor]) -> Any:
    if isinstance(value, tuple | list):
        return type(value)(_placed(one, held) for one in value)
    if not isinstance(value, Tensor):
        return value
    return held[id(value)] if id(value) in held else DeviceTensor(value)  # what works in place returns its input


def _check_devices(name: str, tensors: list[Tensor], args: Any) -> None:
    if name in _COPIES:
        return
    free: set[int] = set()
    if name in _INDEXED and isinstance(args[0], DeviceTensor):  # indices may lie on the CPU, here alone
        free = {id(index) for index in args[1] if index is not None}
    for tensor in tensors:
        # A number on the CPU may meet tensors on a device; anything with a shape may not.
        if not isinstance(tensor, DeviceTensor) and tensor.dim() > 0 and id(tensor) not in free:
            raise RefusedError(f"{name} needs all tensors on one device; got {PRETEND} and cpu")
    if name in _INDEXED and not isinstance(args[0], DeviceTensor):
        raise RefusedError(f"{name} of a tensor on the cpu takes no index on {PRETEND}")


def _check_generator(name: str, kwargs: dict[str, Any], on_device: bool, args: Any) -> None:
    for value in (*kwargs.values(), *args):
        if isinstance(value, _REAL_GENERATOR) and (value._cdata in _made) != on_device:  # type: ignore[attr-defined]
            wanted, got = (PRETEND, CPU) if on_device else (CPU, PRETEND)
            raise RefusedError(f"{name} needs a generator on {wanted}; got one on {got}")


def _count(name: str, tensors: list[Tensor], goes_up: bool, came_from: bool, args: Any, kwargs: Any) -> None:
    _note("operations")
    if name in _COPIES:
        source = args[1] if name != "_to_copy" and len(args) > 1 else args[0]
        from_device = isinstance(source, DeviceTensor)
        if goes_up != from_device:
            _note("up" if goes_up else "down")
    elif not came_from:
        return
    elif name == "_local_scalar_dense":
        _note("scalars")
    elif name == "repeat_interleave" and kwargs.get("output_size") is not None:
        return  # the size of the result is told
    elif name in _WAITS or (name in _INDEXED and any(t.dtype in (torch.bool, torch.uint8) for t in tensors[1:])):
        _note("waits")


class _Everywhere(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _execute(func, args, kwargs or {})


@contextlib.contextmanager
def pretending() -> Iterator[Traffic]:
    """Make ``PRETEND`` usable, and yield what crosses to and from it."""
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    traffic = Traffic()
    lifted = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(list, device=) by way of the CPU
    torch.Generator = _Generator  # type: ignore[assignment, misc]
    _open.append(traffic)
    try:
        with _Everywhere():  # type: ignore[no-untyped-call]
            yield traffic
    finally:
        _open.remove(traffic)
        torch.Generator = _REAL_GENERATOR  # type: ignore[misc]
        torch._C._set_only_lift_cpu_tensors(lifted)
