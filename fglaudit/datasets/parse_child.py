"""A process of its own that parses raw files of unknown origin.

``python -m fglaudit.datasets.parse_child NAME FOLDER``. Planetoid's files are pickles, which can name any function of
any module and have it called; damaged ones make the parser read outside of its memory. An audit hook lets an unpickler
name only what the published files name, whichever library unpickles; memory and processor time are limited; and a crash
ends this process alone. The parent is :mod:`fglaudit.datasets.pyg`; tensors go back as a safetensors file, which holds
no code.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ALLOWED = frozenset(
    {
        ("numpy", "dtype"),
        ("numpy", "ndarray"),
        ("collections", "defaultdict"),
        ("builtins", "list"),
        ("__builtin__", "list"),
        ("_codecs", "encode"),
        *((f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")),
        *((f"scipy.sparse.{module}", "csr_matrix") for module in ("csr", "_csr")),
    }
)
"""What a pickle may name: arrays, sparse matrices and lists of neighbours."""
FORBIDDEN = ("subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "socket.", "ctypes.")
SECONDS = 600
RESULT = "parsed.safetensors"


def guard(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse what parsing never needs. Audit hooks cannot be removed again."""
    if event == "pickle.find_class" and arguments[:2] not in ALLOWED:
        raise ValueError(f"a raw file may hold arrays only; it names {arguments[0]}.{arguments[1]}")
    if event.startswith(FORBIDDEN):
        raise ValueError(f"a raw file may hold arrays only; it asks for {event}")


def limit_resources() -> None:
    """Limit memory to that of the machine, processor time to ten minutes, and write no core files."""
    try:
        import os
        import resource
    except ImportError:  # not on this system
        return
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for kind, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CPU, SECONDS), (resource.RLIMIT_CORE, 0)):
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def main(name: str, folder: str) -> int:
    """Parse the raw files of ``name`` that lie in ``folder``; return 0, or 1 with one line on stderr."""
    limit_resources()
    import torch_geometric.datasets  # noqa: F401  (its imports look for programs and libraries)

    from fglaudit.datasets.catalog import PYG_SOURCES
    from fglaudit.datasets.pyg_parse import parse, save

    sys.addaudithook(guard)
    try:
        save(parse(PYG_SOURCES[name], Path(folder)), Path(folder) / RESULT)
    except Exception as error:  # a corrupt pickle can raise anything
        print(" ".join(f"{type(error).__name__}: {error}".split())[:500], file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
