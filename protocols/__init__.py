"""Protocols: one per file. The table is the only list of built-in ones; other distributions register entry points."""

PROTOCOLS: dict[str, str] = {
    "appnp": "fglaudit.protocols.baselines.appnp:APPNP",
    "cnfgnn": "fglaudit.protocols.nfedgnn.cnfgnn:CNFGNN",
    "dist-gat": "fglaudit.protocols.baselines.dist_gat:DistGAT",
    "fedavg-gophormer": "fglaudit.protocols.baselines.fedavg_gophormer:FedAvgGophormer",
    "fedavg-graphgps": "fglaudit.protocols.baselines.fedavg_graphgps:FedAvgGraphGPS",
    "fedavg-sage": "fglaudit.protocols.baselines.fedavg_sage:FedAvgSage",
    "fedgat": "fglaudit.protocols.fedgat.fedgat:FedGAT",
    "fedgcn": "fglaudit.protocols.fedgcn.fedgcn:FedGCN",
    "fedmlp": "fglaudit.protocols.baselines.fedmlp:FedMLP",
    "fedgt": "fglaudit.protocols.fedgt.fedgt:FedGT",
    "gat": "fglaudit.protocols.baselines.gat:GAT",
    "gcn": "fglaudit.protocols.baselines.gcn:GCN",
    "gfl-appnp": "fglaudit.protocols.gfl_appnp.gfl_appnp:GFLAPPNP",
    "graphsage": "fglaudit.protocols.baselines.graphsage:GraphSAGE",
    "local-gcn": "fglaudit.protocols.baselines.local_gcn:LocalGCN",
    "nfedgnn": "fglaudit.protocols.nfedgnn.nfedgnn:NFedGNN",
    "private-reports": "fglaudit.protocols.private.private_reports:PrivateReports",
    "structure-only": "fglaudit.protocols.private.structure_only:StructureOnly",
    "local-gt": "fglaudit.protocols.baselines.local_gt:LocalGT",
}
