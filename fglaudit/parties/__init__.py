"""Parties that do not follow the protocol: one behaviour per file, chosen by the suite key ``server``.

A behaviour is part of a cell, as its protocol and its defense are, and never a property of an observer: who observes is
asked apart from who misbehaves. The table is the only list.
"""

HONEST = "honest"
SERVERS: dict[str, str] = {
    "crafted-weights": "fglaudit.parties.crafted_weights:CraftedWeights",
    "insert-edges": "fglaudit.parties.insert_edges:InsertEdges",
    "repeat-models": "fglaudit.parties.repeat_models:RepeatModels",
    "repeat-pretraining": "fglaudit.parties.repeat_pretraining:RepeatPretraining",
}
"""Behaviours beside :data:`HONEST`, by name."""
