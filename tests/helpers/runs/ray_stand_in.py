"""What the Ray engine uses of Ray, computed in this process: at once, or one cell after the other by its own clock."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Sequence
from typing import Any

from fglaudit.execution.engines.ray_engine import Rounds


class RayError(Exception):
    """As Ray's."""


class OutOfMemoryError(RayError):
    """As Ray's."""


class WorkerCrashedError(RayError):
    """As Ray's."""


class NodeDiedError(RayError):
    """As Ray's."""


class LocalRayletDiedError(RayError):
    """As Ray's."""


class StandIn:
    """What the engine uses of Ray, computed at once."""

    exceptions = types.SimpleNamespace(
        RayError=RayError,
        OutOfMemoryError=OutOfMemoryError,
        WorkerCrashedError=WorkerCrashedError,
        NodeDiedError=NodeDiedError,
        LocalRayletDiedError=LocalRayletDiedError,
    )

    def nodes(self) -> list[dict[str, Any]]:
        has = {"CPU": 4.0, "GPU": 1.0, "memory": 2.0**33}
        return [{"Alive": True, "Resources": has}, {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}}]

    def init(self, **_: Any) -> None: ...

    def shutdown(self) -> None: ...

    def remote(self, **_: Any) -> Callable[[Any], Any]:
        return lambda made: types.SimpleNamespace(
            remote=lambda *a: self._actor(made) if made is Rounds else _at_once(made, a)
        )

    def _actor(self, made: Any) -> Any:
        held = made()

        def method(name: str) -> Any:
            return types.SimpleNamespace(remote=lambda *a: _at_once(getattr(held, name), a))

        return types.SimpleNamespace(**{name: method(name) for name in ("begin", "note", "reached", "seconds")})

    def wait(self, handles: Sequence[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        return list(handles[:1]), list(handles[1:])

    def get(self, handle: Callable[[], Any], **_: Any) -> Any:
        return handle()


def _at_once(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Callable[[], Any]:
    try:
        result = function(*arguments)
    except RayError as error:
        caught = error

        def fail() -> Any:
            raise caught

        return fail
    return lambda: result


@dataclasses.dataclass(eq=False)
class _Queued:
    """A cell that Ray has, in a stand-in with one machine."""

    compute: Callable[[], Callable[[], Any]]
    result: Callable[[], Any] | None = None
    began: float = 0.0
    ended: bool = False


class OneMachine(StandIn):
    """Computes one cell after the other, each in ``SECONDS`` of a clock of its own; the others wait in its queue."""

    SECONDS, STEP = 8.0, 4.0

    def __init__(self, clock: list[float]) -> None:
        self.clock = clock
        self.queue: list[_Queued] = []

    def remote(self, **_: Any) -> Callable[[Any], Any]:
        def submit(made: Any, arguments: tuple[Any, ...]) -> _Queued:
            self.queue.append(_Queued(lambda: _at_once(made, arguments)))
            return self.queue[-1]

        return lambda made: types.SimpleNamespace(
            remote=lambda *a: self._actor(made) if made is Rounds else submit(made, a)
        )

    def cancel(self, handle: _Queued, *, force: bool) -> None:
        handle.ended = True

    def wait(self, handles: Sequence[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        self.clock[0] += self.STEP
        ended = [handle for handle in self.queue if handle.ended][:1]
        first = ended[0] if ended else self.queue[0]
        if first.result is None and not first.ended:
            first.began, first.result = self.clock[0], first.compute()
        elif first.ended or self.clock[0] - first.began >= self.SECONDS:
            self.queue.remove(first)
            return [first], [handle for handle in handles if handle is not first]
        return [], list(handles)

    def get(self, handle: Any, **_: Any) -> Any:
        if not isinstance(handle, _Queued):
            return handle()
        if handle.ended or handle.result is None:
            raise WorkerCrashedError
        return handle.result()
