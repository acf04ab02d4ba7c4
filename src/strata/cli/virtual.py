"""``strata virtual``: real (emulated) machines on this machine, each with a network boot and a Redfish controller."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from strata.cli import listing as ls
from strata.cli.output import many
from strata.cli.session import Session, pass_session
from strata.core.errors import Conflict, NotFound

if TYPE_CHECKING:
    from strata.cli.client import Json

FIELDS = (
    ls.plain("name"),
    ls.plain("power"),
    ls.number("pid"),
    ls.plain("firmware"),
    ls.number("memory", shown=False),
    ls.plain("mac"),
    ls.plain("address"),
    ls.plain("bmc"),
    ls.plain("uuid", shown=False),
    ls.plain("serial", shown=False),
    ls.plain("console", shown=False),
)

DIRECTORY = click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the chassis. Default: 'virtual' in the state directory.",
)


@click.group()
def virtual() -> None:
    """Make a chassis of QEMU nodes on this machine (needs root)."""


@virtual.command()
@click.option("--nodes", type=click.IntRange(1, 200), default=4, show_default=True, help="How many.")
@click.option("--uefi", type=click.IntRange(0, 200), default=0, show_default=True, help="So many of them with UEFI.")
@click.option("--memory", type=click.IntRange(128), default=768, show_default=True, help="MiB of each node.")
@click.option("--network", default="10.77.0.0/24", show_default=True, help="Of the nodes; the server has its first.")
@click.option("--host-link/--no-host-link", default=True, show_default=True, help="An address for this machine, too.")
@DIRECTORY
@ls.json_option
@pass_session
def create(
    session: Session,
    nodes: int,
    uefi: int,
    memory: int,
    network: str,
    host_link: bool,
    directory: Path | None,
    as_json: bool,
) -> None:
    """Create a chassis: nodes on a bridge in a network namespace, all off, each with a Redfish controller.

    Nodes run until they are switched off or the chassis is destroyed, whatever becomes of Strata.

    \b
    Example: strata virtual create --nodes 4 --uefi 2
    """
    import msgspec

    from strata.virtual.qemu.create import create as make
    from strata.virtual.qemu.description import PASSWORD, Options

    place = _place(session, directory)
    found = make(Options(directory=place, nodes=nodes, uefi=uefi, memory=memory, network=network, host_link=host_link))
    if as_json:
        session.out.json(msgspec.to_builtins(found) | {"directory": str(place)})
        return
    session.out.line(f"{many(nodes, 'node')} in {place}, all off; namespace {found.namespace}, server {found.server}")
    session.out.line(f"  controllers  {found.nodes[0].bmc} ... (inside the namespace; user {found.user}, password in")
    session.out.line(f"               {place / PASSWORD})")
    if found.link is not None:
        session.out.line(f"  this machine reaches the namespace at {found.link.inside}")
    session.out.line(f"  run inside   ip netns exec {found.namespace} COMMAND")


@virtual.command("list")
@DIRECTORY
@ls.listing(FIELDS, sort="name")
@pass_session
def list_(session: Session, directory: Path | None, view: ls.Listing) -> None:
    """List the nodes of a chassis and which of them run.

    \b
    Example: strata virtual list --match power=on
    """
    ls.show(session, FIELDS, _nodes(_place(session, directory)), view)


@virtual.command()
@DIRECTORY
@pass_session
def start(session: Session, directory: Path | None) -> None:
    """Start a chassis's controllers again, should they have died. Its nodes have run on meanwhile.

    \b
    Example: strata virtual start
    """
    from strata.virtual.qemu.create import start as serve

    place = _place(session, directory)
    serve(place)
    session.out.line(f"the controllers of {place} answer")


@virtual.command()
@click.argument("node")
@DIRECTORY
@pass_session
def kill(session: Session, node: str, directory: Path | None) -> None:
    """Kill a node's QEMU process, as if its power had failed: to see what Strata does about it.

    \b
    Example: strata virtual kill n0001
    """
    from strata.core import process as ps
    from strata.virtual.qemu import description
    from strata.virtual.qemu.create import running

    place = _place(session, directory)
    names = [found.name for found in description.read(place).nodes]
    if node not in names:
        raise NotFound(f"the chassis has {', '.join(names[:8])}{' ...' if names[8:] else ''}", where=node)
    process = running(place).get(node)
    if process is None:
        raise Conflict("it is off", where=node)
    ps.stop(process, grace=0)
    session.out.line(f"killed {node} (pid {process.pid})")


@virtual.command()
@click.argument("node")
@click.argument("argv", nargs=-1, metavar="[-- COMMAND [ARGUMENT]...]")
@DIRECTORY
@pass_session
def login(session: Session, node: str, argv: tuple[str, ...], directory: Path | None) -> None:
    """Log in to a node by ssh, as root. Its image must have a server for it, as the one of 'strata up' has.

    \b
    Example: strata virtual login n0001
             strata virtual login n0001 -- cat /etc/os-release
    """
    import os

    from strata.virtual.qemu import description, network
    from strata.virtual.qemu import login as ssh

    place = _place(session, directory)
    found = description.read(place)
    address = next((one.address for one in found.nodes if one.name == node), None)
    if address is None:
        raise NotFound("no such node in the chassis", where=node, hint="strata virtual list shows all")
    network.tool("ssh", "openssh-client")
    command = [*network.prefix_of(found.namespace), *ssh.command(place, address), *argv]
    os.execvp(command[0], command)


@virtual.command()
@DIRECTORY
@ls.json_option
@pass_session
def destroy(session: Session, directory: Path | None, as_json: bool) -> None:
    """Destroy a chassis: every node, process, device and file of it. Doing it twice is fine.

    \b
    Example: strata virtual destroy
    """
    from strata.virtual.qemu.create import destroy as take_away

    place = _place(session, directory)
    there = place.exists()
    done = take_away(place)
    if done.left:
        pids = ", ".join(map(str, done.left))
        session.out.note(f"processes of others still run inside the namespace, which ends with them: {pids}")
    if as_json:
        session.out.json({"destroyed": str(place), "stopped": done.stopped, "left": done.left})
    else:
        told = f"destroyed the chassis in {place}; processes ended: {len(done.stopped)}"
        session.out.line(told if there else f"nothing to destroy: there is no {place}")


def _place(session: Session, directory: Path | None) -> Path:
    return (directory or session.state_dir / "virtual").absolute()


def _nodes(place: Path) -> list[Json]:
    import msgspec

    from strata.virtual.qemu import description
    from strata.virtual.qemu.command import CONSOLE_LOG
    from strata.virtual.qemu.create import running

    on = running(place)
    found: list[Json] = [msgspec.to_builtins(node) for node in description.read(place).nodes]
    for node in found:
        process = on.get(node["name"])
        node["power"] = "off" if process is None else "on"
        node["pid"] = None if process is None else process.pid
        node["console"] = str(place / description.NODES / node["name"] / CONSOLE_LOG)
    return found
