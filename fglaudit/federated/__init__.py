"""Federated training that several protocols share: clients' data, local steps, averaging, progress.

Protocols of others send with :func:`to_server` and :func:`from_server`; everything else here may change.
"""

from fglaudit.federated.sending import from_server, to_server

__all__ = ["from_server", "to_server"]
