"""``strata webhook``: where alerts are sent. No secret is an argument, and none is shown."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from strata.cli import listing as ls
from strata.cli.named import Named
from strata.cli.session import Session
from strata.core.errors import BadRequest

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
    """Send alerts to other services: webhooks."""


WEBHOOKS = Named(webhook, "webhook", "/v1/webhooks", FIELDS)
WEBHOOKS.list("List where alerts are sent, and whether they arrive.", "strata webhook list")
WEBHOOKS.delete("Delete a webhook.", "strata webhook delete pager")


@webhook.command("set")
@click.argument("name")
@click.argument("url")
@click.option(
    "--least",
    type=click.Choice(("warning", "critical")),
    default="warning",
    show_default=True,
    help="Send alerts of at least this severity.",
)
@click.option(
    "--secret-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True),
    help="What deliveries are signed with; '-' reads it from standard input. Without it, the secret that is set stays.",
)
@ls.json_option
def set_(session: Session, name: str, url: str, least: str, secret_file: Path | None, as_json: bool) -> None:
    """Have alerts sent to URL, as HTTP POST of JSON. With '-' the URL is read from standard input: a URL with a token
    in it is a secret, and everybody on the machine can see a command line. What may be a token is not shown.

    \b
    Example: strata webhook set pager https://alerts.example/strata --least critical --secret-file pager.secret
    """
    if url == "-":
        url = sys.stdin.readline().strip()
    if not url.startswith(("http://", "https://")):
        raise click.BadParameter("give an http:// or https:// address", param_hint="URL")
    body = {"url": url, "least": least}
    if secret_file is not None:
        body["secret"] = _secret(secret_file)
    found = session.client.put(WEBHOOKS.path(name), body)
    unsigned = "not signed: the receiver cannot tell whether they come from Strata (--secret-file signs them)"
    signed = "signed" if found["signed"] else unsigned
    session.out.answer(as_json, found, f"alerts go to {found['name']}, from {found['least']} on, {signed}")


def _secret(path: Path) -> str:
    text = sys.stdin.read(2 * _SECRET_MOST) if str(path) == "-" else path.read_text(encoding="utf-8")
    found = text.rstrip("\r\n")
    if not 0 < len(found) <= _SECRET_MOST:
        raise BadRequest(f"a secret has 1 to {_SECRET_MOST} characters", where=str(path))
    return found
