"""Are the clients of a round drawn at random? An account by such a sample rests on the protocol's own word.

Who sends in a round is seen, and that it was drawn afresh, evenly and unseen by anybody is not: nothing of it is
replayed. Of this package's protocols it is so by their code; of others the account is not verified.
"""

from __future__ import annotations

from collections.abc import Sequence

from fglaudit import registry
from fglaudit.context import Context
from fglaudit.guarantees import Audit, AuditName, Outcome
from fglaudit.interfaces import FederatedProtocol, Guarantee
from fglaudit.payloads import ModelUpdate
from fglaudit.privacy.accounted import Accounted


def drawn_clients_audits(
    protocol: FederatedProtocol, context: Context, promise: Guarantee, accounted: Accounted | str
) -> Sequence[Audit]:
    """Return that clients are drawn as stated is not tested, where that makes the epsilon smaller; else nothing."""
    uploads = context.uploads
    if isinstance(uploads, str) or not isinstance(accounted, Accounted) or registry.shipped("protocol", protocol):
        return ()
    by_server = any(part.payload == ModelUpdate.__name__ and part.by_server for part in accounted.mechanisms)
    if not (by_server and promise.coalition == 1 and uploads.senders < uploads.among):
        return ()
    if uploads.among > context.num_clients:
        words = f"{uploads.senders} of {uploads.among} clients are drawn as stated, and there are {context.num_clients}"
        return (Audit(AuditName.SAMPLING, Outcome.REFUTED, words),)
    words = f"that {uploads.senders} of {uploads.among} clients are drawn afresh in every round is {context.protocol}'s"
    return (Audit(AuditName.SAMPLING, Outcome.UNTESTED, f"{words} own word, which is not tested"),)
