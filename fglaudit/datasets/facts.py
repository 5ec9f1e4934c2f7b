"""What ``fglaudit data facts`` prints."""

from __future__ import annotations

import torch

from fglaudit.graph import FeatureKind, Graph


def dataset_facts(graph: Graph) -> dict[str, int | float | str]:
    """Return counts of ``graph``; edges are undirected, homophily is the share of edges inside a class."""
    degrees = graph.degrees()
    row, col = graph.edge_index
    inside = (graph.y[row] == graph.y[col]).double()
    facts: dict[str, int | float | str] = {
        "name": graph.name,
        "nodes": graph.num_nodes,
        "edges": graph.edge_index.shape[1] // 2,
        "features": graph.num_features,
        "classes": graph.num_classes,
        "homophily": float(inside.mean().item()) if len(inside) else 0.0,
        "feature_kind": FeatureKind.of(graph.x).value,
        "nonzeros_per_row": float(torch.count_nonzero(graph.x).item()) / max(graph.x[..., 0].numel(), 1),
        "max_degree": int(degrees.max().item()),
        "isolated_nodes": int((degrees == 0).sum().item()),
        "zero_rows": int((graph.x == 0).all(-1).sum().item()),
    }
    for split in ("train", "val", "test"):
        mask = getattr(graph, split)
        facts[split] = "none" if mask is None else int(mask.sum().item())
    return facts
