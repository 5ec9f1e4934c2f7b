"""Does a protocol keep the rules? Asked by ``fglaudit check``, and of every protocol of a user that a run trains."""

from fglaudit.errors import FglauditError

if not __debug__:
    raise FglauditError(
        "whether a plugin keeps the rules is asked by assertions; python -O leaves them out; run without -O and with"
        " PYTHONOPTIMIZE empty"
    )
