"""Which row of a data set do a mechanism's answers tell most of? A look at all of them at once, before any is tested.

Every row of every replay is one of two records, thrown as in audits in one run (Steinke, Nasr and Jagielski 2023): how
well an answer goes together with each throw shows which row is worth the many replays of a test. It decides nothing,
and those replays are others, so that no test needs a correction for the choice.
"""

from __future__ import annotations

import torch

from fglaudit.empirical.mechanisms.calls import AuditedMechanism
from fglaudit.empirical.mechanisms.inputs import Inputs

LOOKS = 2000


def exposed_row(mechanism: AuditedMechanism, inputs: Inputs, rng: torch.Generator) -> int:
    """Return the place of the row whose record is most correlated with some number of the answers, or with how many
    there are; 0 where there is one row."""
    if inputs.rows == 1:
        return 0
    record = inputs.records(rng)[-1]
    thrown = torch.randint(2, (LOOKS, inputs.rows), generator=rng)
    seen = mechanism.replays([torch.stack([record.absent, record.present])[row] for row in thrown], 1, rng)
    told = torch.cat([seen.values[:, 0], seen.lengths.double()], 1).nan_to_num(0.0, 1e30, -1e30)
    told, throws = (values - values.mean(0) for values in (told, thrown.double()))
    sizes = torch.linalg.vector_norm(told, dim=0).clamp(min=1e-300)
    return int(((told / sizes).T @ throws).abs().amax(0).argmax())
