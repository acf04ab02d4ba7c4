"""The one place where a fault in the work for one node becomes that node's result, whatever was raised.

Work for many nodes goes on for the others: everything that speaks to BMCs or agents one by one does so within
``contained``, and has only ``StrataError`` to expect.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from strata.core.errors import InternalFault, StrataError
from strata.core.redact import redact

log = logging.getLogger(__name__)

_MOST = 200
"""Characters of what an exception says of itself."""


def fault_of(wrong: Exception, where: str, *, whom: str = "the BMC") -> StrataError:
    """``wrong`` as an error of ours: itself if it is one, else an ``InternalFault``, logged with its traceback."""
    if isinstance(wrong, StrataError):
        return wrong
    said = redact("".join(c if c.isprintable() else " " for c in str(wrong)[:_MOST])).strip()
    told = f"internal error while talking to {whom}: {type(wrong).__name__}{f' ({said})' if said else ''}"
    log.error("an internal error in the work for one node", extra={"at": where, "with": whom}, exc_info=wrong)
    return InternalFault(told, where=where, hint="the log has the details; please report it")


@contextmanager
def contained(where: str, *, whom: str = "the BMC") -> Iterator[None]:
    """Raises nothing but ``StrataError``: what else goes wrong within is an ``InternalFault`` at ``where``."""
    try:
        yield
    except StrataError:
        raise
    except Exception as wrong:
        raise fault_of(wrong, where, whom=whom) from wrong
