"""Rows that an attack gave must be rows: what a diverged or miscounting attack gives is no sign that nothing leaks."""

from __future__ import annotations

import torch

from fglaudit.errors import FglauditError
from fglaudit.interfaces import Reconstruction
from fglaudit.view import View


def refuse_malformed(attack: str, result: object, view: View) -> None:
    """Raise :class:`FglauditError` for a reconstruction of ``view`` whose rows are no numbers or have another width, or
    whose nodes do not exist; the row of ``attack`` is then failed."""
    if not isinstance(result, Reconstruction):
        return
    count, width, nodes = len(result.rows), view.public.num_features, view.public.num_nodes
    if result.rows.shape != (count, width):
        raise FglauditError(
            f"a reconstruction has rows [R, {width}], a column per feature; {attack} gave {list(result.rows.shape)};"
            " return whole rows"
        )
    if not len(result.nodes) == len(result.confidence) == count:
        raise FglauditError(
            f"a reconstruction has a node and a confidence per row; {attack} gave {count} rows, {len(result.nodes)}"
            f" nodes and {len(result.confidence)} confidences; return as many"
        )
    if odd := int((~torch.isfinite(result.rows).all(1)).sum().item()):
        raise FglauditError(
            f"rows are numbers; {odd} of {count} that {attack} gave have NaN or infinity; look for what diverged"
        )
    if odd := int(torch.isnan(result.confidence).sum().item()):
        raise FglauditError(f"confidences are numbers; {odd} of {count} that {attack} gave are NaN; give each row one")
    if outside := result.nodes[(result.nodes < -1) | (result.nodes >= nodes)].tolist():
        raise FglauditError(
            f"rows are of nodes 0 to {nodes - 1}, or -1 where it is not known whose they are; {attack} named"
            f" {outside[0]}; return global ids"
        )
