"""The one way to run a workload manager's commands: here, or on another host by ssh. Bounded in time and output.

Never through a shell of ours. ssh hands its words to the shell of the account over there, so they are quoted for it. A
host whose key is not known is not spoken to.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from strata.core.errors import DeviceError, Unavailable
from strata.core.input.foreign import one_line, read_text
from strata.core.redact import redact
from strata.fleet.drivers.subprocesses import run_command

LIMIT = 30.0
"""Seconds for a command. A slurmctld that is away is given up by its own commands after 10."""
MOST_OUTPUT = 256 * 2**20
"""Bytes that a command may say: some kilobytes for each of 100,000 nodes."""
_SAID = 300


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a workload manager's commands are run."""

    on: str = ""
    """``HOST`` or ``USER@HOST``, by ssh. Empty: here."""
    env: Mapping[str, str] = {}
    """What the commands find their cluster by: ``SLURM_CONF``, say."""


class Runner:
    """Runs commands in one place. ``prefix`` stands before them where this process is not in the network that they
    need; ``ssh_config`` is the file that ssh reads instead of its own."""

    def __init__(self, place: Place, *, prefix: Sequence[str] = (), ssh_config: Path | None = None) -> None:
        self._place = place
        self._prefix = tuple(prefix)
        self._ssh_config = ssh_config

    async def run(self, *command: str, stdin: str = "", limit: float = LIMIT) -> str:
        """What ``command`` prints. ``Unavailable``: it could not be run, or did not end in time. ``DeviceError``: it
        failed; its ``reply`` is what it said."""
        argv = (*self._prefix, *words(self._place, command, self._ssh_config))
        env = {} if self._place.on else self._place.env
        ended = await run_command(argv, stdin.encode(), limit, MOST_OUTPUT, env)
        where = f"{command[0]} on {self._place.on}" if self._place.on else command[0]
        if isinstance(ended, str):
            raise Unavailable(redact(ended), where=where)
        if ended.status != 0:
            said = redact(one_line(ended.errors or read_text(ended.output[-_SAID:])))[-_SAID:].strip()
            told = said or f"it ended with status {ended.status} and said nothing"
            raise DeviceError(told, node=where, request=" ".join(command)[:_SAID], reply=said)
        return read_text(ended.output)


def words(place: Place, command: Sequence[str], ssh_config: Path | None = None) -> tuple[str, ...]:
    """The command as it is started here."""
    if not place.on:
        return tuple(command)
    there = ("env", *(f"{name}={value}" for name, value in sorted(place.env.items())), *command)
    config = ("-F", str(ssh_config)) if ssh_config is not None else ()
    checked = ("-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "ConnectTimeout=10")
    return ("ssh", *config, *checked, "-T", "--", place.on, shlex.join(there if place.env else command))
