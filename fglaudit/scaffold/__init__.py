"""``fglaudit new``: a file with a plugin that runs as it is, and its test beside it."""

from __future__ import annotations

import keyword
import re
import sys
from importlib import metadata
from importlib.resources import files
from pathlib import Path

from fglaudit import registry
from fglaudit.errors import FglauditError, shown, unknown, with_article
from fglaudit.files.own import write_new

KINDS = ("defense", "attack", "protocol")
FIRST_VERDICT = {
    "defense": (
        "check of it as it is ends with a FAULT, features leak, and exit code 1: its noise is too little to protect"
        " them; the tests pass"
    )
}
"""What ``fglaudit check`` says of a plugin that nobody has changed yet, where that looks like a mistake."""


def scaffold(kind: str, name: str, folder: Path) -> list[Path]:
    """Write ``NAME.py`` and ``test_NAME.py`` into ``folder``; what is there already is never written over.

    Args:
        kind: of ``KINDS``.
        name: of the plugin: words of small letters and digits with dashes between them.

    Raises:
        FglauditError: an unknown kind, no such name, or a file in the way.
    """
    if kind not in KINDS:
        raise unknown("kind of plugin", kind, KINDS)
    module = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise FglauditError(
            f"a plugin's name is words of small letters and digits with dashes between them; got {shown(name)}; write"
            f" e.g. my-{kind}"
        )
    if (taken := _taken(kind, name, module)) is not None:
        raise FglauditError(f"a plugin needs a name of its own; {shown(name)} is {taken}; write e.g. my-{name}")
    if not folder.is_dir():
        raise FglauditError(f"the folder to write into must exist; there is no {folder}; make it")
    targets = {folder / f"{module}.py": f"{kind}.txt", folder / f"test_{module}.py": f"test_{kind}.txt"}
    if there := [path for path in targets if path.exists()]:
        raise FglauditError(f"files are not written over; {there[0]} exists; use another name or folder")
    words = {"NAME": name, "MODULE": module, "CLASS": class_name(name)}
    written: list[Path] = []
    try:
        for path, template in targets.items():
            text = files(__name__).joinpath(template).read_text("utf-8")
            for key, value in words.items():
                text = text.replace(f"@{key}@", value)
            write_new(path, text.encode(), 0o644, option="--folder")
            written.append(path)
    except BaseException:  # half a scaffold would be in the way of the next try
        for path in written:
            path.unlink(missing_ok=True)
        raise
    return written


def class_name(name: str) -> str:
    """Return the class of the plugin ``name``: MyDefense for my-defense."""
    return "".join(part.capitalize() for part in name.split("-"))


def _taken(kind: str, name: str, module: str) -> str | None:
    """Return what has the name of the plugin, its file or its class already: a module of Python's own that is found in
    the folder instead (``random.py``) ends every command that starts there."""
    if keyword.iskeyword(module) or keyword.iskeyword(class_name(name)):
        return "a word of Python"
    if name in registry.names(kind):
        return f"{with_article(kind)} that is known already"
    installed = {name.lower() for name in metadata.packages_distributions()}
    return "a module of Python" if module in sys.stdlib_module_names or module in installed else None
