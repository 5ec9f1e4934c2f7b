"""Link model updates of one client from round to round, where a shuffler hides the senders.

See :mod:`fglaudit.adversary.uploads.linkage`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fglaudit.adversary.uploads.linkage import LinkageAttack
from fglaudit.payloads import ModelUpdate, Payload


@dataclass(frozen=True)
class UpdateLinkage(LinkageAttack):
    """Link model updates."""

    name: ClassVar[str] = "update-linkage"
    consumes: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate,)
