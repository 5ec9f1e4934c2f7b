"""Which settings are options to choose from, and which only bound them: all data in one place is no option."""

from __future__ import annotations

from fglaudit.reports.summary import Setting

CENTRALIZED = frozenset({"appnp", "gat", "gcn", "graphsage"})
"""Protocols that train on all data in one place."""
LABELS_ALONE = frozenset({"label-propagation"})
"""Protocols that send labels of training nodes, and nothing that depends on a feature."""
NO_FEATURES = frozenset({"structure-only"}) | LABELS_ALONE
"""Protocols of whose messages models at most depend on features: the others are made of public codes or labels, and of
edges."""
UPPER_BOUND = "All data in one place: an upper bound, not an option"


def is_option(setting: Setting) -> bool:
    """Whether data stay with their owners in ``setting``."""
    return setting.first.protocol not in CENTRALIZED
