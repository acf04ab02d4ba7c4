"""``strata boot``: how nodes boot, and how their boots went."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from strata.cli import listing as ls
from strata.cli.named import Named
from strata.cli.session import Session
from strata.cli.times import when
from strata.cli.words import complete_node, complete_select, no_blank, segment, select_help
from strata.core.errors import NotFound
from strata.provisioning.boot.commands.unknown import unknown

if TYPE_CHECKING:
    from strata.cli.client import Json

PROFILE_FIELDS = (
    ls.plain("name"),
    ls.plain("minos"),
    ls.Field("build", lambda item: _builds(item)),
    ls.plain("method"),
    ls.number("wanted"),
    ls.plain("parameters"),
    ls.plain("description"),
    ls.plain("label", shown=False),
    ls.plain("command_line", shown=False),
    ls.number("revision", shown=False),
)


def _time(name: str, *, shown: bool = True) -> ls.Field:
    def text(item: Json) -> str:
        return when(item[name]) if item[name] else "-"

    return ls.Field(name, text, key=lambda item: item[name] or 0, shown=shown)


STATUS_FIELDS = (
    ls.plain("node"),
    ls.plain("profile"),
    ls.number("generation"),
    ls.number("attempts"),
    _time("script"),
    _time("fragment"),
    _time("redeemed"),
    ls.Field("attached", lambda item: "yes" if item["attached"] else "no"),
    ls.Field("held", lambda item: "yes" if item["held"] else "no"),
    ls.plain("serial", shown=False),
    _time("expires", shown=False),
)

METHODS = ("ipxe", "http", "media")


@click.group()
def boot() -> None:
    """Say how nodes boot, and see how they did."""


boot.add_command(unknown)


@select_help
@boot.command()
@click.argument("select", nargs=-1, shell_complete=complete_select, callback=no_blank)
@ls.listing(STATUS_FIELDS, sort="node")
def status(session: Session, select: tuple[str, ...], view: ls.Listing) -> None:
    """Show how nodes' boots went: number, failures in a row, when each last arrived.

    \b
    Example: strata boot status @compute --sort -attempts
    """
    found = session.client.pages("/v1/boot/nodes", {"select": " ".join(select) or "*"})
    ls.show(session, STATUS_FIELDS, found, view)


@boot.command()
@click.argument("node", shell_complete=complete_node)
@ls.json_option
def script(session: Session, node: str, as_json: bool) -> None:
    """Print the script that NODE would get if it asked now. Changes nothing.

    \b
    Example: strata boot script n0001
    """
    found = session.client.get(f"/v1/boot/nodes/{segment(node)}/script")
    if as_json:
        session.out.json(found)
    else:
        session.out.text(found["script"])


@boot.command()
@click.argument("node", shell_complete=complete_node)
@ls.json_option
def revoke(session: Session, node: str, as_json: bool) -> None:
    """Revoke the certificate of NODE. Its next boot gets a new one.

    \b
    Example: strata boot revoke n0001
    """
    found = session.client.post(f"/v1/boot/nodes/{segment(node)}/revoke")
    session.out.answer(as_json, found, f"{node} has no certificate until it boots again")


@boot.group()
def profile() -> None:
    """Say what nodes boot. A node boots the profile that its desire for 'minos' names, else 'default'."""


PROFILES = Named(profile, "boot profile", "/v1/boot/profiles", PROFILE_FIELDS)
PROFILES.list("List the profiles.", "strata boot profile list --columns name,build,wanted")
PROFILES.show(
    "Show one profile: its own parameters, and the whole command line that they make.",
    "strata boot profile show default",
)
PROFILES.delete("Delete a profile that no node is set to boot.", "strata boot profile delete debug")


@profile.command("set")
@click.argument("name")
@click.option("--minos", help="The build to boot: 'latest', or 12 digits from 'strata minos list'.")
@click.option("--parameters", help="Kernel parameters over those of 'default'; '-NAME' removes one.")
@click.option(
    "--method", type=click.Choice(METHODS), help="How machines boot: PXE with iPXE, UEFI HTTP boot, or a boot medium."
)
@click.option("--description", help="What it is for.")
@ls.json_option
def set_(
    session: Session,
    name: str,
    minos: str | None,
    parameters: str | None,
    method: str | None,
    description: str | None,
    as_json: bool,
) -> None:
    """Create a profile, or change the options that are given. Nodes that want it reboot if they must.

    \b
    Example: strata boot profile set debug --parameters 'loglevel=7 -quiet' --description 'talkative'
    """
    path = PROFILES.path(name)
    body: Json = {}
    revision = 0
    try:
        found = session.client.get(path)
        body = {key: found[key] for key in ("minos", "parameters", "method", "description")}
        revision = found["revision"]
    except NotFound:
        pass
    given = {"minos": minos, "parameters": parameters, "method": method, "description": description}
    body |= {key: value for key, value in given.items() if value is not None}
    headers = {"If-Match": f'"{revision}"'} if revision else {"If-None-Match": "*"}
    PROFILES.report(session, session.client.request("PUT", path, body=body, headers=headers).body, as_json)


def _builds(item: Json) -> str:
    """The build that a profile means; with several architectures, that of each."""
    found = item["builds"]
    return ", ".join(f"{arch} {build}" for arch, build in sorted(found.items())) if len(found) > 1 else item["build"]
