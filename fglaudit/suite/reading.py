"""From the name or the text of a suite to its keys, not checked yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fglaudit.errors import FglauditError, shown, unknown
from fglaudit.files import limits
from fglaudit.files.user import is_file, is_folder, read_text, user_path
from fglaudit.suite.embedded import embedded
from fglaudit.suite.schema import EXAMPLES, SuiteFile
from fglaudit.suite.yaml_text import read_yaml


def read(name_or_path: str) -> tuple[dict[str, Any], Path | None]:
    """Return the raw keys of a built-in suite or of a YAML file, and the file's path.

    Raises:
        FglauditError: if there is no such suite or the file is not readable YAML.
    """
    texts = embedded()
    if name_or_path in texts:
        return parse(texts[name_or_path], name_or_path), None
    path = user_path(name_or_path, "a suite file")
    if is_folder(path):
        raise FglauditError(
            f"a suite is a built-in one or a YAML file; {shown(name_or_path)} is a folder; name the file in it, or"
            " one that fglaudit list suites prints"
        )
    if not is_file(path):
        if path.suffix in (".yaml", ".yml") or "/" in name_or_path:
            raise FglauditError(
                f"a suite file must exist; there is no file {path}; correct it, or name one that fglaudit list suites"
                " prints"
            )
        beside = next((f"{name_or_path}{end}" for end in (".yaml", ".yml") if is_file(Path(f"{path}{end}"))), None)
        if beside is not None:
            raise FglauditError(
                f"a suite is a built-in one or a YAML file; got {shown(name_or_path)}, which is neither; write"
                f" {shown(beside)[1:-1]}, which is here"
            )
        raise unknown("suite", name_or_path, texts, "fglaudit list suites")
    return parse(read_text(path, "a suite file", limits.SUITE_BYTES), str(path)), path


def parse(text: str, source: str) -> dict[str, Any]:
    """Return the keys of a suite's YAML ``text``; ``source`` names it in messages.

    Raises:
        FglauditError: if the text is no YAML mapping of plain values, or beyond :mod:`fglaudit.files.limits`.
    """
    try:
        data = read_yaml(text)
    except FglauditError as error:
        raise FglauditError(f"{source}: {error}") from error
    if not isinstance(data, dict):
        raise FglauditError(
            f"a suite must be a mapping with keys {', '.join(SuiteFile.model_fields)}; {source} is"
            f" {'empty' if data is None else shown(data)}; write e.g. {EXAMPLES['name']} and {EXAMPLES['datasets']}"
            " (fglaudit show quickstart prints a whole one)"
        )
    return data
