"""Runs nginx as the front door: writes its configuration, starts it, keeps it up, and takes it down with us.

nginx is a child in the foreground. If it dies it is started again, ever more slowly; if *we* die, even by
kill -9, the kernel tells it to stop. Works with and without root.
"""

from __future__ import annotations

import asyncio
import ctypes
import grp
import logging
import os
import pwd
import shutil
import signal
import socket
from asyncio.subprocess import Process
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from strata.api.nginx_config import FrontDoor, config_text
from strata.control.ca import write_private
from strata.core.errors import Unavailable

log = logging.getLogger(__name__)

START_LIMIT = 10.0
"""Seconds within which nginx must accept connections."""
STOP_LIMIT = 5.0
"""Seconds that nginx gets to finish requests before it is killed."""
FIRST_BACK_OFF = 0.25
LONGEST_BACK_OFF = 30.0
STABLE_AFTER = 60.0
"""Seconds of running after which an earlier crash is forgotten."""

_PR_SET_PDEATHSIG = 1
# Nothing of ours: not our secrets, and not an NGINX variable, which means "take over these sockets".
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}


class Nginx:
    """One supervised nginx. ``start``, ``reload`` after a new certificate, ``stop``."""

    def __init__(self, door: FrontDoor, *, binary: str = "") -> None:
        self.door = door
        self._binary = binary or find_nginx()
        self._process: Process | None = None
        self._task: asyncio.Task[None] | None = None
        self.restarts = 0
        """How often it had to be started again."""

    @property
    def pid(self) -> int | None:
        """Its master process, if it runs."""
        running = self._process is not None and self._process.returncode is None
        return self._process.pid if self._process and running else None

    async def start(self) -> None:
        """Write the configuration and run; returns when connections are accepted."""
        self._require_port()
        self._write()
        await self._check()
        self._process = await self._spawn()
        try:
            await self._until_up()
        except Unavailable:
            await self._end(self._process)
            raise
        self._task = asyncio.create_task(self._supervise(), name="nginx")

    async def reload(self) -> None:
        """Take up new certificates without dropping a connection."""
        if (pid := self.pid) is not None:
            os.kill(pid, signal.SIGHUP)

    async def stop(self) -> None:
        """Finish requests under way, then end."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        if self._process is not None:
            await self._end(self._process)
            self._process = None

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

    async def _spawn(self) -> Process:
        # A session of its own: workers that outlive a killed master can then be found and ended.
        return await asyncio.create_subprocess_exec(
            *self._command(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env=_ENVIRONMENT,
            start_new_session=True,
            preexec_fn=_dies_with(os.getpid()),
        )

    async def _until_up(self) -> None:
        assert self._process is not None
        loop = asyncio.get_running_loop()
        deadline = loop.time() + START_LIMIT
        host = {"*": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "::1"}.get(self.door.host, self.door.host)
        while self._process.returncode is None and loop.time() < deadline:
            try:
                _, writer = await asyncio.open_connection(host.strip("[]"), self.door.port)
            except OSError:
                await asyncio.sleep(0.02)
                continue
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            return
        raise Unavailable(
            f"nginx does not listen on {self.door.host}:{self.door.port}",
            where="front door",
            hint=f"see {self.door.directory / 'nginx.log'}; is the port taken?",
        )

    async def _supervise(self) -> None:
        loop = asyncio.get_running_loop()
        wait = FIRST_BACK_OFF
        while True:
            assert self._process is not None
            began = loop.time()
            code = await self._process.wait()
            _end_group(self._process.pid)
            if loop.time() - began > STABLE_AFTER:
                wait = FIRST_BACK_OFF
            log.error("nginx ended; starting it again", extra={"code": code, "after_s": wait})
            await asyncio.sleep(wait)
            wait = min(wait * 2, LONGEST_BACK_OFF)
            self.restarts += 1
            self._process = await self._spawn()

    async def _end(self, process: Process) -> None:
        if process.returncode is None:
            for how in (signal.SIGQUIT, signal.SIGTERM):
                with suppress(ProcessLookupError):
                    process.send_signal(how)
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(process.wait(), STOP_LIMIT)
                    break
        _end_group(process.pid)
        await process.wait()


def find_nginx() -> str:
    """Where nginx is, or how to get it."""
    for folders in (None, "/usr/sbin:/usr/local/sbin:/sbin"):
        if found := shutil.which("nginx", path=folders):
            return found
    raise Unavailable("nginx is not installed", hint="apt-get install nginx-light, or serve without TLS")


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


def _dies_with(parent: int) -> Callable[[], None]:
    """For a child, before it becomes nginx: ask the kernel to stop it when ``parent`` is gone."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return ask


def _end_group(group: int) -> None:
    """End what is left of a session that we started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
