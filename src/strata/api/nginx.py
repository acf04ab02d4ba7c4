"""Runs nginx as the front door: writes its configuration, starts it, keeps it up, and takes it down with us.

nginx is a supervised child in the foreground. Works with and without root; of root, its workers have an account of
their own, and reach only the directories that they are handed.
"""

from __future__ import annotations

import asyncio
import grp
import os
import pwd
import secrets
import signal
import socket
import stat
from contextlib import suppress
from pathlib import Path

import msgspec

from strata.api.nginx_config import BootServer, FrontDoor, config_text
from strata.api.web_account import web_account
from strata.core.errors import Unavailable
from strata.core.host.private_file import write_private
from strata.fleet.child_process import Child, find

# Nothing of ours: not our secrets, and not an NGINX variable, which means "take over these sockets".
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
_FREE_PORTS = range(20000, 32768)


class Nginx:
    """One supervised nginx. ``start``, ``reload`` after a new certificate, ``stop``."""

    def __init__(self, door: FrontDoor) -> None:
        self.door = door
        self._binary = find_nginx()
        self._child: Child | None = None
        self._handles: list[int] = []
        self._handed_door: FrontDoor | None = None

    @property
    def pid(self) -> int | None:
        """Its master process, if it runs."""
        return self._child.pid if self._child is not None else None

    @property
    def restarts(self) -> int:
        """How often it had to be started again."""
        return self._child.restarts if self._child is not None else 0

    async def start(self) -> None:
        """Write the configuration and run; returns when connections are accepted."""
        self._require_port()
        try:
            self._write(web_account(self.door.account))
            await self._check()
            quietly = (signal.SIGQUIT, signal.SIGTERM)  # requests under way are finished first
            self._child = Child(
                "nginx",
                self._command(),
                self._is_up,
                package="nginx-light",
                farewell=quietly,
                inherits=self._handles,
            )
            await self._child.start()
        except BaseException:
            self._let_go()
            raise

    async def reload(self, boot: BootServer | None = None) -> None:
        """Take up new certificates, and ``boot`` where it is given, without dropping a connection."""
        if boot is not None and self._handed_door is not None:
            self._handed_door = msgspec.structs.replace(self._handed_door, boot=boot)
            write_private(self._config, config_text(self._handed_door).encode())
            await self._check()
        if (pid := self.pid) is not None:
            os.kill(pid, signal.SIGHUP)

    async def stop(self) -> None:
        """Finish requests under way, then end."""
        if self._child is not None:
            await self._child.stop()
        self._let_go()

    def _write(self, account: pwd.struct_passwd | None) -> None:
        door = self.door
        for folder in (door.directory, door.directory / "tmp"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)
        handed = msgspec.structs.replace(
            door,
            # Without a word about it, nginx of root would run its workers as an account of its own choice.
            account=f"{account.pw_name} {grp.getgrgid(account.pw_gid).gr_name}" if account is not None else "",
            upstream=self._handed(door.upstream.parent, account) / door.upstream.name,
            images=door.images and self._handed(door.images, account),
            dashboard=door.dashboard and self._handed(door.dashboard, account),
            media=door.media and self._handed(door.media, account),
            boot_root=door.boot and self._handed(door.boot.root, account),
        )
        self._handed_door = handed
        write_private(self._config, config_text(handed).encode())

    def _handed(self, folder: Path, account: pwd.struct_passwd | None) -> Path:
        """``folder`` as nginx finds it: by a descriptor that it inherits, so that its workers need not be let into the
        state directory, nor into what is above it."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if account is not None:
            os.chown(folder, -1, account.pw_gid)
            folder.chmod(stat.S_IMODE(folder.stat().st_mode) | stat.S_IXGRP)
        handle = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        self._handles.append(handle)
        return Path(f"/proc/self/fd/{handle}")

    def _let_go(self) -> None:
        while self._handles:
            os.close(self._handles.pop())

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
            pass_fds=self._handles,
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


def free_port(host: str) -> int:
    """A port that nobody listens on now. It is below those that the kernel gives away by itself (32768 and more), so
    that nobody gets it by chance before it is listened on."""
    while True:
        port = secrets.choice(_FREE_PORTS)
        with suppress(OSError), _bind(host, port):
            return port


def _bind(host: str, port: int) -> socket.socket:
    probe = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host.strip("[]").replace("*", ""), port))
    except OSError:
        probe.close()
        raise
    return probe
