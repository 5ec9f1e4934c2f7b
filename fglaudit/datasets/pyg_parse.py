"""Raw files to tensors through torch-geometric's own readers, in a folder of their own and without a download."""

from __future__ import annotations

import contextlib
import io
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from fglaudit.datasets.catalog import PygSource
from fglaudit.datasets.raw import RawGraph
from fglaudit.errors import FglauditError

MASKS = ("train", "val", "test")


def offline_class(class_name: str) -> Any:
    """Return the torch-geometric data set class with downloads turned into an error."""
    import torch_geometric.datasets

    def refuse(self: Any) -> None:
        raise FglauditError(
            f"{class_name} found no raw files and may not download here; run: fglaudit data fetch NAME --root DIR"
        )

    return type(class_name, (getattr(torch_geometric.datasets, class_name),), {"download": refuse})


def parse(source: PygSource, folder: Path) -> RawGraph:
    """Return what the class makes of the raw files in ``folder / source.raw``; it writes to ``folder``.

    Raises:
        FglauditError: a raw file is missing.
        Exception: whatever a parser raises at a file that is no such file.
    """
    with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():  # "Processing...", "Done!"
        warnings.simplefilter("ignore")
        data = source.make(offline_class(source.class_name), str(folder))[0]
    masks = [getattr(data, f"{mask}_mask", None) for mask in MASKS]
    splits = max((mask.shape[1] for mask in masks if mask is not None and mask.dim() == 2), default=1)
    train, val, test = (
        None if mask is None else mask.bool().reshape(len(mask), -1).expand(-1, splits) for mask in masks
    )
    return RawGraph(x=data.x.float(), y=data.y.long(), edge_index=data.edge_index, train=train, val=val, test=test)


def tensors_of(raw: RawGraph) -> dict[str, torch.Tensor]:
    """Return the tensors of ``raw`` by field, as a safetensors file holds them."""
    fields = ("x", "y", "edge_index", *MASKS)
    return {name: value.contiguous() for name in fields if (value := getattr(raw, name)) is not None}


def save(raw: RawGraph, path: Path) -> None:
    """Write the tensors of ``raw`` to ``path``."""
    save_file(tensors_of(raw), path)
