"""Child processes with a pipe to each."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from fglaudit.interruption import held_back


def start_child(body: Callable[..., None], *arguments: Any) -> tuple[BaseProcess, Connection]:
    """Start ``body(connection, *arguments)`` in a process of its own; return that, and our end of its pipe."""
    context = multiprocessing.get_context("spawn")  # a forked torch deadlocks in its thread pool
    here, there = context.Pipe()
    process = context.Process(target=body, args=(there, *arguments), daemon=True)
    with held_back():
        process.start()
    there.close()  # so that the end of the process closes the pipe
    return process, here
