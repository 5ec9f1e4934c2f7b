"""The methods of FedGT's tables and figures, by the paper's words, and what each trains."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from fglaudit.federated.subgraph_protocol import SubgraphProtocol
from fglaudit.interfaces import FederatedProtocol
from fglaudit.protocols.baselines.fedavg_gophormer import FedAvgGophormer
from fglaudit.protocols.baselines.fedavg_graphgps import FedAvgGraphGPS
from fglaudit.protocols.baselines.fedavg_sage import FedAvgSage
from fglaudit.protocols.baselines.fedper_sage import FedPerSage
from fglaudit.protocols.baselines.gcfl_sage import GCFLSage
from fglaudit.protocols.baselines.local_gt import LocalGT
from fglaudit.protocols.fedgt.fedgt import FedGT
from fglaudit.protocols.fedgt.sources import AS_PUBLISHED
from fglaudit.protocols.fedpub.fedpub import FedPub
from fglaudit.protocols.fedsage.fedsage import FedSage
from fglaudit.reproduce.authors_code.fedgt_baselines import (
    PublishedFedAvg,
    PublishedFedPer,
    PublishedFedSage,
    PublishedGCFL,
)
from fglaudit.reproduce.published import BY_THEIR_CODE, FEW_HIDDEN, PARTED_CLUSTERS

PARTED = f"GCFL+{PARTED_CLUSTERS}"
WITH_FEW_HIDDEN = f"FedSage+{FEW_HIDDEN}"
_PARTING = 1.0
"""The bound of ``PARTED``, in place of 0.05."""
NOISY_UPDATES = "FedGT, updates noised too"
"""FedGT with the noise on its updates, not on its global nodes alone."""
_LONG = {"rounds": 200, "local_epochs": 2}
SETTINGS: dict[str, dict[str, Any]] = {"cora": {}, "citeseer": {}, "pubmed": {}, "photo": _LONG, "computers": _LONG}
BASELINES: dict[str, Callable[..., FederatedProtocol]] = {
    "Local": LocalGT,
    "FedAvg": FedAvgSage,
    "FedPer": FedPerSage,
    "GCFL+": GCFLSage,
    PARTED: partial(GCFLSage, largest_mean=_PARTING),
    "FedSage+": FedSage,
    WITH_FEW_HIDDEN: partial(FedSage, hidden_share=0.1),
    "FED-PUB": FedPub,
    "Gophormer": FedAvgGophormer,
    "GraphGPS": FedAvgGraphGPS,
}
_CLEAR = {"global_scale": 0.01}
"""Without noise global nodes start near the origin, as one of them takes all nodes otherwise."""
VARIANTS: dict[str, dict[str, Any]] = {
    "FedGT": {},
    "FedGT without noise": _CLEAR,
    "FedGT debiased": {"debiased": True},
    "FedGT w/o optimal transport": {"similarity": "global-nodes-unaligned"},
    "FedGT (local-update similarity)": {"similarity": "local-updates"},
    "FedGT (label-distribution similarity)": {"similarity": "label-distributions"},
    "FedGT (FedAvg aggregation)": {"similarity": "fedavg"},
    "FedGT without noise, w/o optimal transport": _CLEAR | {"similarity": "global-nodes-unaligned"},
    NOISY_UPDATES: {},
    "FedGT, GraphSAGE sampling": {"sampling": "graphsage"},
    "FedGT, attribute similarity sampling": {"sampling": "attribute"},
    "FedGT, attribute similarity sampling, all nodes": {"sampling": "attribute", "candidates": 512},
    "FedGT w/o global attention": {"global_attention": False},
    "FedGT w/o personalized aggregation": {"similarity": "fedavg"},
}
"""By method of the paper, in what it differs from FedGT.

Nodes with similar attributes are drawn from the 64 most similar ones, as all candidates are, or from all nodes of a
client of Cora or CiteSeer, as the text can be read.
"""
AS_PUBLISHED_CODE = f"FedGT{BY_THEIR_CODE}"
_ALONE = {name: value for name, value in AS_PUBLISHED.items() if name != "similarity"}
_AVERAGED = {name: AS_PUBLISHED[name] for name in ("learning_rate", "weight_decay")} | {"tested": "local"}
_WITHOUT = {
    name: FedGT(**AS_PUBLISHED | fields)
    for name, fields in VARIANTS.items()
    if set(fields) & {"similarity", "global_attention"} and not _CLEAR.items() <= fields.items()
}
"""Table 12's ways to compare clients and Figure 9's ablations; the code itself is the one ``w/o optimal transport``."""
OF_CODE: dict[str, SubgraphProtocol] = {
    "FedGT": FedGT(**AS_PUBLISHED),
    **_WITHOUT,
    "Local": LocalGT(**_ALONE),
    "FedAvg": PublishedFedAvg(),
    "FED-PUB": FedPub(sparsity=0.0, proximal=0.0),
    "FedPer": PublishedFedPer(),
    "GCFL+": PublishedGCFL(),
    PARTED: PublishedGCFL(largest_mean=_PARTING),
    "FedSage+": PublishedFedSage(),
    "Gophormer": FedAvgGophormer(**_AVERAGED),
    "GraphGPS": FedAvgGraphGPS(**_AVERAGED),
}
"""By method of the paper, what its row ``as published code`` trains."""
