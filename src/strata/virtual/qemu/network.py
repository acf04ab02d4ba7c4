"""The network of a virtual chassis: a namespace with a bridge, a tap for each node, and a cable to this machine.

Done with ``ip``, all of it in two batches. Removing it is the same whether it is whole, half made or gone.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Network
from pathlib import Path
from typing import TypeVar

from strata.core.errors import Conflict, Unavailable
from strata.virtual.qemu.description import Description, MachineDescription, link_device, namespace_name

_NAMESPACES = Path("/run/netns")
_NEW_NETWORK = 0x40000000
_TIMEOUT = 60.0
T = TypeVar("T")


def exists(chassis: str) -> bool:
    """Whether the namespace of that chassis is there."""
    return (_NAMESPACES / namespace_name(chassis)).exists()


def make(found: Description) -> None:
    """Make all of it. The namespace must not be there."""
    if found.link is not None and f" {found.link.host}/" in _ip("-o", "-4", "addr", "show"):
        hint = "give the chassis another folder, or no host link"
        raise Conflict(f"this machine has the address {found.link.host} already", where="host link", hint=hint)
    _ip("netns", "add", found.namespace)
    prefix = IPv4Network(found.network).prefixlen
    inside = [
        "link set lo up",
        f"link add {found.bridge} type bridge forward_delay 0",
        f"addr add {found.server}/{prefix} dev {found.bridge}",
        f"addr add {found.server6}/64 dev {found.bridge} nodad",
        f"link set {found.bridge} up",
    ]
    inside += _plugs(found.bridge, found.nodes)
    if found.link is not None:
        cable = f"link add {found.link.device} type veth peer name host0 netns {found.namespace}"
        outside = [cable, f"addr add {found.link.host}/30 dev {found.link.device}", f"link set {found.link.device} up"]
        _ip("-batch", "-", text="\n".join(outside))
        inside += [f"addr add {found.link.inside}/30 dev host0", "link set host0 up"]
    _ip("-n", found.namespace, "-batch", "-", text="\n".join(inside))
    # Nodes talk to the server and to each other. A namespace may begin with what this machine was told to do.
    _run([*prefix_of(found.namespace), "sh", "-c", "echo 0 > /proc/sys/net/ipv4/ip_forward"])


def plug(found: Description, nodes: Sequence[MachineDescription]) -> None:
    """Give more nodes a place on the bridge."""
    _ip("-n", found.namespace, "-batch", "-", text="\n".join(_plugs(found.bridge, nodes)))


def _plugs(bridge: str, nodes: Sequence[MachineDescription]) -> list[str]:
    made = [(f"tuntap add dev {node.tap} mode tap", f"link set {node.tap} master {bridge} up") for node in nodes]
    return [line for lines in made for line in lines]


def remove(chassis: str) -> None:
    """Take away whatever is there of it. Processes inside keep a namespace alive, but not what hangs in it."""
    name = namespace_name(chassis)
    if Path("/sys/class/net", link_device(chassis)).exists():
        _ip("link", "delete", link_device(chassis))
    if not exists(chassis):
        return
    try:
        devices = _ip("-n", name, "-o", "link", "show")
    except Unavailable:
        devices = ""  # a name that was made, and no namespace behind it
    ours = [line.split(":")[1].strip().partition("@")[0] for line in devices.splitlines() if line.count(":") > 1]
    batch = [f"link delete {device}" for device in ours if device.startswith(("tap", "br", "host"))]
    if batch:
        _ip("-n", name, "-force", "-batch", "-", text="\n".join(batch))
    _ip("netns", "delete", name)


def prefix_of(namespace: str) -> list[str]:
    """What stands before a command that shall run inside. It becomes that command: same process, same id."""
    return [tool("nsenter", "util-linux"), f"--net={_NAMESPACES / namespace}", "--"]


def inside(namespace: str, work: Callable[[], T]) -> T:
    """What ``work`` returns, done by a thread of its own inside the namespace. Nothing else of this process moves."""

    def move_and_work() -> T:
        place = os.open(_NAMESPACES / namespace, os.O_RDONLY | os.O_CLOEXEC)
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.setns(place, _NEW_NETWORK) != 0:
                raise Unavailable(f"cannot enter: {os.strerror(ctypes.get_errno())}", where=namespace)
        finally:
            os.close(place)
        return work()

    with ThreadPoolExecutor(1) as alone:
        return alone.submit(move_and_work).result()


def inhabitants(namespace: str) -> list[int]:
    if not (_NAMESPACES / namespace).exists():
        return []
    return [int(pid) for pid in _ip("netns", "pids", namespace).split()]


def tool(name: str, package: str) -> str:
    """Where the program is; says what to install if it is not."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/bin:/bin")
    if found is None:
        raise Unavailable("not installed", where=name, hint=f"apt-get install {package}")
    return found


def _ip(*arguments: str, text: str = "") -> str:
    return _run([tool("ip", "iproute2"), *arguments], text)


def _run(command: list[str], text: str = "") -> str:
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"no end after {_TIMEOUT:g} s", where=" ".join(command)[:200]) from None
    if done.returncode:
        raise Unavailable(done.stderr.strip()[:500] or f"exit code {done.returncode}", where=" ".join(command)[:200])
    return done.stdout
