"""Engines by name."""

from __future__ import annotations

from fglaudit.errors import unknown
from fglaudit.execution.engine import Engine, available_cores
from fglaudit.execution.local_engine import LocalEngine
from fglaudit.execution.ray_engine import RayEngine, import_ray


def make_engine(name: str, jobs: int, threads: int = 0, address: str = "", cell_timeout: float | None = None) -> Engine:
    """Return the engine called ``name``: local or ray.

    Raises:
        FglauditError: unknown name, or Ray is not installed.
    """
    if name == "local":
        return LocalEngine(jobs, threads, cell_timeout)
    if name == "ray":
        import_ray()
        return RayEngine(address, jobs, threads or max(1, available_cores() // jobs), cell_timeout)
    raise unknown("engine", name, ENGINES)


ENGINES = ("local", "ray")
