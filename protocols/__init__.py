"""Protocols: one per file. The table is the only list of built-in ones; other distributions register entry points."""

PROTOCOLS: dict[str, str] = {
    "appnp": "fglaudit.protocols.appnp:APPNP",
    "cnfgnn": "fglaudit.protocols.cnfgnn:CNFGNN",
    "dist-gat": "fglaudit.protocols.dist_gat:DistGAT",
    "fedavg-gophormer": "fglaudit.protocols.fedavg_gophormer:FedAvgGophormer",
    "fedavg-graphgps": "fglaudit.protocols.fedavg_graphgps:FedAvgGraphGPS",
    "fedavg-sage": "fglaudit.protocols.fedavg_sage:FedAvgSage",
    "fedgat": "fglaudit.protocols.fedgat:FedGAT",
    "fedgcn": "fglaudit.protocols.fedgcn:FedGCN",
    "fedmlp": "fglaudit.protocols.fedmlp:FedMLP",
    "fedgt": "fglaudit.protocols.fedgt:FedGT",
    "gat": "fglaudit.protocols.gat:GAT",
    "gcn": "fglaudit.protocols.gcn:GCN",
    "gfl-appnp": "fglaudit.protocols.gfl_appnp:GFLAPPNP",
    "graphsage": "fglaudit.protocols.graphsage:GraphSAGE",
    "local-gcn": "fglaudit.protocols.local:LocalGCN",
    "nfedgnn": "fglaudit.protocols.nfedgnn:NFedGNN",
    "local-gt": "fglaudit.protocols.local_gt:LocalGT",
}
