"""``strata`` alone: what one can do next, given how this machine and its fleet are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from strata.cli.glance import Glance, glance
from strata.cli.up.background import is_ours
from strata.core.errors import Denied, Unauthenticated, Unavailable

if TYPE_CHECKING:
    from strata.cli.session import Session

Step = tuple[str, str]
"""What to type, and what comes of it."""

STOPPED: tuple[Step, ...] = (
    ("strata up", "go on with what is there"),
    ("strata down --delete", "delete it"),
)
NOBODY_HERE: tuple[Step, ...] = (
    ("strata up --simulated", "a simulated fleet of 256 nodes on this machine"),
    ("strata up", "four virtual machines that boot over their network (as root)"),
    ("strata serve --help", "run the service for a machine of your own"),
    ("strata --url https://HOST:8443 --token-file FILE status", "ask a service elsewhere"),
)


def show_next_steps(session: Session) -> None:
    """Say how things are, and what can be done about it."""
    out = session.out
    try:
        seen = glance(session.connect(session.url, timeout=5.0))
    except (Denied, Unauthenticated) as error:
        out.line(f"Strata answers at {session.url}, but does not know you: {error}")
        steps: tuple[Step, ...] = (("strata --token-file FILE status", "ask with a token of yours"),)
    except (Unavailable, OSError) as error:
        kept = session.local and is_ours(session.state_dir)
        where = "on this machine" if session.local else f"at {session.url}"
        out.line(f"Strata is stopped, and kept in {session.state_dir}." if kept else f"No Strata answers {where}.")
        if not session.local:
            out.note(error)
        steps = STOPPED if kept else NOBODY_HERE
    else:
        out.fields(seen.lines())
        steps = tuple(_after(seen))
    out.line()
    out.line("Next:")
    width = max(len(command) for command, _ in steps)
    for command, outcome in (*steps, ("strata --help", "everything that can be done")):
        out.line(f"  {command:<{width}}  {outcome}")


def _after(seen: Glance) -> Iterator[Step]:
    by_state = seen.status["by_state"]
    if not seen.status["nodes"]:
        yield "strata hardware discover --help", "find machines by their BMCs, and adopt them"
        yield "strata config init site", "describe the machine in git"
        return
    if seen.alerts:
        yield "strata alert list", "what somebody should look after"
    for state in ("faulted", "unreachable"):
        if by_state.get(state):
            yield f"strata node why state:{state}", "why they do not get there"
    for state in ("held", "frozen"):
        if by_state.get(state):
            yield f"strata node why state:{state}", "who stopped automation for them, and why"
    for one in seen.rollouts:
        if one["state"] == "stopped":
            yield f"strata rollout status {one['name']}", "why it stopped; resume or abort it"
        elif one["state"] == "paused":
            yield f"strata rollout resume {one['name']}", "let it go on; or abort it"
        else:
            yield f"strata rollout status {one['name']} --wait", "follow it to its end"
    if by_state.get("waiting"):
        yield "strata node why state:waiting", "what they wait for"
    if by_state.get("converging") or by_state.get("waiting"):
        yield "strata top", "watch them come up"
    if by_state.get("unmanaged") == seen.status["nodes"]:
        yield "strata node set '*' power=on --wait", "say what they should be"
    yield "strata node list", "all nodes"
    yield "strata document list", "what is wanted, and who said so"
