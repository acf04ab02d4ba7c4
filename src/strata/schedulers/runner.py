"""The one way to run a workload manager's commands: here, or on another host by ssh. Bounded in time and output.

Never through a shell of ours. ssh hands its words to the shell of the account over there, so they are quoted for it. A
host whose key is not known is not spoken to. What is done for somebody is run as their account, so that they can do no
more than by hand.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from strata.core.errors import BadRequest, DeviceError, Refused, Unavailable
from strata.core.input.foreign import one_line, read_text
from strata.core.redact import redact
from strata.fleet.drivers.subprocesses import Finished, run_command

LIMIT = 30.0
"""Seconds for a command. A slurmctld that is away is given up by its own commands after 10."""
MOST_OUTPUT = 256 * 2**20
"""Bytes that a command may say: some kilobytes for each of 100,000 nodes."""
_SAID = 300
_ACCOUNT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}\$?\Z")


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a workload manager's commands are run."""

    on: str = ""
    """``HOST`` or ``USER@HOST``, by ssh. Empty: here."""
    env: Mapping[str, str] = {}
    """What the commands find their cluster by: ``SLURM_CONF``, say."""


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """A local account that commands are run as."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str

    @property
    def env(self) -> Mapping[str, str]:
        """What a login would set."""
        return {"HOME": self.home, "SHELL": self.shell, "USER": self.name, "LOGNAME": self.name}


class Runner:
    """Runs commands in one place. ``prefix`` stands before them where this process is not in the network that they
    need; ``ssh_config`` is the file that ssh reads instead of its own."""

    def __init__(self, place: Place, *, prefix: Sequence[str] = (), ssh_config: Path | None = None) -> None:
        self._place = place
        self._prefix = tuple(prefix)
        self._ssh_config = ssh_config

    async def run(
        self,
        *command: str,
        stdin: str = "",
        limit: float = LIMIT,
        account: str = "",
        env: Mapping[str, str] | None = None,
    ) -> str:
        """What ``command`` prints. As ``finish``; and ``DeviceError``: it failed; its ``reply`` is what it said."""
        ended = await self.finish(*command, stdin=stdin, limit=limit, account=account, env=env)
        if ended.status != 0:
            said = redact(one_line(ended.errors or read_text(ended.output[-_SAID:])))[-_SAID:].strip()
            told = said or f"it ended with status {ended.status} and said nothing"
            raise DeviceError(told, node=self._where(command), request=" ".join(command)[:_SAID], reply=said)
        return read_text(ended.output)

    async def finish(
        self,
        *command: str,
        stdin: str = "",
        limit: float = LIMIT,
        account: str = "",
        env: Mapping[str, str] | None = None,
    ) -> Finished:
        """How ``command`` ended, as ``account`` (empty: as whom this service is). ``Unavailable``: it could not be run,
        or did not end in time. ``BadRequest``: no such account; ``Refused``: it cannot be run as that account."""
        place = msgspec.structs.replace(self._place, env={**self._place.env, **(env or {})})
        given = {} if place.on else place.env
        if account and place.on:
            _check_name(account)
            place = msgspec.structs.replace(place, on=f"{account}@{place.on.rpartition('@')[2]}")
        argv = words(place, command, self._ssh_config)
        if account and not place.on:
            who = await asyncio.to_thread(find_account, account)
            argv, given = (*switch(who, os.geteuid()), *argv), {**who.env, **given}
        ended = await run_command((*self._prefix, *argv), stdin.encode(), limit, MOST_OUTPUT, given)
        if isinstance(ended, str):
            raise Unavailable(redact(ended), where=self._where(command))
        return ended

    def _where(self, command: Sequence[str]) -> str:
        return f"{command[0]} on {self._place.on}" if self._place.on else command[0]


def words(place: Place, command: Sequence[str], ssh_config: Path | None = None) -> tuple[str, ...]:
    """The command as it is started here."""
    if not place.on:
        return tuple(command)
    there = ("env", *(f"{name}={value}" for name, value in sorted(place.env.items())), *command)
    config = ("-F", str(ssh_config)) if ssh_config is not None else ()
    checked = ("-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "ConnectTimeout=10")
    return ("ssh", *config, *checked, "-T", "--", place.on, shlex.join(there if place.env else command))


@contextmanager
def connecting(kind: str) -> Iterator[None]:
    """While somebody connects what was never asked before: that it cannot be asked is no fault of this service, and
    need not pass by itself, so it is a ``DeviceError``."""
    try:
        yield
    except Unavailable as error:
        hint = error.hint
        if not hint and kind != "kubernetes":
            hint = f"have the commands of {kind} where this service runs, or say on which host they are: --on HOST"
        raise DeviceError(error.detail, node=error.where, hint=hint) from None


def look_up(name: str) -> Account | None:
    """An account as this machine has it; None: there is none. May ask a directory over the network: not for the event
    loop."""
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        return None
    shell = found.pw_shell or "/bin/sh"
    return Account(name=found.pw_name, uid=found.pw_uid, gid=found.pw_gid, home=found.pw_dir, shell=shell)


def find_account(name: str) -> Account:
    """An account of this machine that commands may be run as, by its name. Not for the event loop either."""
    _check_name(name)
    found = look_up(name)
    if found is None:
        hint = "jobs run as a local account of the same name"
        raise BadRequest(f"no such account here: {name}", where="account", hint=hint)
    if found.uid == 0:
        raise Refused(f"the account {name} is root; no job's command is run as root", by="account", where="account")
    return found


def switch(account: Account, own: int) -> tuple[str, ...]:
    """What stands before a command that is run as ``account`` by a process whose user id is ``own``."""
    if own == account.uid:
        return ()
    if own != 0:
        raise Refused(
            f"this service does not run as root, so that it can do nothing as {account.name}",
            by="account",
            where="account",
            hint="run the service as root, or reach the scheduler by ssh, or submit as the service's own account",
        )
    # Set-user-id programs stay possible: some schedulers prove by one who asks (PBS's pbs_iff, LSF's bsub).
    return ("setpriv", "--reuid", str(account.uid), "--regid", str(account.gid), "--init-groups", "--")


def _check_name(name: str) -> None:
    if not _ACCOUNT.match(name):
        raise BadRequest(f"not the name of an account: {name[:40]!r}", where="account")
    if name == "root":
        raise Refused("no job's command is run as root", by="account", where="account")
