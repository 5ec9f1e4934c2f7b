"""A CSV file that grows row by row and knows which rows it has, so that a stopped measurement goes on where it was."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from fglaudit.errors import FglauditError, shown
from fglaudit.files.own import reason, write_atomic


@dataclass(frozen=True)
class Table:
    """Rows of strings; ``key`` names the columns that identify one."""

    path: Path
    key: tuple[str, ...]
    values: tuple[str, ...]

    def rows(self) -> list[dict[str, str]]:
        """Return all complete rows; a last line cut off by a kill is left out."""
        if not self.path.exists():
            return []
        complete = self.path.read_text()
        return list(csv.DictReader(complete[: complete.rfind("\n") + 1].splitlines()))

    def has(self, key: Mapping[str, object]) -> bool:
        """Whether the row of ``key`` is there."""
        wanted = [str(key[column]) for column in self.key]
        return any([row[column] for column in self.key] == wanted for row in self.rows())

    def add(self, row: Mapping[str, object]) -> None:
        """Append one row; it is on disk when this returns.

        Raises:
            FglauditError: it cannot be written.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._drop_partial_line()
            self._bring_up_to_date()
            new = not self.path.exists() or self.path.stat().st_size == 0
            with self.path.open("a", newline="") as file:
                writer = self._writer(file)
                if new:
                    writer.writeheader()
                writer.writerow({column: row[column] for column in writer.fieldnames})
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise FglauditError(
                f"the output folder must be writable; {shown(str(self.path))}: {reason(error)}; make it so, or use"
                " another --out"
            ) from error

    def _writer(self, file: TextIO) -> csv.DictWriter[str]:
        return csv.DictWriter(file, [*self.key, *self.values], lineterminator="\n")

    def _bring_up_to_date(self) -> None:
        """Give the rows of a version that had fewer columns empty fields in the others."""
        if not self.path.exists():
            return
        with self.path.open() as file:
            header = file.readline().strip()
        if not header or not set(header.split(",")) < {*self.key, *self.values}:
            return
        text = io.StringIO()
        writer = self._writer(text)
        writer.writeheader()
        writer.writerows({column: row.get(column, "") for column in writer.fieldnames} for row in self.rows())
        write_atomic(self.path, text.getvalue())

    def _drop_partial_line(self) -> None:
        if self.path.exists():
            content = self.path.read_bytes()
            if content and not content.endswith(b"\n"):
                self.path.write_bytes(content[: content.rfind(b"\n") + 1])
