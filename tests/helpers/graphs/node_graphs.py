"""A small graph in which every node is a client, as GFL-APPNP has it."""

from __future__ import annotations

import torch

from fglaudit.datasets.csbm_tasks import CsbmTask, draw_task
from fglaudit.graph import FederatedGraph, federate


def graph() -> FederatedGraph:
    drawn = draw_task("csbm-dnc", CsbmTask(nodes=30, dimensions=12))
    assert drawn.train is not None and drawn.val is not None and drawn.test is not None
    return federate(drawn, list(torch.arange(30).unsqueeze(1)), drawn.train, drawn.val, drawn.test)
