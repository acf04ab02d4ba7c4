"""``strata config render`` and ``strata config drift``: what a node would get, and what is not as it was delivered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from strata.cli import listing as ls
from strata.cli.output import many
from strata.cli.session import Session
from strata.cli.words import complete_node, complete_select, segment

DRIFT = (
    ls.plain("node"),
    ls.plain("what"),
    ls.plain("where"),
    ls.plain("how"),
    ls.plain("member", shown=False),
    ls.plain("policy"),
    ls.Field("handled", lambda item: "corrected" if item["corrected"] else "reported"),
    ls.moment("since"),
)


@click.command()
@click.argument("node", shell_complete=complete_node)
@click.argument("directory", default=".", type=click.Path(path_type=Path, file_okay=False))
@click.option("--system", default="", metavar="NAME", help="The system of systems/NAME/; needed if there are several.")
@click.option("--commit", default="", metavar="COMMIT", help="Use this commit (or branch), not the files.")
@click.option(
    "--applied", is_flag=True, help="Show what the service configures the node with now, not what a directory says."
)
@click.option("--file", "path", default="", metavar="PATH", help="Print one file, and nothing else.")
@ls.json_option
def render(
    session: Session, node: str, directory: Path, system: str, commit: str, applied: bool, path: str, as_json: bool
) -> None:
    """Show the configuration that a node would get from the repository in DIRECTORY. That is files, users, services and
    the rest.

    Without --applied it needs no service, and uses only what the repository says of the node.

    \b
    Example: strata config render n1 site
             strata config render n1 --applied --file /etc/motd
    """
    found: Any
    if applied:
        found = session.client.get(f"/v1/config/rendered/{segment(node)}")
    else:
        found = _rendered(node, directory, system, commit)
    files = found["files"]
    if path:
        files = [file for file in files if file["path"] == path]
        if not files:
            raise click.UsageError(f"{node} gets no {path}")
    if as_json:
        session.out.json(files[0] if path else found)
        return
    if path:
        click.echo(files[0]["content"], nl=False)
        return
    for file in files:
        owner = file["owner"] + (f":{file['group']}" if file["group"] else "")
        session.out.line(f"{file['path']}  {file['mode']} {owner}  drift: {file['drift']}  ({file['place']})")
        for line in file["content"].splitlines():
            session.out.line(f"    {line}")
    for kind, entries in found["rest"].items():
        for entry in entries:
            told = " ".join(f"{key}={value}" for key, value in entry.items() if value not in ("", None, [], ()))
            session.out.line(f"{kind[:-1]} {told}")
    rest = sum(map(len, found["rest"].values()))
    session.out.line(f"revision {found['revision']}: {many(len(files), 'file')}, {rest} more; {found['digest'][:19]}")


@click.command()
@click.argument("select", nargs=-1, shell_complete=complete_select)
@ls.listing(DRIFT)
def drift(session: Session, select: tuple[str, ...], view: ls.Listing) -> None:
    """List files and settings of nodes that differ from what was delivered. Without SELECT, of all
    nodes. What agents have corrected is listed too.

    \b
    Example: strata config drift @compute
    """
    found = session.client.get("/v1/config/drift", {"select": " ".join(select) or "*"})
    ls.show(session, DRIFT, found["items"], view)
    if found["silent"] and not view.json:
        session.out.line(f"not asked, as their agents are silent: {found['silent']}", colour="yellow")


def _rendered(node: str, directory: Path, system: str, commit: str) -> Any:
    import asyncio

    import msgspec

    from strata.platform.config.explain import rendered
    from strata.platform.config.reading import read_repository
    from strata.platform.delivery.service import shown

    revision, delivered = asyncio.run(rendered(read_repository(directory, commit, system), node))
    return msgspec.to_builtins(shown(node, revision, delivered))
