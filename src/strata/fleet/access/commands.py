"""``strata auth``: tokens and certificates. A secret is shown once, or written to a file that only its owner reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from strata.cli import listing as ls
from strata.cli.named import Named
from strata.cli.session import Session
from strata.cli.times import DURATION, when
from strata.cli.words import complete_group, segment
from strata.core.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from strata.cli.client import Json

ROLES = ("viewer", "operator", "admin", "node", "workload-manager", "user")

TOKENS = (
    ls.plain("id"),
    ls.plain("role"),
    ls.Field("scope", lambda item: ",".join(item.get("scope", ())) or "all"),
    ls.moment("created"),
    ls.moment("expires"),
    ls.plain("author"),
    ls.plain("note"),
)

CERTIFICATES = (
    ls.plain("serial"),
    ls.plain("name"),
    ls.plain("role"),
    ls.Field("scope", lambda item: ",".join(item.get("scope", ())) or "all"),
    ls.moment("expires"),
    ls.plain("author"),
    ls.plain("revoked"),
)


@click.group()
def auth() -> None:
    """Make, list and revoke tokens and certificates."""


@auth.group()
def token() -> None:
    """Bearer tokens."""


@auth.group()
def cert() -> None:
    """Client certificates from Strata's own authority."""


def _limits(ttl: str) -> Callable[[ls.F], ls.F]:
    """The options that say what a credential is good for."""

    def decorate(function: ls.F) -> ls.F:
        for option in (
            click.option("--ttl", type=DURATION, default=ttl, show_default=True, help="How long it is good for."),
            click.option(
                "--scope", multiple=True, metavar="GROUP", shell_complete=complete_group, help="Only these groups."
            ),
            click.option("--role", type=click.Choice(ROLES), required=True, help="What it may do."),
        ):
            function = option(function)
        return function

    return decorate


@token.command("create")
@_limits("30d")
@click.option("--name", help="Who holds it. Jobs run as the account of that name.")
@click.option("--note", default="", help="What it is for.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write it there (0600).")
@ls.json_option
def create_token(
    session: Session,
    role: str,
    scope: tuple[str, ...],
    ttl: float,
    name: str | None,
    note: str,
    output: Path | None,
    as_json: bool,
) -> None:
    """Make a token. It is printed once and kept nowhere; give -o FILE to keep it off the screen.

    \b
    Example: strata auth token create --role operator --scope gpu --ttl 7d -o operator.token
             strata auth token create --role user --name alice -o alice.token
    """
    if output is not None:
        _refuse_existing(output)
    body = {"role": role, "scope": list(scope), "ttl": int(ttl), "note": note, **({"name": name} if name else {})}
    made = session.client.post("/v1/auth/tokens", body)
    about: Json = made["view"]
    if output is not None:
        _write_secret(output, made["token"] + "\n")
        made = {**made, "token": None, "file": str(output)}
    if as_json:
        session.out.json(made)
        return
    session.out.line(output or made["token"])
    use = "with --token-file" if output is not None else "as STRATA_TOKEN"
    session.out.note(f"token {about['id']}, {about['role']}, good until {when(about['expires'])}; use it {use}")


_TOKENS = Named(token, "token", "/v1/auth/tokens", TOKENS)
_TOKENS.list("List tokens, without their secrets.", "strata auth token list --match role=admin", sort="created")


@token.command("revoke")
@click.argument("identity", metavar="ID")
@ls.json_option
def revoke_token(session: Session, identity: str, as_json: bool) -> None:
    """Revoke a token, at once.

    \b
    Example: strata auth token revoke 515582ffccaf9ffc
    """
    if identity.startswith("strata_"):
        raise click.UsageError("give the token's ID, not the token itself: strata auth token list")
    session.client.delete(f"/v1/auth/tokens/{segment(identity)}")
    session.out.answer(as_json, {"revoked": identity}, f"revoked token {identity}")


@cert.command("create")
@click.argument("name")
@_limits("1d")
@click.option("--csr", type=click.Path(path_type=Path, dir_okay=False), help="Sign this request; the key stays yours.")
@click.option(
    "-d",
    "--directory",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=".",
    show_default=True,
    help="Where NAME.crt, NAME.key (0600) and NAME.ca.crt go.",
)
@ls.json_option
def create_cert(
    session: Session,
    name: str,
    role: str,
    scope: tuple[str, ...],
    ttl: float,
    csr: Path | None,
    directory: Path,
    as_json: bool,
) -> None:
    """Make a client certificate. It, its key and the authority's certificate are written to files.

    \b
    Example: strata auth cert create alice --role operator --ttl 30d -d ~/.config/strata
    """
    files = {part: directory / f"{name}.{end}" for part, end in _CERT_FILES.items() if part != "key" or csr is None}
    for path in files.values():
        _refuse_existing(path)
    body: Json = {"name": name, "role": role, "scope": list(scope), "ttl": int(ttl)}
    if csr is not None:
        try:
            body["csr"] = csr.read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError):
            raise BadRequest("cannot read the request; it must be a PEM file", where=str(csr)) from None
        if not body["csr"].strip():
            raise BadRequest("the request is empty; it must be a PEM file", where=str(csr))
    made = session.client.post("/v1/auth/certificates", body)
    for part, path in files.items():
        _write_secret(path, made[part])
    paths = {part: str(path) for part, path in files.items()}
    if as_json:
        session.out.json({"serial": made["serial"], "expires": made["expires"], "files": paths})
        return
    session.out.fields((("serial", made["serial"]), ("expires", when(made["expires"])), *paths.items()))


_CERT_FILES = {"certificate": "crt", "key": "key", "ca": "ca.crt"}


_CERTIFICATES = Named(cert, "certificate", "/v1/auth/certificates", CERTIFICATES)
_CERTIFICATES.list(
    "List client certificates that have not expired.", "strata auth cert list --match revoked=False", sort="expires"
)


@cert.command("revoke")
@click.argument("serial")
@ls.json_option
def revoke_cert(session: Session, serial: str, as_json: bool) -> None:
    """Revoke a certificate by its serial number, at once.

    \b
    Example: strata auth cert revoke 5A0C44E1
    """
    session.client.delete(f"/v1/auth/certificates/{segment(serial)}")
    session.out.answer(as_json, {"revoked": serial}, f"revoked certificate {serial}")


@auth.command()
@ls.json_option
def whoami(session: Session, as_json: bool) -> None:
    """Show who you are to the service, and what you may do.

    \b
    Example: strata auth whoami
    """
    found = session.client.get("/v1/auth/whoami")
    if as_json:
        session.out.json(found)
        return
    session.out.fields(
        (
            ("name", found["name"]),
            ("role", found["role"]),
            ("scope", ", ".join(found["scope"]) or "all"),
            ("via", found["via"]),
            *((f"may {verb}", ", ".join(kinds)) for verb, kinds in _by_verb(found["rights"]).items()),
        )
    )


def _by_verb(rights: list[str]) -> dict[str, list[str]]:
    """``read node`` and the like, as what each verb is good for."""
    found: dict[str, list[str]] = {}
    for right in rights:
        verb, _, kind = right.partition(" ")
        found.setdefault(verb, []).append(kind)
    return found


def _refuse_existing(path: Path) -> None:
    """Before a secret is made: if it cannot be written it is lost, and it is never written over something."""
    if path.exists() or path.is_symlink():
        raise BadRequest("is there already", where=str(path), hint="move it away, or choose another place")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise BadRequest("cannot be written", where=str(path), hint="the directory must be there, and be yours")


def _write_secret(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)
