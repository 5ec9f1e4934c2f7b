"""Link global nodes of one client from round to round, where a shuffler hides the senders.

See :mod:`fglaudit.adversary.uploads.linkage`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fglaudit.adversary.uploads.linkage import LinkageAttack
from fglaudit.payloads import GlobalNodes, Payload


@dataclass(frozen=True)
class GlobalNodeLinkage(LinkageAttack):
    """Link global nodes."""

    name: ClassVar[str] = "global-node-linkage"
    consumes: ClassVar[tuple[type[Payload], ...]] = (GlobalNodes,)
