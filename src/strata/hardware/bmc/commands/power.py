"""``strata power``: switch nodes, and see which are on. (What they draw: ``strata energy``.)"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import click

from strata.cli import listing as ls
from strata.cli.lazy import LazyGroup
from strata.cli.session import Session
from strata.cli.waiting import wait_options
from strata.cli.words import complete_select, no_blank, select_help
from strata.hardware.bmc.commands.bmc import SELECT, send
from strata.rooms import commands

DESIRES = ("on", "off", "graceful-off")
"""What becomes a desire that Strata fulfils with its brakes; the rest is done at once."""


_CAPS = "strata hardware limits SELECT --set WATTS"


@click.group(
    cls=LazyGroup, members=lambda: commands("power"), elsewhere=dict.fromkeys(("cap", "limit", "limits"), _CAPS)
)
def power() -> None:
    """Switch nodes on and off, and limit the power of the machine."""


def _switching(function: Callable[..., None]) -> Any:
    """A command that switches nodes: whom, and whether to stay until it is done."""
    return SELECT(wait_options(ls.json_option(function)))


def _switch(
    session: Session,
    action: str,
    select: tuple[str, ...],
    *,
    waiting: bool,
    timeout: float,
    as_json: bool,
    force: bool = False,
) -> None:
    words = shlex.join(select)
    wish = action in DESIRES
    hint = f"it stays wanted until: strata node set {words} --unset power" if wish else ""
    body = {"select": " ".join(select), "action": action, "force": force}
    done = f"wanted {action}" if wish else f"told to {action}"
    send(session, "/v1/bmc/power", body, done, as_json=as_json, hint=hint, wait=timeout if waiting else None)


@select_help
@click.command()
@_switching
def on(session: Session, select: tuple[str, ...], waiting: bool, timeout: float, as_json: bool) -> None:
    """Switch nodes on, and keep them on. Brakes and budgets hold.

    \b
    Example: strata power on 'n[1-4]' --wait
    """
    _switch(session, "on", select, waiting=waiting, timeout=timeout, as_json=as_json)


@select_help
@click.command()
@click.option("--graceful", is_flag=True, help="Ask the operating system to shut down first.")
@_switching
def off(
    session: Session, select: tuple[str, ...], graceful: bool, waiting: bool, timeout: float, as_json: bool
) -> None:
    """Switch nodes off, and keep them off. Jobs are waited for; brakes and budgets hold.

    \b
    Example: strata power off n7
             strata power off @rack12 --graceful --wait
    """
    _switch(session, "graceful-off" if graceful else "off", select, waiting=waiting, timeout=timeout, as_json=as_json)


@select_help
@click.command()
@click.option("--graceful", is_flag=True, help="Ask the operating system to restart, instead of cutting power.")
@click.option("--force", is_flag=True, help="Even if it is frozen or has jobs.")
@_switching
def cycle(
    session: Session,
    select: tuple[str, ...],
    graceful: bool,
    force: bool,
    waiting: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Switch nodes off and on again, at once.

    \b
    Example: strata power cycle n7
             strata power cycle n7 --graceful --wait
    """
    action = "graceful-restart" if graceful else "cycle"
    _switch(session, action, select, waiting=waiting, timeout=timeout, as_json=as_json, force=force)


@select_help
@click.command()
@click.option("--force", is_flag=True, help="Even if it is frozen or has jobs.")
@_switching
def nmi(session: Session, select: tuple[str, ...], force: bool, waiting: bool, timeout: float, as_json: bool) -> None:
    """Send nodes a non-maskable interrupt, so that their kernels say where they hang.

    \b
    Example: strata power nmi n7 --force
    """
    _switch(session, "nmi", select, waiting=waiting, timeout=timeout, as_json=as_json, force=force)


FIELDS = (
    ls.plain("node"),
    ls.plain("power"),
    ls.plain("wanted"),
    ls.plain("state"),
    ls.plain("doing"),
)


@select_help
@click.command()
@click.argument("select", nargs=-1, metavar="[SELECT]", callback=no_blank, shell_complete=complete_select)
@ls.listing(FIELDS)
def status(session: Session, select: tuple[str, ...], view: ls.Listing) -> None:
    """Show which nodes are on, which are off, and what is wanted of them.

    \b
    Example: strata power status 'n[1-4]'
             strata power status @compute --match power=off --columns node
    """
    params = {"select": " ".join(select) or "*", "fields": "name,state,facts,desires,doing"}
    rows = []
    for item in session.client.pages("/v1/nodes", params):
        fact, want = item["facts"].get("power"), item["desires"].get("power")
        rows.append(
            {
                "node": item["name"],
                "power": fact["value"] if fact else "unknown",
                "wanted": "|".join(want["values"]) if want else "",
                "state": item["state"],
                "doing": item["doing"]["mutation"] if item.get("doing") else "",
            }
        )
    ls.show(session, FIELDS, rows, view)
