"""``strata hardware credentials``: who Strata is to the BMCs. No password is an argument, and none is shown."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from strata.cli import listing as ls
from strata.cli.named import Named
from strata.cli.output import many
from strata.cli.session import Session
from strata.cli.words import complete_select

FIELDS = (
    ls.plain("pattern"),
    ls.plain("user"),
    ls.number("used_by"),
    ls.moment("changed"),
    ls.plain("author"),
    ls.plain("doubt"),
)


@click.group()
def credentials() -> None:
    """Set the users and passwords of the nodes' BMCs."""


_CREDENTIALS = Named(credentials, "credential", "/v1/hardware/credentials", FIELDS)
_CREDENTIALS.list(
    "List credentials, without their passwords.", "strata hardware credentials list --sort -used_by", sort="pattern"
)


@credentials.command("set")
@click.argument("pattern")
@click.option("--user", required=True, help="The account on the BMCs.")
@click.option(
    "--password-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True),
    help="Where the password is; '-' reads it from standard input. Default: ask for it.",
)
@ls.json_option
def set_(session: Session, pattern: str, user: str, password_file: Path | None, as_json: bool) -> None:
    """Set the credential of a BMC's address, a glob of addresses, or 'default'.

    The most specific one that fits a BMC is used.

    \b
    Example: strata hardware credentials set default --user root
             strata hardware credentials set '10.1.*' --user admin --password-file bmc.password
             pass bmc/n42 | strata hardware credentials set https://10.1.0.42 --user root --password-file -
    """
    body = {"pattern": pattern, "user": user, "password": _password(password_file)}
    found = session.client.put("/v1/hardware/credentials", body)
    session.out.answer(
        as_json, found, f"set for {found['pattern']}: user {found['user']}; {many(found['used_by'], 'node')} so far"
    )


@credentials.command()
@click.argument("pattern")
@ls.json_option
def delete(session: Session, pattern: str, as_json: bool) -> None:
    """Forget the credential of a pattern. The BMCs keep their passwords.

    \b
    Example: strata hardware credentials delete '10.1.*'
    """
    session.client.delete("/v1/hardware/credentials", params={"pattern": pattern})
    session.out.answer(as_json, {"deleted": pattern}, f"forgotten: {pattern}")


@credentials.command()
@click.argument("select", nargs=-1, required=True, shell_complete=complete_select)
@ls.json_option
def rotate(session: Session, select: tuple[str, ...], as_json: bool) -> None:
    """Give the BMCs of nodes new random passwords, one each. Changes that were interrupted are finished.

    \b
    Example: strata hardware credentials rotate @rack12
    """
    job = session.client.post("/v1/hardware/credentials/rotate", {"select": " ".join(select)})
    said = f"'strata operation wait {job['id']}' shows how far it is"
    session.out.answer(as_json, job, f"operation {job['id']}: {many(job['total'], 'BMC')}; {said}")


@credentials.command("accept-certificate")
@click.argument("address")
@click.option("--sha256", default="", help="Fingerprint to accept. Default: whichever certificate it shows next.")
@ls.json_option
def accept_certificate(session: Session, address: str, sha256: str, as_json: bool) -> None:
    """Accept the changed certificate of a BMC that was replaced or renewed it.

    \b
    Example: strata hardware credentials accept-certificate https://10.1.0.42
    """
    body = {"address": address, "sha256": sha256}
    session.client.post("/v1/hardware/credentials/accept-certificate", body)
    session.out.answer(
        as_json,
        {"accepted": address, "sha256": sha256},
        f"accepted for {address}: {sha256 or 'the next certificate that it shows'}",
    )


def _password(path: Path | None) -> str:
    """From a file, standard input, or whoever sits at the terminal."""
    if path is None:
        if not sys.stdin.isatty():
            raise click.UsageError("no terminal to ask for the password at: give --password-file FILE, or '-'")
        return str(click.prompt("Password", hide_input=True, confirmation_prompt=True))
    text = sys.stdin.readline() if str(path) == "-" else path.read_text(encoding="utf-8")
    word = text.removesuffix("\n").removesuffix("\r")
    if not word or "\n" in word:
        raise click.UsageError("the password is one line that is not empty")
    return word
