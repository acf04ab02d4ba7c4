"""What a host needs to run the service, looked at one by one. Changes nothing; each finding says how to mend it.

``Host`` is what is asked of the machine, so that one that is not this one can be examined too.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import shutil
import socket
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from strata.core.errors import StrataError
from strata.daemon.settings import Settings
from strata.fleet.disk import size, space

Verdict = Literal["good", "warning", "bad"]

FILES = 65_536
"""Open files that a fleet of some thousand nodes needs: connections to BMCs and agents."""
_SOON = 14 * 86_400
_UNSYNCHRONISED = 0x0040  # STA_UNSYNC of adjtimex(2)


class Finding(NamedTuple):
    """One thing that was looked at."""

    check: str
    verdict: Verdict
    said: str
    mend: str = ""
    """What to do about it; empty: nothing."""


class Program(NamedTuple):
    """A program that the service starts."""

    name: str
    package: str
    use: str
    needed: Callable[[Settings], bool]


def _provisions(settings: Settings) -> bool:
    return bool({"provisioning", "platform"} & set(settings.layers))


def _boots(settings: Settings) -> bool:
    return _provisions(settings) and settings.provisioning.networks is not None


PROGRAMS = (
    Program("nginx", "nginx-light", "the TLS front door", lambda settings: settings.listen.tls),
    Program("mksquashfs", "squashfs-tools", "images of nodes", _provisions),
    Program("mmdebstrap", "mmdebstrap", "building images and the minimal OS", _provisions),
    Program("buildah", "buildah", "images from Containerfiles", _provisions),
    Program("slirp4netns", "slirp4netns", "the network of image builds", _provisions),
    Program("in.tftpd", "tftpd-hpa", "handing out iPXE", _boots),
    Program("radvd", "radvd", "router advertisements on boot networks", _boots),
    Program("git", "git", "the site's configuration", lambda settings: "platform" in settings.layers),
    Program("ssh", "openssh-client", "workload managers and git on other hosts", lambda s: "platform" in s.layers),
)


class Host:
    """This machine."""

    def which(self, program: str) -> str | None:
        """Where a program is."""
        return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")

    def resolves(self, name: str) -> bool:
        """Whether a name has an address."""
        try:
            socket.getaddrinfo(name, None)
        except OSError:
            return False
        return True

    def can_bind(self, address: str, port: int, *, udp: bool = False) -> str:
        """Why nobody can listen there; empty: one can."""
        kind = socket.SOCK_DGRAM if udp else socket.SOCK_STREAM
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, kind) as one:
            if not udp:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind((address, port))
            except OSError as error:
                return os.strerror(error.errno or errno.EINVAL)
        return ""

    def answers(self, address: str, port: int) -> bool:
        """Whether somebody accepts connections there."""
        with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=3.0):
            return True
        return False

    def files(self) -> int:
        """Open files that a process may have at most."""
        return resource.getrlimit(resource.RLIMIT_NOFILE)[1]

    def synchronised(self) -> bool | None:
        """Whether the kernel's clock follows a time server; None: it does not say."""
        state = ctypes.create_string_buffer(512)  # struct timex; its modes are 0: nothing is set
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.adjtimex(state) < 0:
            return None
        # modes (int, padded), offset, freq, maxerror, esterror (long), status (int)
        status = int.from_bytes(state.raw[40:44], "little")
        return not status & _UNSYNCHRONISED

    def now(self) -> float:
        """Unix time."""
        return time.time()


def examine(settings: Settings, state: Path, host: Host, *, running: bool) -> Iterator[Finding]:
    """Everything that is looked at. ``running``: a service of this state directory answers, and its ports are its."""
    yield from _programs(settings, host)
    yield from _state(state)
    yield _disk(state)
    yield _files(host)
    yield _clock(host)
    yield from _names(settings, host)
    yield from _certificates(state, host)
    yield from _ports(settings, host, running=running)
    yield from _store(settings, host)


def _programs(settings: Settings, host: Host) -> Iterator[Finding]:
    missing = False
    for program in PROGRAMS:
        if program.needed(settings) and host.which(program.name) is None:
            missing = True
            yield Finding(
                f"program {program.name}",
                "bad" if program.name == "nginx" else "warning",
                f"it is not here; it is needed for {program.use}",
                f"apt-get install {program.package}",
            )
    if not missing:
        yield Finding("programs", "good", "all that the chosen layers start are here")


def _state(state: Path) -> Iterator[Finding]:
    if not state.exists():
        where = next(parent for parent in state.parents if parent.exists())
        able = os.access(where, os.W_OK)
        yield Finding(
            "state directory",
            "good" if able else "bad",
            f"{state} is made at the first start" if able else f"{state} is not there, and {where} cannot be written",
            "" if able else f"run as an account that may write {where}, or give --state-dir",
        )
        return
    found = state.stat()
    if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        mode = f"{stat.S_IMODE(found.st_mode):o}"
        yield Finding(
            "state directory", "bad", f"{state} holds keys, and others may enter it ({mode})", f"chmod 700 {state}"
        )
    elif found.st_uid != os.getuid():
        yield Finding(
            "state directory", "warning", f"{state} belongs to another account (uid {found.st_uid})",
            "run the service and this command as that account",
        )  # fmt: skip
    else:
        yield Finding("state directory", "good", f"{state} is for this account alone")


def _disk(state: Path) -> Finding:
    there = next(folder for folder in (state, *state.parents) if folder.exists())
    found = space(there)
    if found.is_full:
        return Finding("disk", "bad", f"the disk of {there} is full: {found}", "free some, or move the state directory")
    if found.free < found.reserve * 4:
        return Finding("disk", "warning", f"{found}", "images take gigabytes: free some, or move the state directory")
    return Finding("disk", "good", f"{size(found.free)} of {size(found.total)} are free at {there}")


def _files(host: Host) -> Finding:
    most = host.files()
    if most < FILES:
        return Finding(
            "open files", "warning", f"a process may open {most}; fleets of thousands of nodes need {FILES}",
            "LimitNOFILE=1048576 in the systemd unit, or ulimit -Hn before the start",
        )  # fmt: skip
    return Finding("open files", "good", f"a process may open {most}")


def _clock(host: Host) -> Finding:
    synchronised = host.synchronised()
    if synchronised:
        return Finding("clock", "good", "it follows a time server")
    said = "the kernel does not say whether it is right" if synchronised is None else "it follows no time server"
    return Finding(
        "clock", "warning", f"{said}; certificates, leases and histories go by it",
        "apt-get install chrony, and chronyc tracking",
    )  # fmt: skip


def _names(settings: Settings, host: Host) -> Iterator[Finding]:
    own = socket.gethostname()
    asked = [own, *(name for name in settings.listen.names if not name.replace(".", "").isdigit() and ":" not in name)]
    unknown = [name for name in asked if not host.resolves(name)]
    if unknown:
        yield Finding(
            "names", "warning", f"no address is found for {', '.join(unknown)}",
            "add them to DNS, or to /etc/hosts on this host and on whoever asks it",
        )  # fmt: skip
    else:
        yield Finding("names", "good", f"{', '.join(asked)} can be resolved")


def _certificates(state: Path, host: Host) -> Iterator[Finding]:
    from cryptography import x509

    for path in sorted(state.glob("**/*.crt")) if os.access(state, os.R_OK | os.X_OK) else ():
        try:
            ends = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc.timestamp()
        except (OSError, ValueError) as error:
            yield Finding(
                f"certificate {path.name}", "bad", f"{path} cannot be read: {error}", "restore it from a backup"
            )
            continue
        left = ends - host.now()
        if left < _SOON:
            said = "has ended" if left < 0 else f"ends in {left / 86_400:.0f} days"
            mend = (
                "it is made anew when the service starts"
                if path.name != "ca.crt"
                else "stop the service, remove ca.key and ca.crt beside it: all certificates are then made anew"
            )
            yield Finding(f"certificate {path.name}", "bad" if left < 0 else "warning", f"{path} {said}", mend)
        else:
            yield Finding(f"certificate {path.name}", "good", f"good for {left / 86_400:.0f} days")


def _ports(settings: Settings, host: Host, *, running: bool) -> Iterator[Finding]:
    if running:
        yield Finding("ports", "good", "the service that runs here has its own")
        return
    wanted = (
        [(settings.listen.host, settings.listen.port, False)] if settings.listen.tls and settings.listen.port else []
    )
    if _boots(settings):
        wanted += [("0.0.0.0", 67, True), ("0.0.0.0", 69, True)]
    for address, port, udp in wanted:
        kind = "UDP" if udp else "TCP"
        why = host.can_bind(address, port, udp=udp)
        if why:
            yield Finding(
                f"port {port}", "bad", f"{kind} {address}:{port} cannot be used: {why}",
                f"stop the program that has it (ss -lp{'u' if udp else 't'}n sport = :{port}), or choose another",
            )  # fmt: skip
        else:
            yield Finding(f"port {port}", "good", f"{kind} {address}:{port} is free")


def _store(settings: Settings, host: Host) -> Iterator[Finding]:
    if not settings.store.url.startswith("etcd"):
        return
    for member in urlsplit(settings.store.url).netloc.split(","):
        name, _, port = member.rpartition(":")
        if host.answers(name.strip("[]"), int(port) if port.isdigit() else 2379):
            yield Finding(f"etcd {member}", "good", "it accepts connections")
        else:
            yield Finding(
                f"etcd {member}", "bad", "nothing accepts connections there",
                "see that etcd runs, and that no firewall is between: etcdctl --endpoints endpoint health",
            )  # fmt: skip


def configuration(read: Callable[[], Settings], called: str) -> tuple[Settings | None, Finding]:
    """The settings, and whether they are good."""
    try:
        settings = read()
    except StrataError as error:
        return None, Finding("configuration", "bad", str(error), f"mend {called}; strata serve --check tries it")
    return settings, Finding("configuration", "good", called)
