"""Runs nginx as the front door: writes its configuration, starts it, keeps it up, and takes it down with us.

nginx is a supervised child in the foreground. Works with and without root.
"""

from __future__ import annotations

import asyncio
import grp
import os
import pwd
import signal
import socket
from contextlib import suppress
from pathlib import Path

import msgspec

from strata.api.nginx_config import FrontDoor, config_text
from strata.control.ca import write_private
from strata.core.errors import Unavailable
from strata.provisioning.child import Child, find

# Nothing of ours: not our secrets, and not an NGINX variable, which means "take over these sockets".
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}


class Nginx:
    """One supervised nginx. ``start``, ``reload`` after a new certificate, ``stop``."""

    def __init__(self, door: FrontDoor) -> None:
        self.door = door
        self._binary = find_nginx()
        quietly = (signal.SIGQUIT, signal.SIGTERM)  # requests under way are finished first
        self._child = Child("nginx", self._command(), self._is_up, package="nginx-light", farewell=quietly)

    @property
    def pid(self) -> int | None:
        """Its master process, if it runs."""
        return self._child.pid

    @property
    def restarts(self) -> int:
        """How often it had to be started again."""
        return self._child.restarts

    async def start(self) -> None:
        """Write the configuration and run; returns when connections are accepted."""
        self._require_port()
        self._write()
        await self._check()
        await self._child.start()

    async def reload(self) -> None:
        """Take up new certificates without dropping a connection."""
        if (pid := self.pid) is not None:
            os.kill(pid, signal.SIGHUP)

    async def stop(self) -> None:
        """Finish requests under way, then end."""
        await self._child.stop()

    def _write(self) -> None:
        door = self.door
        door.directory.mkdir(mode=0o711, parents=True, exist_ok=True)
        temporary = door.directory / "tmp"
        temporary.mkdir(mode=0o700, exist_ok=True)
        if os.geteuid() == 0:
            # Without a word about it, nginx of root would run its workers as an account of its own choice.
            account = pwd.getpwnam(door.user or "root")
            os.chown(temporary, account.pw_uid, account.pw_gid)
            door = msgspec.structs.replace(door, user=f"{account.pw_name} {grp.getgrgid(account.pw_gid).gr_name}")
        write_private(self._config, config_text(door).encode())

    def _require_port(self) -> None:
        """nginx would try for seconds, and whoever has the port would look like nginx meanwhile."""
        try:
            _bind(self.door.host, self.door.port).close()
        except OSError as error:
            raise Unavailable(
                f"the front door cannot be opened: {error.strerror}",
                where=f"{self.door.host}:{self.door.port}",
                hint="stop what listens there, or choose another port",
            ) from error

    @property
    def _config(self) -> Path:
        return self.door.directory / "nginx.conf"

    def _command(self, *more: str) -> list[str]:
        log_file = self.door.directory / "nginx.log"
        return [self._binary, "-e", str(log_file), "-p", str(self.door.directory), "-c", str(self._config), *more]

    async def _check(self) -> None:
        """Ask nginx whether it likes the configuration: its own words are the best error."""
        process = await asyncio.create_subprocess_exec(
            *self._command("-t", "-q"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=_ENVIRONMENT,
        )
        _, complaint = await process.communicate()
        if process.returncode:
            raise Unavailable(
                f"nginx refuses its configuration: {complaint.decode(errors='replace').strip()[-300:]}",
                where=str(self._config),
                hint="is the port free, and is nginx the Debian package?",
            )

    async def _is_up(self) -> bool:
        host = {"*": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "::1"}.get(self.door.host, self.door.host)
        try:
            _, writer = await asyncio.open_connection(host.strip("[]"), self.door.port)
        except OSError:
            return False
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        return True


def find_nginx() -> str:
    """Where nginx is, or how to get it."""
    return find("nginx", "nginx-light, or serve without TLS")


def worker_account(socket_directory: Path) -> pwd.struct_passwd | None:
    """Whom nginx' workers should run as. None: whoever we are, because we are not root or because nobody else could
    reach the socket in ``socket_directory``."""
    if os.geteuid() != 0:
        return None
    reachable = all(folder.stat().st_mode & 0o001 for folder in (socket_directory, *socket_directory.parents))
    for name in ("www-data", "nginx", "nobody"):
        with suppress(KeyError):
            account = pwd.getpwnam(name)
            return account if reachable else None
    return None


def free_port(host: str) -> int:
    """A port that nobody listens on now."""
    with _bind(host, 0) as probe:
        return int(probe.getsockname()[1])


def _bind(host: str, port: int) -> socket.socket:
    probe = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host.strip("[]").replace("*", ""), port))
    except OSError:
        probe.close()
        raise
    return probe
