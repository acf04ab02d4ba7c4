"""How many files each part of the service may hold open, so that there are always some for people.

A connection is a file. A fleet has more BMCs, consoles and agents than a process may have files, and whoever takes the
last one locks everybody out, also the person who wants to stop it. So each part gets a share; what is in no share is
left for people (the front door, the command line) and for our own files.
"""

from __future__ import annotations

import resource
from collections.abc import Mapping
from typing import Literal

Use = Literal["agents", "bmcs", "consoles", "events", "scans"]

SHARES: Mapping[Use, float] = {
    "agents": 1 / 4,  # requests that nodes' agents have waiting here
    "bmcs": 1 / 4,  # kept connections to BMCs
    "consoles": 1 / 4,
    "events": 1 / 32,  # streams of BMCs that tell by themselves
    "scans": 1 / 16,  # looking for BMCs
}
"""Of the files that the process may open. Together less than 27 in 32: the rest is for people."""

LEAST = 8
"""Of a part, however few there are."""


def allow_most() -> None:
    """Let this process open as many files as it is allowed."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def allowed() -> int:
    """Files that this process may have open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def share(use: Use, *, most: int = 1 << 20, files: int | None = None) -> int:
    """Files for one part, and no more than ``most``. ``files``: of how many; None: of those that are allowed."""
    return max(LEAST, min(most, int((allowed() if files is None else files) * SHARES[use])))
