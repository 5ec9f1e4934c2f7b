"""A mechanism of a user's own, called as it is: a function, or a class of which every replay makes a new object."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from fglaudit.errors import FglauditError, shown, unknown
from fglaudit.plugins.modules import load_file
from fglaudit.tracebacks import place

MOST_NUMBERS = 4096
"""Numbers of one answer that are looked at; its length counts too."""


@dataclass(frozen=True)
class Seen:
    """What replays of one world showed.

    Attributes:
        values: of the answers [copies, T, C], in double precision; shorter ones end with zeros.
        lengths: how many numbers an answer had [copies, T].
        floating: whether answers are floating-point numbers, and of which precision, in bits; 0 where they are not.
    """

    values: Tensor
    lengths: Tensor
    floating: int


@dataclass(frozen=True)
class AuditedMechanism:
    """How to call it.

    Attributes:
        made: the function, or the class: a new object, made without arguments, answers all calls of one replay.
        numpy: hand over arrays and a ``numpy.random.Generator`` in place of tensors and a ``torch.Generator``.
    """

    made: Callable[..., Any]
    numpy: bool = False

    def takes_generator(self) -> bool:
        """Return whether it has a second parameter, which is given a generator."""
        called: Any = self.made.__call__ if inspect.isclass(self.made) else self.made
        try:
            parameters = list(inspect.signature(called).parameters.values())
        except (TypeError, ValueError):  # written in C: numpy's own functions
            return False
        parameters = parameters[1:] if inspect.isclass(self.made) else parameters  # without self
        required = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        if not parameters or len(required) > 2 or any(p.kind is p.KEYWORD_ONLY for p in required):
            raise FglauditError(
                "a mechanism is called with an input, and with a generator if it has a second parameter; got"
                f" {shown(str(inspect.signature(called)))}; wrap it, e.g. def mechanism(x, rng): ..."
            )
        places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        return len(places) > 1

    def replays(self, inputs: Sequence[Tensor], releases: int, rng: torch.Generator) -> Seen:
        """Return what independent replays of ``releases`` calls each answer, one to each of ``inputs``.

        Raises:
            FglauditError: if it raises, or answers with something that holds no numbers.
        """
        if self.numpy:
            seed = int(torch.randint(2**62, (), generator=rng))
            generator: Any = np.random.default_rng(seed)
        else:
            generator = rng
        more = (generator,) if self.takes_generator() else ()
        answers: list[list[Tensor]] = []
        floating = 0
        for given in inputs:
            answer = self._made()
            released: list[Tensor] = []
            for _ in range(releases):
                numbers = _numbers(self._called(answer, given, more))
                floating = max(floating, torch.finfo(numbers.dtype).bits if numbers.is_floating_point() else 0)
                released.append(numbers[:MOST_NUMBERS])
            answers.append(released)
        lengths = torch.tensor([[len(one) for one in released] for released in answers])
        flat = [one.double() for released in answers for one in released]
        padded = torch.nn.utils.rnn.pad_sequence(flat, batch_first=True)
        return Seen(padded.reshape(len(inputs), releases, -1), lengths, floating)

    def _made(self) -> Callable[..., Any]:
        made: Any = self.made
        if not inspect.isclass(made):
            return self.made
        try:
            made = made()
        except Exception as error:
            raise _failed("is made without arguments", error) from error
        return cast("Callable[..., Any]", made)

    def _called(self, answer: Callable[..., Any], given: Tensor, more: tuple[Any, ...]) -> Any:
        handed = given.clone()  # it may write into what it is given
        try:
            return answer(handed.numpy() if self.numpy else handed, *more)
        except Exception as error:
            raise _failed(f"answers every input, here one of shape {tuple(given.shape)}", error) from error


def named(name: str) -> Callable[..., Any]:
    """Return the callable that ``path/to/file.py:name`` or ``module:name`` names; its module runs.

    Raises:
        FglauditError: if there is none.
    """
    home, colon, attribute = name.rpartition(":")
    if not (home and colon and attribute):
        raise FglauditError(
            f"a mechanism is given as file.py:name or module:name; got {shown(name)}; write e.g. my_noise.py:noise"
        )
    if home.endswith(".py"):
        module = load_file(Path(home))
    else:
        try:
            module = import_module(home)
        except Exception as error:
            raise FglauditError(
                f"a module must be installed and import without error; {shown(home)} raises {type(error).__name__}:"
                f" {error}{place(error)}; give a file as file.py:name"
            ) from error
    found: Callable[..., Any] | None = getattr(module, attribute, None)
    if not callable(found):
        callables = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise unknown(f"mechanism of {home}", attribute, callables)
    return found


def _failed(rule: str, error: Exception) -> FglauditError:
    return FglauditError(f"a mechanism {rule}; it raised {type(error).__name__}: {error}{place(error)}; correct it")


def _numbers(answer: Any) -> Tensor:
    """Return all numbers of an answer [C], of the widest type among them."""
    parts = list(_parts(answer))
    return torch.cat(parts) if parts else torch.zeros(0)


def _parts(answer: Any) -> Iterable[Tensor]:
    if isinstance(answer, Tensor):
        yield answer.detach().cpu().flatten()
    elif isinstance(answer, np.ndarray | np.generic | float | int | bool):
        if np.asarray(answer).dtype.kind not in "fiub":
            raise FglauditError(f"a mechanism answers with numbers; got {shown(answer)}; return an array or a tensor")
        yield torch.as_tensor(np.array(answer)).flatten()
    elif isinstance(answer, list | tuple):
        for part in answer:
            yield from _parts(part)
    else:
        raise FglauditError(
            f"a mechanism answers with numbers, arrays, tensors, or lists of them; got a {type(answer).__name__}:"
            f" {shown(answer)}; return what is released"
        )
