"""Conformance kit: the promises of a plugin that a type checker cannot see. Usable by third parties.

>>> from fglaudit.testing import check_protocol
>>> check_protocol(MyProtocol(rounds=3))        # raises AssertionError naming the broken rule

``check_protocol``, ``check_defense`` and ``check_attack`` run on a small built-in graph unless given another one.
``record`` trains a protocol (such as ``FedGCN``) on it with everything recorded; ``planted_for`` is the self-test of an
attack; ``derive`` makes the random generators that plugins are handed.
"""

from fglaudit.adversary.default_planting import planted_for
from fglaudit.adversary.planting import MemoryMessages
from fglaudit.conformance.comparing import same_messages
from fglaudit.conformance.protocols import check_protocol
from fglaudit.conformance.runs import CPU, Run, example_graph, record
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.rng import derive
from fglaudit.testing.attacks import check_attack
from fglaudit.testing.defenses import check_defense

__all__ = [
    "CPU",
    "FedGCN",
    "MemoryMessages",
    "Run",
    "check_attack",
    "check_defense",
    "check_protocol",
    "derive",
    "example_graph",
    "planted_for",
    "record",
    "same_messages",
]
