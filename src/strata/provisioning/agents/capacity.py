"""How many requests of agents a machine can hold open: each is a file here, and up to three connections in nginx, which
may have no more files than we."""

from __future__ import annotations

import os

from strata.fleet.files import share

MOST = 32_000
"""However large the machine is: a hundred thousand nodes are shared by several controllers."""
LEAST = 500

_COST = 80 * 1024  # bytes of memory: 16 KB here, 30 KB in nginx, as much again there for an agent's second connection
_SHARE = 8  # of the machine's memory, one part in this many
_OTHERS = 8192  # connections that nginx has besides those of agents


def holdable() -> int:
    """As many as this machine's memory and the files that we may open allow."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(LEAST, min(MOST, share("agents"), memory // _SHARE // _COST))


def connections(held: int) -> int:
    """What each of nginx's workers must be able to have open: one of them may get most of the agents. An agent that has
    news opens a second connection beside the one that is held, and what is held is passed on by a third."""
    return _OTHERS + 3 * held
