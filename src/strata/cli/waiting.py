"""``--wait``: stay until nodes are where a command wants them. The one way in which commands offer it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from strata.cli.times import DURATION

if TYPE_CHECKING:
    from strata.cli.session import Session

F = TypeVar("F", bound=Callable[..., Any])


def wait_options(function: F) -> F:
    """``--wait`` and ``--timeout``, as ``waiting`` and ``timeout``."""
    function = click.option(
        "--timeout", type=DURATION, default="1h", show_default=True, help="Wait at most this long."
    )(function)
    return click.option(
        "--wait", "waiting", is_flag=True, help="Wait until the nodes are at their goals, or cannot get there."
    )(function)


def arrival(session: Session, select: str, timeout: float, *, revision: int = 0) -> int:
    """Follow the selected nodes until none moves, from what was said at ``revision`` on; the exit code."""
    from strata.cli import converge
    from strata.cli.output import counts

    found = converge.wait(session.client, select, session.out, timeout=timeout, revision=revision)
    code = converge.verdict(found)
    if code:
        session.out.note(f"not all got there: {counts(found)}; strata node why NODE says why")
    return code
