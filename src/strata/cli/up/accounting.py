"""The accounting of the Slurm of ``strata up``: a MariaDB that only listens at a socket, and slurmdbd over it.

All of it lies in a folder of its own. The password of the database is made once, and stands in the files that MariaDB
and slurmdbd read it from.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from strata.core.errors import Unavailable
from strata.core.host.captured import captured
from strata.virtual.qemu import network

USER, DATABASE = "slurm", "slurm_acct_db"
SECRET, SOCKET = "secret.conf", "socket"
_DATA, _INIT = "data", "init.sql"
_LIMIT = 180.0


def check_host() -> None:
    """Raise unless this machine has both; says what to install."""
    for program, package in (("mariadbd", "mariadb-server"), ("mariadb-install-db", "mariadb-server")):
        network.tool(program, package)
    network.tool("slurmdbd", "slurmdbd")


def make(folder: Path) -> None:
    """The database and its password, unless they are there."""
    folder.mkdir(mode=0o700, exist_ok=True)
    if not (folder / SECRET).exists():
        password = secrets.token_urlsafe(32)
        who = f"'{USER}'@'localhost'"
        _write(
            folder / _INIT,
            f"CREATE USER IF NOT EXISTS {who};\n"
            f"ALTER USER {who} IDENTIFIED BY '{password}';\n"
            f"GRANT ALL ON {DATABASE}.* TO {who};\n",
        )
        _write(folder / SECRET, f"StoragePass={password}\n")
    if (folder / _DATA / "mysql").is_dir():
        return
    command = [network.tool("mariadb-install-db", "mariadb-server"), "--no-defaults", *_options(folder)]
    command += ["--auth-root-authentication-method=socket", "--skip-test-db", "--skip-name-resolve"]
    done = captured(command, _LIMIT)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip())[-300:]
        raise Unavailable(f"the database could not be made: {said}", where=str(folder / _DATA))


def mariadbd(folder: Path) -> list[str]:
    """The command of the database."""
    return [
        network.tool("mariadbd", "mariadb-server"),
        "--no-defaults",
        *_options(folder),
        f"--socket={folder / SOCKET}",
        "--skip-networking",
        "--skip-name-resolve",
        f"--pid-file={folder / 'pid'}",
        f"--init-file={folder / _INIT}",
        # What slurmdbd asks for; the rest is small: it keeps the jobs of a few nodes.
        "--innodb-lock-wait-timeout=900",
        "--innodb-buffer-pool-size=32M",
        "--performance-schema=OFF",
    ]


def slurmdbd(folder: Path, conf: Path) -> list[str]:
    """The command of slurmdbd, whose slurmdbd.conf is beside the slurm.conf."""
    # It takes no path of a socket: the library that it speaks to the database with does.
    environment = [f"SLURM_CONF={conf}", f"MYSQL_UNIX_PORT={folder / SOCKET}"]
    return ["env", *environment, network.tool("slurmdbd", "slurmdbd"), "-D"]


def _options(folder: Path) -> list[str]:
    user = ["--user=root"] if os.geteuid() == 0 else []
    return [f"--datadir={folder / _DATA}", "--innodb-log-file-size=8M", *user]


def _write(path: Path, text: str) -> None:
    """Nobody else reads it."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
        file.write(text)
