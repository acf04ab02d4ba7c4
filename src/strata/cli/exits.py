"""Exit codes: what a script learns from ``$?``."""

from __future__ import annotations

import click

from strata.core.errors import Conflict, Denied, Refused, StrataError

ERROR = 1
USAGE = 2
UNREACHABLE = 3
"""Not possible: there is no way to the goal, or a brake said no."""
DENIED = 4
CONFLICT = 5
AWAY = 6
"""The service cannot be reached."""
INTERRUPTED = 130
BROKEN_PIPE = 141
"""What a shell shows for a program that SIGPIPE ended."""


def of(error: StrataError) -> int:
    """The code for an error."""
    from strata.cli.transport import ServiceAway

    for kind, code in ((ServiceAway, AWAY), (Denied, DENIED), (Conflict, CONFLICT), (Refused, UNREACHABLE)):
        if isinstance(error, kind):
            return code
    return ERROR


def leave(code: int) -> None:
    """End the command with ``code``, or go on if it is 0."""
    if code:
        raise click.exceptions.Exit(code)
