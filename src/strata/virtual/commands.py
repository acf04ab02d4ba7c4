"""``strata virtual``: real (emulated) machines on this machine, each with a network boot and a Redfish BMC."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from strata.cli import listing as ls
from strata.cli.output import fold, many
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

_PATIENCE = 60.0
"""Seconds that a simulated BMC has to answer."""
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
@click.option(
    "--uefi", type=click.IntRange(0, 200), default=0, show_default=True, help="How many of them have UEFI firmware."
)
@click.option(
    "--memory", type=click.IntRange(128, 1 << 20), default=768, show_default=True, help="Memory of each node, in MiB."
)
@click.option(
    "--network",
    default="10.77.0.0/24",
    show_default=True,
    help="Network of the nodes; the boot server gets its first address.",
)
@click.option(
    "--host-link/--no-host-link", default=True, show_default=True, help="Also give this machine an address in it."
)
@DIRECTORY
@ls.json_option
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
    """Create a chassis of nodes, all off, each with a Redfish BMC. They are on a bridge in a network namespace.

    Nodes run until they are switched off or the chassis is destroyed, whatever becomes of Strata.

    \b
    Example: strata virtual create --nodes 4 --uefi 2
    """
    import msgspec

    from strata.virtual.qemu.create import create as make
    from strata.virtual.qemu.description import PASSWORD, Options

    place = _place(session, directory)
    _refuse_cluster(place, "strata virtual add adds a machine to it")
    found = make(Options(directory=place, nodes=nodes, uefi=uefi, memory=memory, network=network, host_link=host_link))
    if as_json:
        session.out.json(msgspec.to_builtins(found) | {"directory": str(place)})
        return
    session.out.line(f"{many(nodes, 'node')} in {place}, all off; namespace {found.namespace}, server {found.server}")
    session.out.line(f"  BMCs         {found.nodes[0].bmc} ... (inside the namespace; user {found.user}, password in")
    session.out.line(f"               {place / PASSWORD})")
    if found.link is not None:
        session.out.line(f"  this machine reaches the namespace at {found.link.inside}")
    session.out.line(f"  run inside   ip netns exec {found.namespace} COMMAND")


@virtual.command()
@click.option("--count", type=click.IntRange(1, 200), default=1, show_default=True, help="How many.")
@click.option(
    "--uefi", type=click.IntRange(0, 200), default=0, show_default=True, help="How many of them have UEFI firmware."
)
@DIRECTORY
@ls.json_option
def add(session: Session, count: int, uefi: int, directory: Path | None, as_json: bool) -> None:
    """Add machines to a chassis, off at first. In a cluster of 'strata up' they are nodes at once, and boot.

    \b
    Example: strata virtual add
             strata virtual add --count 2 --uefi 1
    """
    from strata.virtual.qemu import create

    place = _chassis(session, directory)
    cluster = _cluster(place)
    if cluster is not None:
        from strata.cli.up import background as bg
        from strata.cli.up import virtual as up_virtual

        names = up_virtual.add(bg.client_of(session, cluster), cluster, count, uefi)
        told = f"added {fold(names)} to the cluster; strata node list shows how far they are"
    else:
        names = [node.name for node in create.add(place, count, uefi)]
        told = f"added {fold(names)}, off"
    session.out.answer(as_json, {"added": names, "directory": str(place)}, told)


@virtual.command("list")
@DIRECTORY
@ls.listing(FIELDS, sort="name")
def list_(session: Session, directory: Path | None, view: ls.Listing) -> None:
    """List the nodes of a chassis and which of them run.

    \b
    Example: strata virtual list --match power=on
    """
    ls.show(session, FIELDS, _nodes(_chassis(session, directory)), view)


@virtual.command()
@click.argument("nodes", nargs=-1, metavar="[NODES]...")
@DIRECTORY
@pass_session
def start(session: Session, nodes: tuple[str, ...], directory: Path | None) -> None:
    """Switch on those of NODES that are off. BMCs that have died are started first; without NODES, only they are.

    \b
    Example: strata virtual start n0001
             strata virtual start n[0001-0004]
             strata virtual start
    """
    from strata.virtual.qemu.create import running, switch_on
    from strata.virtual.qemu.create import start as serve

    place = _chassis(session, directory)
    chosen = _chosen(place, nodes)
    serve(place)
    if not chosen:
        session.out.line(f"the BMCs of {place} answer")
        return
    before = running(place)
    switch_on(place, chosen)
    for node in chosen:
        session.out.line(f"{node} was on already" if node in before else f"switched {node} on")


@virtual.command()
@click.argument("nodes", nargs=-1, required=True, metavar="NODES...")
@DIRECTORY
@pass_session
def kill(session: Session, nodes: tuple[str, ...], directory: Path | None) -> None:
    """Cut the power of nodes, to see what Strata does about it.

    Their QEMU processes are killed; nodes of 'strata up --simulated' are switched off by their BMCs, past Strata.

    \b
    Example: strata virtual kill n0001
    """
    from strata.core.host import process as ps
    from strata.virtual.qemu.create import running

    if _is_simulated(session, directory):
        _cut_power(session, nodes)
        return
    place = _place(session, directory)
    chosen, on = _chosen(place, nodes), running(place)
    off = [node for node in chosen if node not in on]
    if off:
        raise Conflict("it is off" if len(off) == 1 else "they are off", where=fold(off))
    for node in chosen:
        ps.stop(on[node], grace=0)
        session.out.line(f"killed {node} (pid {on[node].pid})")


@virtual.command()
@click.argument("node")
@click.argument("argv", nargs=-1, metavar="[-- COMMAND [ARGUMENT]...]")
@DIRECTORY
@pass_session
def login(session: Session, node: str, argv: tuple[str, ...], directory: Path | None) -> None:
    """Log in to a node by ssh, as root. Its image must run an ssh server, as the image of 'strata up' does.

    \b
    Example: strata virtual login n0001
             strata virtual login n0001 -- cat /etc/os-release
    """
    import os

    from strata.virtual.qemu import description, network
    from strata.virtual.qemu import login as ssh

    place = _chassis(session, directory)
    chosen = _chosen(place, (node,))
    if len(chosen) != 1:
        raise click.UsageError(f"name one node to log in to, not {fold(chosen) or node}")
    found = description.read(place)
    address = next(one.address for one in found.nodes if one.name == chosen[0])
    network.tool("ssh", "openssh-client")
    command = [*network.prefix_of(found.namespace), *ssh.command(place, address), *argv]
    os.execvp(command[0], command)


@virtual.command()
@click.argument("argv", nargs=-1, required=True, metavar="-- COMMAND [ARGUMENT]...")
@DIRECTORY
@pass_session
def run(session: Session, argv: tuple[str, ...], directory: Path | None) -> None:
    """Run a command of this machine in the nodes' network. Slurm's commands find the cluster of 'strata up' there.

    \b
    Example: strata virtual run -- srun -N4 hostname
             strata virtual run -- ping -c1 10.77.0.11
    """
    import os

    from strata.cli.up import slurm
    from strata.virtual.qemu import description, network

    place = _chassis(session, directory)
    command = [*network.prefix_of(description.read(place).namespace), *argv]
    os.execvpe(command[0], command, slurm.environment(place.parent, inside=True))


@virtual.command()
@DIRECTORY
@ls.json_option
def destroy(session: Session, directory: Path | None, as_json: bool) -> None:
    """Destroy a chassis: every node, process, device and file of it. Doing it twice is fine.

    \b
    Example: strata virtual destroy
    """
    from strata.virtual.qemu.create import destroy as take_away

    place = _place(session, directory)
    _refuse_cluster(place, "strata stop stops it, strata down --delete removes all of it")
    there = place.exists()
    done = take_away(place)
    if done.left:
        pids = ", ".join(map(str, done.left))
        session.out.note(f"processes of others still run inside the namespace, which ends with them: {pids}")
    told = f"destroyed the chassis in {place}; processes ended: {len(done.stopped)}"
    told = told if there else f"nothing to destroy: there is no {place}"
    session.out.answer(as_json, {"destroyed": str(place), "stopped": done.stopped, "left": done.left}, told)


def _cluster(place: Path) -> Path | None:
    """The state directory of the cluster of 'strata up' that runs with the machines of this chassis."""
    from strata.cli.up import background as bg
    from strata.core.host import process as ps

    service = ps.load(place.parent / bg.SERVICE) if place.name == bg.CHASSIS else None
    return place.parent if service is not None and service.alive else None


def _refuse_cluster(place: Path, hint: str) -> None:
    if _cluster(place) is not None:
        raise Conflict("a cluster of 'strata up' runs with the machines there", where=str(place), hint=hint)


def _place(session: Session, directory: Path | None) -> Path:
    return (directory or session.state_dir / "virtual").absolute()


def _chassis(session: Session, directory: Path | None) -> Path:
    """The folder of a chassis that is there."""
    if _is_simulated(session, directory):
        told = "the fleet here is simulated, and has no virtual machines"
        hint = "strata node list shows its nodes; of these commands, they have strata virtual kill"
        raise NotFound(told, where=str(session.state_dir), hint=hint)
    return _place(session, directory)


def _is_simulated(session: Session, directory: Path | None) -> bool:
    """Whether no chassis is meant, but the simulated fleet of this state directory."""
    from strata.cli.up.simulated import kept

    return directory is None and not _place(session, None).exists() and kept(session.state_dir) is not None


def _cut_power(session: Session, words: tuple[str, ...]) -> None:
    """Take the power from simulated nodes: by their BMCs, past Strata."""
    import json
    from urllib.request import Request, urlopen

    from strata.core.nodeset import expand
    from strata.virtual.bmc.server import SIMULATED_ACCOUNT

    params = {"select": ",".join(words), "fields": "name,bmc"}
    found = {node["name"]: node["bmc"] for node in session.client.pages("/v1/nodes", params)}
    headers = {"Authorization": SIMULATED_ACCOUNT.basic, "Content-Type": "application/json"}
    for name in expand(fold(found)):
        if not (found[name] or "").startswith("http://127.0.0.1:"):
            raise NotFound("the simulator does not have it", where=name)
        system = f"{found[name]}/redfish/v1/Systems/1"
        with urlopen(Request(system, headers=headers), timeout=_PATIENCE) as reply:
            if json.load(reply)["PowerState"] == "Off":
                raise Conflict("it is off", where=name)
        order = json.dumps({"ResetType": "ForceOff"}).encode()
        urlopen(Request(f"{system}/Actions/ComputerSystem.Reset", order, headers), timeout=_PATIENCE).close()
        session.out.line(f"took the power from {name}")


def _chosen(place: Path, words: tuple[str, ...]) -> list[str]:
    """The nodes that the words (nodesets) name, all of which the chassis has."""
    from strata.core.nodeset import expand, padded
    from strata.virtual.qemu import description

    found = description.read(place)
    there = [node.name for node in found.nodes]
    named = expand(",".join(words), nodes=there) if words else []
    padded_as = (next((other for other in (name, *padded(name)) if other in there), name) for name in named)
    chosen = list(dict.fromkeys(padded_as))
    unknown = set(chosen) - set(there)
    if unknown:
        raise NotFound(f"the chassis has {fold(there)}", where=fold(unknown), hint="strata virtual list shows all")
    return chosen


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
