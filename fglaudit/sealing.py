"""Values that the party computing on them cannot read: ciphertexts, or shares that mean nothing until they are summed.

A server that only adds rows, multiplies them by public numbers, picks some and passes them on runs the same lines of
code on a :class:`SealedTensor` as on a plain tensor. Anything else it might ask of one - a value, a norm, a product of
two - is an error that names the operation: what a protocol's server does beyond linear algebra cannot be hidden from it
this way.

How rows are hidden is defined by a :class:`SealedRows`, one subclass per scheme.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fglaudit.errors import FglauditError
from fglaudit.sparse_tensors import coo


class SealedRows(ABC):
    """R rows of D numbers each that cannot be read without a key (or not at all before they are added up)."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """(R, D)."""

    @abstractmethod
    def combine(self, weights: Tensor) -> SealedRows:
        """Return ``weights @ rows``.

        Args:
            weights: public numbers [R', R], sparse COO, coalesced, float64. An output row without entries is a row of
                zeros.

        Raises:
            FglauditError: if the scheme cannot do it: other weights than 0 and 1, too many summands.
        """

    @abstractmethod
    def add(self, other: SealedRows) -> SealedRows:
        """Return the sum with ``other``, of the same scheme, keys and shape."""

    def join(self, count: int) -> SealedRows:
        """Return rows [R / count, count x D]: every ``count`` rows one behind the other.

        Raises:
            FglauditError: if the scheme cannot do it.
        """
        raise _refusal("joining of rows into longer ones")

    @abstractmethod
    def wire_bytes(self, splits: Tensor) -> Tensor:
        """Return the bytes [P] of messages, the p-th of which carries the rows ``splits[p]:splits[p + 1]``."""


class SealedTensor(Tensor):
    """A tensor [R, ...] whose values are in ``sealed``: it has a shape and a type, supports linear operations on its
    leading axis, and nothing else. Make one with :func:`sealed_tensor`.

    Supported: ``+`` of two of them, ``*`` and ``/`` by public numbers (one, or one per row), ``weights @ t``,
    ``t.sum(0)``, ``t.mean(0)``, ``t[rows]``, ``torch.index_add(zeros, 0, index, t)``, ``t.expand(K, -1)`` of one row,
    reshaping behind the leading axis, ``t.view(R', r, D)`` of rows [R' r, D] that a scheme can join, ``t.movedim``
    behind the leading axis, changes of type or device (which change nothing).

    Attributes:
        axes: order of the axes in which the rows' entries are shown, where ``movedim`` changed it.
    """

    sealed: SealedRows
    axes: tuple[int, ...] | None = None

    def opened(self, values: Tensor) -> Tensor:
        """Return ``values`` [R, D] of the rows as this tensor: in its shape and of its type."""
        shape = tuple(self.shape)
        if self.axes is None:
            return values.reshape(shape).to(self.dtype)
        stored = [shape[self.axes.index(axis)] for axis in range(len(shape))]
        return values.reshape(stored).permute(self.axes).to(self.dtype)

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func in _SHAPES:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        handler = _LINEAR.get(func)
        if handler is None:
            raise _refusal(getattr(func, "__name__", str(func)))
        return handler(*args, **(kwargs or {}))

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"SealedTensor{tuple(self.shape)}"


def sealed_tensor(
    rows: SealedRows,
    shape: tuple[int, ...] | None = None,
    dtype: torch.dtype = torch.float32,
    axes: tuple[int, ...] | None = None,
) -> SealedTensor:
    """Return ``rows`` [R, D] as a tensor of ``shape``: [R, D], [R, ...] with D entries a row, or [D] if R is 1."""
    tensor = torch.empty(rows.shape if shape is None else shape, dtype=dtype, device="meta").as_subclass(SealedTensor)
    tensor.sealed, tensor.axes = rows, axes
    return tensor


def _refusal(operation: str) -> FglauditError:
    return FglauditError(
        f"sealed values can be added, picked and multiplied by public numbers; {operation} was asked of them; "
        "the protocol's server must do without it, or the payload must travel unsealed"
    )


def _sparse(rows: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    return coo(torch.stack([rows.cpu(), columns.cpu()]), values.double().cpu(), shape).coalesce()


def _count(t: SealedTensor) -> int:
    return t.sealed.shape[0]


def _combined(t: SealedTensor, weights: Tensor, shape: tuple[int, ...]) -> SealedTensor:
    return sealed_tensor(t.sealed.combine(weights), shape, t.dtype, t.axes)


def _add(a: Any, b: Any) -> SealedTensor:
    if not (isinstance(a, SealedTensor) and isinstance(b, SealedTensor)) or a.shape != b.shape or a.axes != b.axes:
        raise _refusal("addition to a public tensor, or of different shapes,")
    return sealed_tensor(a.sealed.add(b.sealed), tuple(a.shape), a.dtype, a.axes)


def _add_in_place(a: SealedTensor, b: Any) -> SealedTensor:
    a.sealed = _add(a, b).sealed
    return a


def _scaled(t: SealedTensor, factor: Tensor) -> SealedTensor:
    """Multiply by one number, or by one per row [R, 1, ...]."""
    count = _count(t)
    if factor.numel() not in (1, count):
        raise _refusal(f"a product with numbers of shape {tuple(factor.shape)}")
    at = torch.arange(count)
    return _combined(t, _sparse(at, at, factor.detach().reshape(-1).expand(count), (count, count)), tuple(t.shape))


def _multiply(a: Any, b: Any) -> SealedTensor:
    if isinstance(a, SealedTensor) and isinstance(b, SealedTensor):
        raise _refusal("a product of two sealed tensors")
    t, factor = (a, b) if isinstance(a, SealedTensor) else (b, a)
    return _scaled(t, torch.as_tensor(factor, dtype=torch.float64))


def _divide(t: Any, divisor: Any) -> SealedTensor:
    if not isinstance(t, SealedTensor):
        raise _refusal("division by it")
    return _scaled(t, 1 / torch.as_tensor(divisor, dtype=torch.float64))


def _matmul(weights: Any, t: Any) -> SealedTensor:
    if not isinstance(t, SealedTensor) or isinstance(weights, SealedTensor) or t.dim() != 2:
        raise _refusal("a matrix product other than public weights @ sealed rows")
    matrix = weights.detach().double().cpu()
    matrix = matrix.coalesce() if matrix.is_sparse else matrix.reshape(-1, _count(t)).to_sparse_coo().coalesce()
    return _combined(t, matrix, (*weights.shape[:-1], *t.shape[1:]))


def _total(t: SealedTensor, factor: float) -> SealedTensor:
    count, at = _count(t), torch.arange(_count(t))
    return _combined(t, _sparse(torch.zeros_like(at), at, torch.full((count,), factor), (1, count)), tuple(t.shape[1:]))


def _sum(t: SealedTensor, dim: int, *, dtype: torch.dtype | None = None) -> SealedTensor:
    if dim != 0:
        raise _refusal("a sum along another axis than the first")
    return _total(t, 1.0)


def _mean(t: SealedTensor, dim: int) -> SealedTensor:
    if dim != 0:
        raise _refusal("a mean along another axis than the first")
    return _total(t, 1 / _count(t))


def _index_add(start: Any, dim: int, index: Tensor, source: Any) -> SealedTensor:
    if dim != 0 or not isinstance(source, SealedTensor) or isinstance(start, SealedTensor) or bool(start.any()):
        raise _refusal("index_add to anything but public zeros along the first axis")
    weights = _sparse(index, torch.arange(len(index)), torch.ones(len(index)), (len(start), len(index)))
    return _combined(source, weights, (len(start), *source.shape[1:]))


def _getitem(t: SealedTensor, index: Any) -> SealedTensor:
    count = _count(t)
    if isinstance(index, (tuple, int)):
        raise _refusal("picking other things than rows")
    chosen = torch.arange(count)[index.cpu() if isinstance(index, Tensor) else index]
    weights = _sparse(torch.arange(len(chosen)), chosen, torch.ones(len(chosen)), (len(chosen), count))
    return _combined(t, weights, (len(chosen), *t.shape[1:]))


def _expand(t: SealedTensor, *sizes: Any) -> SealedTensor:
    copies = int((sizes[0] if isinstance(sizes[0], (tuple, list, torch.Size)) else sizes)[0])
    if _count(t) != 1:
        raise _refusal("a copy of several rows")
    weights = _sparse(torch.arange(copies), torch.zeros(copies, dtype=torch.long), torch.ones(copies), (copies, 1))
    return _combined(t, weights, (copies, t.sealed.shape[1]))


def _reshape(t: SealedTensor, *sizes: Any) -> SealedTensor:
    count = _count(t)
    with torch._C.DisableTorchFunctionSubclass():
        shape = tuple(torch.empty(tuple(t.shape), device="meta").reshape(*sizes).shape)
    if t.axes is not None:
        raise _refusal("reshaping after movedim")
    if shape[0] == count or (count == 1 and len(shape) == 1):
        return sealed_tensor(t.sealed, shape, t.dtype)
    if len(shape) > 2 and count % shape[0] == 0 and shape[-1] == t.sealed.shape[1]:
        return sealed_tensor(t.sealed.join(count // shape[0]), shape, t.dtype)
    raise _refusal("reshaping of its rows")


def _movedim(t: SealedTensor, source: int, destination: int) -> SealedTensor:
    order = list(range(t.dim()))
    order.insert(destination % t.dim(), order.pop(source % t.dim()))
    if order[0] != 0 or t.axes is not None:
        raise _refusal("movedim of its rows, or a second one,")
    return sealed_tensor(t.sealed, tuple(t.shape[axis] for axis in order), t.dtype, tuple(order))


def _flatten(t: SealedTensor, start_dim: int = 0, end_dim: int = -1) -> SealedTensor:
    if (start_dim, end_dim) != (1, -1):
        raise _refusal("flattening of its rows")
    return _reshape(t, len(t), -1)


def _same(t: SealedTensor, *args: Any, **kwargs: Any) -> SealedTensor:
    return t


_SHAPES: frozenset[Any] = frozenset(
    {
        Tensor.shape.__get__,  # type: ignore[attr-defined]
        Tensor.dtype.__get__,  # type: ignore[attr-defined]
        Tensor.ndim.__get__,  # type: ignore[attr-defined]
        Tensor.requires_grad.__get__,  # type: ignore[attr-defined]
        Tensor.size,
        Tensor.dim,
        Tensor.numel,
        Tensor.stride,
        Tensor.element_size,
        Tensor.is_floating_point,
        Tensor.__len__,
    }
)
_LINEAR: dict[Any, Callable[..., Any]] = {
    # It has no values on any device; public numbers combined with it must be where the combining happens.
    Tensor.device.__get__: lambda t: torch.device("cpu"),
    Tensor.is_meta.__get__: lambda t: False,  # type: ignore[attr-defined]
    **dict.fromkeys((torch.add, Tensor.add, Tensor.__add__, Tensor.__radd__), _add),
    **dict.fromkeys((Tensor.add_, Tensor.__iadd__), _add_in_place),
    **dict.fromkeys((torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__), _multiply),
    **dict.fromkeys((torch.div, Tensor.div, Tensor.__truediv__), _divide),
    **dict.fromkeys((torch.matmul, torch.mm, Tensor.matmul, Tensor.mm, Tensor.__matmul__), _matmul),
    Tensor.__rmatmul__: lambda t, weights: _matmul(weights, t),
    **dict.fromkeys((torch.sum, Tensor.sum), _sum),
    **dict.fromkeys((torch.mean, Tensor.mean), _mean),
    **dict.fromkeys((torch.index_add, Tensor.index_add), _index_add),
    Tensor.__getitem__: _getitem,
    Tensor.expand: _expand,
    **dict.fromkeys((torch.reshape, Tensor.reshape, Tensor.view), _reshape),
    **dict.fromkeys((torch.flatten, Tensor.flatten), _flatten),
    **dict.fromkeys((torch.movedim, Tensor.movedim), _movedim),
    **dict.fromkeys(
        (
            Tensor.to,
            Tensor.float,
            Tensor.double,
            Tensor.cpu,
            Tensor.detach,
            Tensor.contiguous,
            Tensor.clone,
            torch.clone,
        ),
        _same,
    ),
}
