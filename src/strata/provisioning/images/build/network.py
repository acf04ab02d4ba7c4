"""Gives a build a network that leads out, and not back into the machine that builds.

A program of its own (``python -m``): it becomes the command that it is given, in a network namespace of its own. What
the command sends goes through slirp4netns, as if an ordinary program of the machine had sent it. The machine itself is
not there: its loopback is another one, its abstract sockets are not seen, and all its other addresses are this
namespace's own, where nobody listens. Only services that the machine's package sources name are passed on. Processes of
builds have no rights over the namespace, so that none of them can change that.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, NoReturn

from strata.provisioning.images.build import syscalls as kernel

RESOLVER = b"nameserver 198.18.255.3\n"
"""What stands in ``/etc/resolv.conf`` there. slirp4netns passes it on to the machine's own, on loopback too."""
_CIDR = "198.18.255.0/24"  # of a range that no site uses for anything else (RFC 2544)
_MTU = 65520
_PORTS = {"http": 80, "https": 443}
_SERVICE = re.compile(r"\b(https?)://(?:[^/@\s]*@)?(\[[0-9a-fA-F:.]+\]|[^/:\s\[\]]+)(?::([0-9]{1,5}))?", re.I)


class Service(NamedTuple):
    """Where something listens."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Service:
        """Of ``host:port``."""
        host, _, port = text.rpartition(":")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def services_in(text: str) -> list[Service]:
    """The services that lists of package sources name."""
    found = (
        Service(host.strip("[]"), int(port or _PORTS[scheme.lower()])) for scheme, host, port in _SERVICE.findall(text)
    )
    return list(dict.fromkeys(found))


def way_out(prefix: Sequence[str], services: Iterable[Service]) -> list[str]:
    """What stands before a command to give it the network. ``prefix``: what stands before one that is to have the
    machine's."""
    return [*prefix, sys.executable, "-P", "-m", __name__, *map(str, services), "--"]


def main() -> NoReturn:
    """Take ``host:port … -- command …``, and become the command."""
    where = sys.argv.index("--")
    services, command = [Service.parse(text) for text in sys.argv[1:where]], sys.argv[where + 1 :]
    try:
        _enter(services)
    except OSError as error:
        sys.exit(f"the build gets no network: {error.strerror or error}")
    os.execvp(command[0], command)


def _enter(services: Sequence[Service]) -> None:
    """Make the namespace and enter it. A child stays outside, and lives as long as this process."""
    own = _addresses()
    passed_on = {place for service in services for place in _places(service, own)}
    outside = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    kernel.unshare(kernel.NEW_NETWORK)
    batch = "".join(f"addr add {address} dev lo\n" for address in sorted(own) if not _is_loopback(address))
    subprocess.run(["ip", "-batch", "-"], input=f"link set lo up\n{batch}".encode(), check=True, stdout=sys.stderr)
    listeners = {place: _listener(place) for place in sorted(passed_on)}
    inside = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    ready, tell = os.pipe()
    parent = os.getpid()
    if os.fork() == 0:
        try:
            kernel.end_with_parent()
            kernel.join_network(outside)
            os.close(ready)
            if os.getppid() == parent:
                _stay_outside(inside, tell, listeners)
        finally:
            os._exit(1)
    os.close(tell)
    for listener in listeners.values():
        listener.close()
    said = os.read(ready, 4096)
    os.close(ready)
    if said != b"1":
        raise OSError(said.decode(errors="replace") or "slirp4netns did not start")


def _addresses() -> set[str]:
    """All addresses of this machine, loopback among them."""
    answer = subprocess.run(["ip", "-j", "address"], check=True, stdout=subprocess.PIPE).stdout
    return {one["local"] for link in json.loads(answer) for one in link.get("addr_info", ()) if "local" in one}


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def _places(service: Service, own: set[str]) -> list[Service]:
    """Where it listens, as far as that is on this machine."""
    with contextlib.suppress(OSError):
        found = {str(one[4][0]) for one in socket.getaddrinfo(service.host, service.port, type=socket.SOCK_STREAM)}
        return [Service(address, service.port) for address in found if address in own or _is_loopback(address)]
    return []  # nobody knows the name: whoever uses it will be told


def _listener(place: Service) -> socket.socket:
    return socket.create_server(place, family=socket.AF_INET6 if ":" in place.host else socket.AF_INET)


def _stay_outside(inside: int, tell: int, listeners: Mapping[Service, socket.socket]) -> None:
    """Connect the namespace, say so, and pass on what comes to the listeners."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    # slirp4netns leaves its old root by unmounting it; mounts that are shared, as those of ip netns, go for everybody.
    kernel.unshare(kernel.NEW_MOUNTS)
    kernel.keep_mounts_private()
    nothing = os.open("/dev/null", os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)  # it is the command's, for its answer
    until, _held = os.pipe()  # slirp4netns ends when this process does
    words = os.memfd_create("words")
    command = ["slirp4netns", "--configure", f"--mtu={_MTU}", f"--cidr={_CIDR}", "--disable-host-loopback"]
    command += ["--enable-sandbox", "--enable-seccomp", f"--ready-fd={tell}", f"--exit-fd={until}"]
    command += ["--netns-type=path", f"/proc/{os.getpid()}/fd/{inside}", "tap0"]
    try:
        slirp = subprocess.Popen(command, stdout=nothing, stderr=words, pass_fds=(tell, until))
    except FileNotFoundError:
        os.write(tell, b"slirp4netns is not installed; apt-get install slirp4netns")
        return
    os.set_inheritable(tell, False)
    os.close(until)
    asyncio.run(_pass_on(listeners, slirp, tell, words))


async def _pass_on(
    listeners: Mapping[Service, socket.socket], slirp: subprocess.Popen[bytes], tell: int, words: int
) -> None:
    servers = [await asyncio.start_server(_relay(place), sock=one) for place, one in listeners.items()]
    status = await asyncio.to_thread(slirp.wait)
    for server in servers:
        server.close()
    said = os.pread(words, 4096, 0).decode(errors="replace").strip().rpartition("\n")[2]
    with contextlib.suppress(BrokenPipeError):  # the command runs already; it finds that nothing answers any more
        os.write(tell, f"slirp4netns ended with status {status}: {said}".encode())


def _relay(place: Service) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            theirs, ours = await asyncio.open_connection(*place)
            await asyncio.gather(_copy(reader, ours), _copy(theirs, writer))
        writer.close()

    return relay


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """All that comes, then that nothing more does."""
    try:
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
    finally:
        with contextlib.suppress(OSError, RuntimeError):
            writer.write_eof()


if __name__ == "__main__":
    main()
