"""fglaudit audits the privacy of federated graph learning: train, record, attack, report."""

__version__ = "0.1.0"
