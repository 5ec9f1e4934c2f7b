"""Protocols: one per file. The table is the only list of built-in ones; other distributions register entry points."""

PROTOCOLS: dict[str, str] = {
    "dist-gat": "fglaudit.protocols.dist_gat:DistGAT",
    "fedavg-sage": "fglaudit.protocols.fedavg_sage:FedAvgSage",
    "fedgat": "fglaudit.protocols.fedgat:FedGAT",
    "fedgcn": "fglaudit.protocols.fedgcn:FedGCN",
    "fedgt": "fglaudit.protocols.fedgt:FedGT",
    "gat": "fglaudit.protocols.gat:GAT",
    "gcn": "fglaudit.protocols.gcn:GCN",
    "local-gcn": "fglaudit.protocols.local:LocalGCN",
    "local-gt": "fglaudit.protocols.local_gt:LocalGT",
}
