"""``strata secret``: secrets of nodes. A value is read from a file or standard input, encrypted here, never shown."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from strata.cli import exits
from strata.cli import listing as ls
from strata.cli.named import Named
from strata.cli.output import many
from strata.cli.session import Session, pass_session
from strata.cli.times import when
from strata.cli.words import complete_select, pairs, segment
from strata.core.errors import BadRequest

if TYPE_CHECKING:
    from strata.cli.client import Json

F = TypeVar("F", bound=Callable[..., Any])

FIELDS = (
    ls.plain("name"),
    ls.plain("select"),
    ls.number("nodes"),
    ls.plain("source"),
    ls.number("version"),
    ls.moment("changed"),
    ls.plain("author"),
    ls.plain("trouble"),
)
_STATES = ("current", "older", "missing", "away", "leftover")
_FILE = click.option(
    "--file",
    "file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True),
    default="-",
    help="File with the value. Default: standard input. Used as it is, with a final newline if there is one.",
)
_VAULT = "mount=secret,path=strata/munge,field=key"


def _for(function: F) -> F:
    """Whom it is for, and who owns the file there."""
    uid = click.option("--uid", default=0, show_default=True, help="Owner of the file on nodes.")
    gid = click.option(
        "--gid", default=0, show_default=True, help="Group of the file on nodes. If not 0, the group can read it."
    )
    select = click.option(
        "--select",
        required=True,
        metavar="SELECT",
        shell_complete=complete_select,
        help="Nodes that get it: names, groups, labels.",
    )
    return select(uid(gid(function)))


@click.group()
def secret() -> None:
    """Give nodes secrets, which are encrypted in git and in the store. The service decrypts them for the nodes they
    are for."""


@secret.command()
@click.option(
    "--new", is_flag=True, help="Make a new identity. Older ones are kept, to decrypt what was encrypted for them."
)
@ls.json_option
def init(session: Session, new: bool, as_json: bool) -> None:
    """Make the service's age identity, for which secrets are encrypted. Its private half never leaves the service.

    \b
    Example: strata secret init
    """
    found = session.client.post("/v1/secret-identity", {"new": new})
    session.out.answer(as_json, found, found["recipient"])


@secret.command()
@ls.json_option
def recipient(session: Session, as_json: bool) -> None:
    """Print the public key that secrets are encrypted for. It is an age recipient, as 'age -r' takes it.

    \b
    Example: strata secret recipient
    """
    found = session.client.get("/v1/secret-identity")
    session.out.answer(as_json, found, found["recipient"])


@secret.command()
@click.argument("name")
@_for
@_FILE
@click.option(
    "--recipient",
    "whom",
    default="",
    metavar="AGE1...",
    help="Public key to encrypt for. Default: ask the service for it.",
)
@pass_session
def encrypt(session: Session, name: str, select: str, uid: int, gid: int, file: Path, whom: str) -> None:
    """Print a secret, encrypted, as a document for the site repository. The value is not sent to the service.

    \b
    Example: strata secret encrypt munge --select @compute --file munge.key > site/secrets/munge.yaml
             pass slurm/jwt | strata secret encrypt jwt --select ctl1 --uid 64030 > site/secrets/jwt.yaml
    """
    segment(name)
    lines = [f"name: {name}", f"select: {json.dumps(select)}"]
    lines += [f"{field}: {number}" for field, number in (("uid", uid), ("gid", gid)) if number]
    armoured = "".join(f"  {line}\n" for line in _encrypted(session, file, whom).splitlines())
    for line in ("kind: secret", *lines, "age: |", *armoured.splitlines()):
        session.out.line(line)


@secret.command()
@click.argument("name")
@_for
@_FILE
@click.option(
    "--vault",
    "vault",
    default="",
    metavar=_VAULT,
    help="Read the value from this Vault path; the service passes it to the nodes.",
)
@ls.json_option
def put(session: Session, name: str, select: str, uid: int, gid: int, file: Path, vault: str, as_json: bool) -> None:
    """Create or replace a secret, from a file or standard input. Nodes find it in /run/strata/secrets/NAME.

    \b
    Example: strata secret put munge --select @compute --file munge.key
             head -c 32 /dev/urandom | strata secret put cookie --select 'n[1-4]'
             strata secret put keytab --select @login --vault path=hpc/keytab,field=base
    """
    body: Json = {"select": select, "uid": uid, "gid": gid}
    if vault:
        body["vault"] = pairs(vault.split(","), option="--vault")
    else:
        body["age"] = _encrypted(session, file, "")
    found = session.client.put(f"/v1/secrets/{segment(name)}", body)
    told = f"version {found['version']} of {name}, for {many(found['nodes'], 'node')}"
    session.out.answer(as_json, found, told)


@secret.command()
@click.argument("name")
@_FILE
@click.option("--wait", is_flag=True, help="Wait until every node that is up has it.")
@click.option("--timeout", default=300.0, show_default=True, help="Seconds to wait.")
@ls.json_option
def rotate(session: Session, name: str, file: Path, wait: bool, timeout: float, as_json: bool) -> None:
    """Give a secret another value. 'strata secret status' shows which nodes have it; nodes that are down get it when
    they come up.

    Exit code 3 if --wait ends before all nodes that are up have it.

    \b
    Example: strata secret rotate munge --file munge.key.new --wait
    """
    body = {"age": _encrypted(session, file, "")}
    found = session.client.post(f"/v1/secrets/{segment(name)}/rotate", body)
    deadline = time.monotonic() + timeout
    status: Json = {}
    while wait:
        status = session.client.get(f"/v1/secrets/{segment(name)}/status")
        behind = status["counts"]["older"] + status["counts"]["missing"]
        if not behind or time.monotonic() > deadline:
            break
        time.sleep(1)
    if as_json:
        session.out.json({**found, "status": status} if wait else found)
    else:
        session.out.line(f"version {found['version']} of {name}, for {many(found['nodes'], 'node')}")
        if wait:
            _show_status(session, status)
    if wait and behind:
        exits.leave(exits.UNREACHABLE)


def _without_value(session: Session, found: Json) -> None:
    said = ("name", "select", "nodes", "source", "version", "uid", "gid", "trouble")
    session.out.fields(
        (*((field, found[field]) for field in said), ("changed", f"{when(found['changed'])} by {found['author']}"))
    )


SECRETS = Named(secret, "secret", "/v1/secrets", FIELDS, report=_without_value)
SECRETS.list("List secrets, without their values.", "strata secret list")
SECRETS.show("Show a secret, without its value.", "strata secret show munge")


@secret.command()
@click.argument("name")
@ls.json_option
def status(session: Session, name: str, as_json: bool) -> None:
    """Show which nodes report the newest value, an older one, or none.

    \b
    Example: strata secret status munge
    """
    found = session.client.get(f"/v1/secrets/{segment(name)}/status")
    if as_json:
        session.out.json(found)
    else:
        _show_status(session, found)


SECRETS.delete(
    "Remove a secret. Nodes that are up remove it too, but not copies that programs made.",
    "strata secret delete munge",
)


def _show_status(session: Session, found: Json) -> None:
    rows = [(state, f"{found['counts'][state]}  {found[state]}") for state in _STATES if found["counts"][state]]
    session.out.fields((("version", found["version"]), *rows, ("trouble", found["trouble"])))


def _encrypted(session: Session, file: Path, whom: str) -> str:
    """The value of a file or standard input, readable for the service alone."""
    from strata.platform.secrets.age import encrypt as encrypted
    from strata.platform.secrets.records import MOST

    if str(file) == "-" and sys.stdin.isatty():
        raise click.UsageError("give --file FILE, or the value on standard input: what is typed stays on the screen")
    value = sys.stdin.buffer.read(MOST + 1) if str(file) == "-" else file.read_bytes()
    if not value or len(value) > MOST:
        raise BadRequest(f"a secret has 1 to {MOST} bytes", where=str(file))
    return encrypted(value, [whom or session.client.get("/v1/secret-identity")["recipient"]])
