"""Protocols: one per file. The table is the only list of built-in ones; other distributions register entry points."""

PROTOCOLS: dict[str, str] = {
    "fedgcn": "fglaudit.protocols.fedgcn:FedGCN",
    "gcn": "fglaudit.protocols.gcn:GCN",
    "local-gcn": "fglaudit.protocols.local:LocalGCN",
}
