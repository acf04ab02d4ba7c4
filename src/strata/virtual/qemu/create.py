"""Makes a virtual chassis and takes it away again: network, folder and process, without a trace afterwards.

found = create(Options(directory=Path("chassis"), nodes=4, uefi=2))
enter(found.namespace, ["strata", "serve", ...], os.environ, log)
destroy(Path("chassis"))
"""

from __future__ import annotations

import http.client
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from strata.core.errors import Conflict, Denied, DeviceError, Unavailable
from strata.core.host import process as ps
from strata.virtual.qemu import command as qemu
from strata.virtual.qemu import description, login, network
from strata.virtual.qemu.chassis import READY
from strata.virtual.qemu.description import (
    Description,
    MachineDescription,
    Options,
    chassis_id,
    guest_mark,
    namespace_name,
)
from strata.virtual.redfish.bmc import Account
from strata.virtual.redfish.server import RESET

MODULE = "strata.virtual.qemu.chassis"
_START_PATIENCE = 60.0
_STOP_GRACE = 10.0


def create(options: Options) -> Description:
    """Make the chassis, all its machines off. Whatever was begun is taken away again if it cannot be made."""
    found = description.describe(options)
    check_host(uefi=bool(options.uefi))
    directory = options.directory.resolve()
    if network.exists(found.id) or (directory / description.FILE).exists():
        raise Conflict(
            "there is a virtual chassis already",
            where=str(directory),
            hint="strata virtual add adds machines to it; another one needs another folder",
        )
    if directory.is_dir() and any(directory.iterdir()):
        raise Conflict("the folder is not empty", where=str(directory), hint="name one that is not there")
    try:
        _make_folder(directory, found)
        network.make(found)
        description.write(directory, found)  # last: where this is, all of it is
        start(directory)
    except BaseException:
        destroy(directory)
        raise
    return found


def start(directory: Path) -> None:
    """Start the process that serves the BMCs, unless it runs. A network that a restart of this machine took away
    is made anew first."""
    check_root()
    directory = directory.resolve()
    running = ps.load(directory / description.PROCESS)
    if running is not None and running.alive:
        return
    log = directory / description.LOG
    log.unlink(missing_ok=True)
    found = description.read(directory)
    if not network.exists(found.id):
        try:
            network.make(found)
        except BaseException:
            network.remove(found.id)
            raise
    running = enter(found.namespace, ps.command(MODULE, "--dir", str(directory)), os.environ, log)
    running.save(directory / description.PROCESS)
    deadline = time.monotonic() + _START_PATIENCE
    while READY not in (said := log.read_text(errors="replace")).splitlines():
        if ps.reap(running) is not None or not running.alive:
            raise Unavailable(f"the chassis ended at its start: {said.strip()[-500:]}", where=str(log))
        if time.monotonic() > deadline:
            raise Unavailable(f"the chassis does not answer after {_START_PATIENCE:g} s", where=str(log))
        time.sleep(0.02)


def add(directory: Path, nodes: int, uefi: int) -> tuple[MachineDescription, ...]:
    """Put more machines into the chassis, all off. Those that are there are not disturbed; their BMCs are away for a
    moment."""
    directory = directory.resolve()
    before = description.read(directory)
    check_host(uefi=bool(uefi))
    found = description.extended(before, nodes, uefi)
    more = found.nodes[len(before.nodes) :]
    if network.exists(found.id):
        network.plug(found, more)
    _make_homes(directory, more)
    description.write(directory, found)
    for process in _servers(directory):
        ps.stop(process, grace=_STOP_GRACE)
    start(directory)
    return more


class Stopped(NamedTuple):
    """What became of a chassis."""

    stopped: tuple[int, ...]
    """Pids of its machines and of its own process."""
    left: tuple[int, ...]
    """Pids of others' processes inside its namespace, which ends with the last of them."""


def stop(directory: Path) -> Stopped:
    """Stop the chassis of this folder: its machines, its own process, its network. ``start`` goes on with the rest."""
    check_root()
    directory = directory.resolve()
    chassis = chassis_id(directory)
    servers = _servers(directory)
    for process in servers:
        ps.stop(process, grace=_STOP_GRACE)
    machines = ps.with_argument(guest_mark(chassis))  # looked for when nobody starts one any more
    for process in machines:
        ps.stop(process, grace=0)
    left = network.inhabitants(namespace_name(chassis))
    network.remove(chassis)
    return Stopped(tuple(process.pid for process in (*servers, *machines)), tuple(left))


def destroy(directory: Path) -> Stopped:
    """Take away the chassis of this folder, whatever is left of it: processes, network, folder."""
    stopped = stop(directory)
    directory = directory.resolve()
    if directory.is_dir() and not directory.is_symlink():
        _remove_folder(directory)
    return stopped


def namespace(directory: Path) -> str:
    """The network namespace of the chassis in this folder."""
    return description.read(directory).namespace


def enter(namespace: str, arguments: list[str], environment: Mapping[str, str], log: Path) -> ps.Process:
    """Start a program inside the namespace, in a session of its own, writing to ``log``."""
    return ps.spawn([*network.prefix_of(namespace), *arguments], environment, log)


def running(directory: Path) -> dict[str, ps.Process]:
    """Node → its process, of those that are on."""
    chassis = chassis_id(directory)
    mark = guest_mark(chassis)
    found = {}
    for process in ps.with_argument(mark):
        name = "\n".join(_arguments(process)).partition(mark)[2].partition(",")[0]
        found[name] = process
    return found


def check_root() -> None:
    """Raise unless we may make namespaces."""
    if os.geteuid() != 0:
        hint = "sudo strata virtual ...; strata up --simulated needs no root"
        raise Denied("a virtual chassis needs root: it makes a network namespace and tap devices", hint=hint)


def check_host(*, uefi: bool) -> None:
    """Raise unless this machine has all that a chassis needs; says what to install."""
    check_root()
    network.tool(qemu.PROGRAM, qemu.PACKAGE)
    network.tool("ip", "iproute2")
    network.tool("nsenter", "util-linux")
    if not Path("/dev/net/tun").exists():
        raise Unavailable("not there: the kernel has no tap devices", where="/dev/net/tun", hint="modprobe tun")
    for path in (qemu.CODE, qemu.VARIABLES) if uefi else ():
        if not path.exists():
            raise Unavailable("not there", where=str(path), hint=f"apt-get install {qemu.FIRMWARE_PACKAGE}")


def _make_folder(directory: Path, found: Description) -> None:
    for path in reversed([path for path in (directory, *directory.parents) if not path.exists()]):
        path.mkdir(mode=0o700)
    directory.chmod(0o700)
    secret = directory / description.PASSWORD
    secret.touch(mode=0o600)
    secret.write_text(secrets.token_urlsafe(24) + "\n", encoding="ascii")
    _make_homes(directory, found.nodes)


def _make_homes(directory: Path, nodes: Iterable[MachineDescription]) -> None:
    for node in nodes:
        (directory / description.NODES / node.name).mkdir(parents=True, exist_ok=True)


def _servers(directory: Path) -> list[ps.Process]:
    """The process that serves the BMCs, if it runs; found by what it was told."""
    return [process for process in ps.with_argument(MODULE) if str(directory) in _arguments(process)]


def _arguments(process: ps.Process) -> list[str]:
    try:
        return Path("/proc", str(process.pid), "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def _remove_folder(directory: Path) -> None:
    """Only what a chassis has put there; somebody else's files stay, and so does the folder then."""
    files = (description.FILE, description.PASSWORD, description.PROCESS, description.LOG, login.KEY)
    ours = [directory / name for file in files for name in (file, f"{file}.new", f"{Path(file).stem}.new")]
    if any(directory.iterdir()) and not any(path.exists() for path in ours):
        raise Conflict("not the folder of a virtual chassis: left as it is", where=str(directory))
    shutil.rmtree(directory / description.NODES, ignore_errors=True)
    for path in ours:
        path.unlink(missing_ok=True)
    try:
        directory.rmdir()
    except OSError:
        raise Conflict("not removed: there are files that are not the chassis's", where=str(directory)) from None


_ANSWER_PATIENCE = 60.0


def switch_on(directory: Path, nodes: Iterable[str]) -> None:
    """Have the machines of these names switched on, those that are off."""
    found = description.read(directory)
    password = (directory / description.PASSWORD).read_text(encoding="ascii").strip()
    account, wanted = Account(found.user, password), set(nodes)
    machines = [machine for machine in found.nodes if machine.name in wanted]

    def work() -> None:
        for machine in machines:
            _switch(machine, account, "On")

    network.inside(found.namespace, work)


def _switch(machine: MachineDescription, account: Account, kind: str) -> None:
    address = urlsplit(machine.bmc)
    line = http.client.HTTPConnection(address.hostname or "", address.port, timeout=_ANSWER_PATIENCE)
    headers = {"Authorization": account.basic, "Content-Type": "application/json"}
    try:
        line.request("POST", address.path + RESET, msgspec.json.encode({"ResetType": kind}), headers)
        reply = line.getresponse()
        told = reply.read(1 << 16)
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(
            f"its BMC does not answer: {error}", where=machine.name, hint="strata virtual start"
        ) from None
    finally:
        line.close()
    if reply.status >= 300:
        raise DeviceError(_why(told) or f"its BMC answered {reply.status}", node=machine.name)


def _why(body: bytes) -> str:
    try:
        told: Any = msgspec.json.decode(body)
        return str(told["error"]["message"])[:500]
    except (msgspec.DecodeError, KeyError, TypeError):
        return ""
