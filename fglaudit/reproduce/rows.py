"""The rows of a table: what the paper prints, then what it draws or leaves out."""

from __future__ import annotations

from fglaudit.errors import unknown
from fglaudit.reproduce import fedgat, fedgcn, fedgt, gfl_appnp, unprinted
from fglaudit.reproduce.published import TITLES, Published, all_published


def rows_of(table: str) -> tuple[Published, ...]:
    """Return the rows of ``table``.

    Raises:
        FglauditError: there is no such table; the error lists those there are.
    """
    if table not in TITLES:
        raise unknown("table", table, TITLES)
    printed = tuple(row for row in all_published() if row.table == table)
    others = (*fedgcn.more(printed), *fedgat.more(printed), *fedgt.more(printed))
    again = gfl_appnp.more(printed) if table == "gfl-appnp-table2" else others
    return (*printed, *again, *unprinted.rows_of(table))
