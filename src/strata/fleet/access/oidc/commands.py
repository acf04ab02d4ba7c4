"""``strata login`` and ``strata logout``: who somebody is, by the site's OpenID Connect provider."""

from __future__ import annotations

import time

import click

from strata.cli.session import Session, pass_session
from strata.core.errors import BadRequest


@click.command()
@pass_session
def login(session: Session) -> None:
    """Log in at the site's provider, with a browser on any device.

    Commands with the same --url (or STRATA_URL) use the login until it ends. It is kept in
    ~/.config/strata/logins.json, which nobody else can read.

    \b
    Example: strata login
    """
    from strata.cli.login.kept import Login, keep
    from strata.cli.login.provider import begin, discover, wait

    url = _url(session)
    way = session.connect(url, anonymous=True).get("/v1/auth/oidc")
    provider = discover(way["issuer"])
    device = begin(provider, way["client"], time.time())
    session.out.line(f"Open {device.where} and enter the code {device.shown}")
    given = wait(provider, way["client"], device)
    keep(url, Login(way["issuer"], way["client"], provider.token, given))
    who = session.connect(url).get("/v1/auth/whoami")
    session.out.line(f"You are {who['name']}, with the role {who['role']}")


@click.command()
@pass_session
def logout(session: Session) -> None:
    """Forget the login.

    \b
    Example: strata logout
    """
    from strata.cli.login.kept import forget

    session.out.line("Forgotten" if forget(_url(session)) else "There was no login")


def _url(session: Session) -> str:
    if session.local:
        raise BadRequest(
            "the local socket needs no login", hint="name the service: --url https://HOST:PORT, or STRATA_URL"
        )
    return session.url
