"""``strata webhook``: where alerts are sent. No secret is an argument, and none is shown."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from strata.cli import listing as ls
from strata.cli.session import Session, pass_session
from strata.cli.words import items
from strata.core.errors import BadRequest

if TYPE_CHECKING:
    from strata.cli.client import Json

FIELDS = (
    ls.plain("name"),
    ls.plain("url"),
    ls.plain("least"),
    ls.Field("signed", lambda item: "yes" if item["signed"] else "no"),
    ls.number("delivered"),
    ls.plain("failing"),
)
_SECRET_MOST = 1024


@click.group()
def webhook() -> None:
    """Have alerts sent elsewhere."""


@webhook.command("list")
@ls.listing(FIELDS, sort="name")
@pass_session
def list_(session: Session, view: ls.Listing) -> None:
    """List where alerts are sent, and how well that goes.

    \b
    Example: strata webhook list
    """
    ls.show(session, FIELDS, items(session.client.get("/v1/webhooks")), view)


@webhook.command("set")
@click.argument("name")
@click.argument("url")
@click.option(
    "--least", type=click.Choice(("warning", "critical")), default="warning", show_default=True, help="Alerts this bad."
)
@click.option(
    "--secret-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True),
    help="What deliveries are signed with; '-' reads it from standard input. Without it, the secret that is set stays.",
)
@ls.json_option
@pass_session
def set_(session: Session, name: str, url: str, least: str, secret_file: Path | None, as_json: bool) -> None:
    """Have alerts sent to URL, as HTTP POST of JSON. '-' reads it from standard input: with a token in it, it is a
    secret, and a command line is for all to see. It is shown without what may be one.

    \b
    Example: strata webhook set pager https://alerts.example/strata --least critical --secret-file pager.secret
    """
    from strata.cli.client import segment

    if url == "-":
        url = sys.stdin.readline().strip()
    if not url.startswith(("http://", "https://")):
        raise click.BadParameter("give an http:// or https:// address", param_hint="URL")
    body = {"url": url, "least": least}
    if secret_file is not None:
        body["secret"] = _secret(secret_file)
    found: Json = session.client.request("PUT", f"/v1/webhooks/{segment(name)}", body=body).body
    if as_json:
        session.out.json(found)
    else:
        signed = "signed" if found["signed"] else "not signed: anybody could send the like (--secret-file)"
        session.out.line(f"alerts go to {found['name']}, from {found['least']} on, {signed}")


@webhook.command()
@click.argument("name")
@ls.json_option
@pass_session
def delete(session: Session, name: str, as_json: bool) -> None:
    """Send no more alerts there.

    \b
    Example: strata webhook delete pager
    """
    from strata.cli.client import segment

    session.client.request("DELETE", f"/v1/webhooks/{segment(name)}")
    session.out.answer(as_json, {"deleted": name}, f"deleted webhook {name}")


def _secret(path: Path) -> str:
    text = sys.stdin.read(2 * _SECRET_MOST) if str(path) == "-" else path.read_text(encoding="utf-8")
    found = text.rstrip("\r\n")
    if not 0 < len(found) <= _SECRET_MOST:
        raise BadRequest(f"a secret has 1 to {_SECRET_MOST} characters", where=str(path))
    return found
