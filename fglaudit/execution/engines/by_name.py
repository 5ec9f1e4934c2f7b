"""Engines by name."""

from __future__ import annotations

from fglaudit.errors import FglauditError, unknown
from fglaudit.execution.engines.cores import threads_of
from fglaudit.execution.engines.engine import Engine
from fglaudit.execution.engines.local_engine import LocalEngine
from fglaudit.execution.engines.ray_engine import RayEngine, import_ray


def make_engine(
    name: str,
    jobs: int,
    address: str = "",
    cell_timeout: float | None = None,
    gpus: float = 0.0,
    memory: float = 0.0,
) -> Engine:
    """Return the engine called ``name``: local or ray.

    Args:
        gpus, memory: of each cell, see :class:`RayEngine`; for ray alone.

    Raises:
        FglauditError: unknown name, Ray is not installed, or an option of Ray's for another engine.
    """
    if name == "local":
        if gpus or memory or address:
            option = "--gpus" if gpus else "--memory" if memory else "--address"
            raise FglauditError(f"{option} is for --engine ray; got the engine 'local'; leave it out")
        return LocalEngine(jobs, cell_timeout=cell_timeout)
    if name == "ray":
        import_ray()
        return RayEngine(address, jobs, threads_of(jobs), cell_timeout, gpus, memory)
    raise unknown("engine", name, ENGINES)


ENGINES = ("local", "ray")
