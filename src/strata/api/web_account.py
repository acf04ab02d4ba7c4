"""The account that nginx's workers run as: nobody else's, made where it is missing.

Workers take apart what strangers send, so they must not be root. And whoever has their account may open the socket
behind them, so it must not be one that other services share (``www-data``).
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from strata.core.errors import BadRequest, Unavailable
from strata.fleet.settings import ListenSettings

ACCOUNT = ListenSettings().account
"""Its name, unless the settings have another."""

_FOLDERS = "/usr/sbin:/sbin:/usr/bin:/bin"
_MAKE = ("--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin")
_PATIENCE = 15.0
_THERE_ALREADY = 9  # useradd: the name is taken
_LOCKED = 1  # useradd: somebody else changes /etc/passwd


def web_account(name: str = ACCOUNT) -> pwd.struct_passwd | None:
    """The account of that name, made if it is missing. None: we are not root, and workers are whoever we are."""
    if os.geteuid() != 0 or _nobody_else():
        return None
    deadline = time.monotonic() + _PATIENCE
    while (found := _find(name)) is None:
        _make(name, last=time.monotonic() > deadline)
    if found.pw_uid == 0:
        raise BadRequest("nginx's workers must not be root", where=f"listen.account: {name}", hint=f"use {ACCOUNT}")
    return found


def _find(name: str) -> pwd.struct_passwd | None:
    with suppress(KeyError):
        return pwd.getpwnam(name)
    return None


def _make(name: str, *, last: bool) -> None:
    hint = f"useradd {' '.join(_MAKE)} {name}; or name another account of its own: listen.account"
    useradd = shutil.which("useradd", path=_FOLDERS)
    if useradd is None:
        raise Unavailable("the account for nginx's workers is missing, and so is useradd", where=name, hint=hint)
    done = subprocess.run(
        [useradd, *_MAKE, name], capture_output=True, text=True, errors="replace", check=False, env={"PATH": _FOLDERS}
    )
    if done.returncode in (_THERE_ALREADY, _LOCKED) and not last:
        time.sleep(0.05)  # another process of ours makes it now
    elif done.returncode:
        why = done.stderr.strip()[-200:]
        raise Unavailable(f"the account for nginx's workers cannot be made: {why}", where=name, hint=hint)


def _nobody_else() -> bool:
    """Whether we are root only in a user namespace of our own, where there is no other account to be."""
    lines = Path("/proc/self/uid_map").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[2]) for line in lines) == 1
