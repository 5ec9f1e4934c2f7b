"""The three kinds of plugin - protocol, defense, attack - with what they are handed and what they hand over.

Every plugin is a frozen dataclass whose fields are its hyperparameters, so a suite can name them, ``fglaudit show`` can
print them and a cell's hash can cover them; those named in ``shown`` stand in every report, also at their defaults.
Contracts that the type checker cannot see are checked by ``fglaudit.testing``.
"""

from fglaudit.context import Aggregate, Context, Examples, Release, Uploads
from fglaudit.graph import ClientGraph, FederatedGraph
from fglaudit.interfaces.attack import Attack
from fglaudit.interfaces.channel import Channel, LocalUpdate
from fglaudit.interfaces.defense import Defense, DefenseSession
from fglaudit.interfaces.guarantee import SERVER_TRUSTED, Guarantee
from fglaudit.interfaces.outcomes import Inference, Planted, Reconstruction, Trained
from fglaudit.interfaces.protocol import FederatedProtocol
from fglaudit.privacy.accounting import Relation
from fglaudit.view import Observer, View

__all__ = [
    "SERVER_TRUSTED",
    "Aggregate",
    "Attack",
    "Channel",
    "ClientGraph",
    "Context",
    "Defense",
    "DefenseSession",
    "Examples",
    "FederatedGraph",
    "FederatedProtocol",
    "Guarantee",
    "Inference",
    "LocalUpdate",
    "Observer",
    "Planted",
    "Reconstruction",
    "Relation",
    "Release",
    "Trained",
    "Uploads",
    "View",
]
