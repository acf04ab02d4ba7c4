"""``strata status``, ``log-level``, ``version``: the service at a glance."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from strata import __version__
from strata.cli.listing import json_option
from strata.cli.output import many
from strata.cli.session import Session
from strata.cli.times import span

if TYPE_CHECKING:
    from strata.cli.client import Json


@click.command()
@json_option
def status(session: Session, as_json: bool) -> None:
    """Show the fleet at a glance: nodes by state, trouble, alerts, brakes.

    \b
    Example: strata status
    """
    from strata.cli.glance import glance

    if as_json:
        session.out.json(session.client.get("/v1/status"))
        return
    seen = glance(session.client)
    found, out = seen.status, session.out
    leaders: dict[str, int] = {}
    for shard in found["shards"]:
        leader = shard["leader"] or "nobody"
        leaders[leader] = leaders.get(leader, 0) + 1
    unled, as_of = found.get("unled", 0), found.get("as_of")
    old = f"; what is shown of them is as of {span(time.time() - as_of)} ago" if as_of else ""
    out.fields(
        (
            *seen.lines(),
            ("not looked after", f"{many(unled, 'node')}{old}" if unled else ""),
            ("brakes", f"{many(found['freezes'], 'freeze')}, {many(found['holds'], 'hold')}"),
            *((("canaries", canaries),) if (canaries := _canaries(found)) else ()),
            ("engine", ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in found["queue"].items())),
            ("shards", ", ".join(f"{count} led by {name}" for name, count in sorted(leaders.items()))),
            ("controller", f"{found['controller']}, up {span(time.time() - found['started'])}"),
            ("version", found["version"]),
            ("revision", found["revision"]),
        )
    )


def _canaries(found: Json) -> str:
    return ", ".join(
        f"{many(one['waiting'], 'node')} {'waits' if one['waiting'] == 1 else 'wait'} for {one['node']}"
        for one in found["canaries"]
    )


@click.command("log-level")
@click.argument("level", required=False, type=click.Choice(["debug", "info", "warning", "error"]))
@json_option
def log_level(session: Session, level: str | None, as_json: bool) -> None:
    """Show or switch the service's log level, while it runs.

    \b
    Example: strata log-level debug
    """
    if level is None:
        level = str(session.client.get("/v1/config/log-level")["level"])
    else:
        session.client.put("/v1/config/log-level", {"level": level})
    session.out.answer(as_json, {"level": level}, level)


@click.command()
@json_option
def version(session: Session, as_json: bool) -> None:
    """Show the version of this command.

    \b
    Example: strata version
    """
    session.out.answer(as_json, {"version": __version__}, f"strata {__version__}")
