"""A real PostgreSQL on a unix socket, for tests and benchmarks. Where we are root it runs as another user."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

HOMES = "/usr/lib/postgresql"
"""Where Debian keeps its versions."""


def binaries() -> Path | None:
    """Where the newest installed server's programs are (Debian: postgresql)."""
    found = sorted(Path(HOMES).glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    here = shutil.which("initdb")
    return Path(here).parent if here else None


class Postgres:
    """A server with its data under ``directory``, which is its own and has a short name."""

    def __init__(self, directory: Path) -> None:
        programs = binaries()
        if programs is None:
            raise RuntimeError("PostgreSQL is not installed: make setup")
        self._programs = programs
        self._directory = directory
        self._data = directory / "data"
        self._log = directory / "log"
        self._user = _user()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """How a client reaches it."""
        return f"host={self._directory} user=strata dbname=postgres"

    def start(self) -> None:
        """Make the database if it is not there, start the server, and wait until it serves."""
        if not self._data.exists():
            if self._user is not None:
                os.chown(self._directory, self._user.pw_uid, self._user.pw_gid)
            self._do("initdb", "-D", self._data, "-U", "strata", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        with self._log.open("ab") as out:
            self.process = self._spawn(out.fileno())
        self._wait()

    def stop(self) -> None:
        """End the server, with what is under way in it."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End it with no chance to tidy up (SIGQUIT: at once, and with its children)."""
        self._end(signal.SIGQUIT)

    def _end(self, how: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(60)
            self.process = None

    def _wait(self) -> None:
        assert self.process is not None
        for _ in range(600):
            if self._do("pg_isready", "-q", "-h", self._directory, check=False) == 0:
                return
            if self.process.poll() is not None:
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.1)
        raise RuntimeError(f"PostgreSQL did not start:\n{self._log.read_text()}")

    def _spawn(self, out: int) -> subprocess.Popen[bytes]:
        command = [self._programs / "postgres", "-D", self._data, "-k", self._directory, "-c", "listen_addresses="]
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=self._directory, **self._as_user()
        )

    def _do(self, program: str, *options: object, check: bool = True) -> int:
        done = subprocess.run(
            [self._programs / program, *map(str, options)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=self._directory,
            timeout=120,
            **self._as_user(),
        )
        if check and done.returncode:
            raise RuntimeError(f"{program}: {done.stderr.decode()}")
        return done.returncode

    def _as_user(self) -> dict[str, object]:
        if self._user is None:
            return {}
        return {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}


@contextlib.contextmanager
def postgres() -> Iterator[Postgres]:
    """A server that is gone afterwards, with its data."""
    # Not under the test's own directory: another user must get there, and a socket's path must be short.
    with tempfile.TemporaryDirectory(prefix="pg") as found:
        server = Postgres(Path(found))
        try:
            server.start()
            yield server
        finally:
            server.stop()


def _user() -> pwd.struct_passwd | None:
    if os.getuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")
