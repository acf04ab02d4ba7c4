"""``strata store``: back up, restore and check durable state. The last two work while the service is down."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from strata.cli import exits
from strata.cli.listing import json_option
from strata.cli.session import LONG, Session
from strata.core.errors import Conflict, NotFound

if TYPE_CHECKING:
    from strata.cli.client import Json

STORE_OPTION = click.option(
    "--store", "url", default="", metavar="URL", help="The store, if it is not SQLite in the state directory."
)


@click.group()
def store() -> None:
    """Back up, restore and check durable state."""


@store.command()
@json_option
def backup(session: Session, as_json: bool) -> None:
    """Write a consistent backup into the service's state directory, while it works.

    \b
    Example: strata store backup
    """
    made = session.connect(session.url, timeout=LONG).post("/v1/store/backup", {})
    session.out.answer(as_json, made, f"{made['path']}: revision {made['revision']}, {made['bytes']} bytes")


@store.command()
@STORE_OPTION
@json_option
def check(session: Session, url: str, as_json: bool) -> None:
    """Look at every stored byte; exit code 1 if something is wrong. Without a service it looks at the files itself.

    \b
    Example: strata store check
    """
    from strata.cli.transport import ServiceAway

    _refuse_missing(url)
    try:
        found: Json = _check_offline(url) if url else session.connect(session.url, timeout=LONG).get("/v1/store/check")
    except ServiceAway:
        if not session.local:
            raise
        found = _check_offline(_existing(session))
    if as_json:
        session.out.json(found)
    else:
        for problem in found["problems"]:
            session.out.line(problem, colour="red")
        if found["ok"]:
            session.out.line(f"sound, at revision {found['revision']}", colour="green")
    if not found["ok"]:
        exits.leave(exits.ERROR)


def _refuse_missing(url: str) -> None:
    """A check must not make the store that it looks at, and find it sound."""
    path = url.removeprefix("sqlite:")
    if path != url and not Path(path).exists():
        raise NotFound("there is no store", where=path)


def _existing(session: Session) -> str:
    """The local store, if there is one."""
    path = session.state_dir / "strata.db"
    if not path.exists():
        raise NotFound(
            "no service answers and there is no store here", where=str(path), hint="STRATA_STATE says where it is"
        )
    return f"sqlite:{path}"


def _check_offline(url: str) -> Json:
    import asyncio

    from strata.store.open import open_store

    async def look() -> Json:
        opened = open_store(url)
        try:
            problems = await opened.check()
            return {"ok": not problems, "problems": problems, "revision": await opened.revision()}
        finally:
            await opened.close()

    return asyncio.run(look())


@store.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@STORE_OPTION
@click.option("--overwrite", is_flag=True, help="Even if the store is not empty: what is in it is lost.")
@json_option
def restore(session: Session, file: Path, url: str, overwrite: bool, as_json: bool) -> None:
    """Put a backup in place of the store. The service must be stopped.

    \b
    Example: strata store restore /var/lib/strata/backups/strata-1234.backup
    """
    _refuse_while_running(session)
    import asyncio

    from strata.store.restore import restore as put_back

    if not url:
        session.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    target = url or f"sqlite:{session.state_dir / 'strata.db'}"
    revision = asyncio.run(put_back(file, target, overwrite=overwrite))
    session.out.answer(
        as_json,
        {"file": str(file), "store": target, "revision": revision},
        f"restored {file} into {target}, at revision {revision}",
    )


def _refuse_while_running(session: Session) -> None:
    from strata.fleet.settings import admin_socket

    socket = admin_socket(session.state_dir)
    if session.connect(f"unix:{socket}", timeout=5.0).is_answered():
        raise Conflict(
            "a service is running in this state directory",
            where=str(socket),
            hint="stop it first: with SIGTERM, or with 'strata stop' where 'strata up' started it",
        )
