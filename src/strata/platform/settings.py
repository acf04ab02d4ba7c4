"""The platform layer's section of the configuration file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from strata.core.errors import BadRequest
from strata.core.section import Section
from strata.core.units import Seconds


class PlatformSettings(Section, frozen=True, kw_only=True):
    """How workload managers are asked, and what flows may run here."""

    workload_poll: Seconds = Seconds(15)
    """How often each connected workload manager is asked about all its nodes. Default: 15 s; a question costs it as
    much as one ``sinfo`` and one ``squeue``."""
    ssh_config: Path | None = None
    """The file that ssh reads (``ssh -F``) when a workload manager's commands are run on another host: accounts, keys,
    known hosts. Default: none, the files of the account that the service runs as. Host keys are always checked."""

    commands: Mapping[str, tuple[str, ...]] = {}
    """Commands that steps of flows may run on the controller (``run``): name → program and arguments. They get the
    names of the step's nodes on standard input, a line each. Default: none."""

    def check(self) -> None:
        """That it is not asked all the time, before facts are too old, and that the file is there."""
        if not 1 <= self.workload_poll <= 60:
            raise BadRequest("is between 1s and 60s", where="workload_poll", hint="a fact lasts 90 s")
        if self.ssh_config is not None and not self.ssh_config.is_file():
            raise BadRequest(f"no such file: {self.ssh_config}", where="ssh_config")
        for name, command in self.commands.items():
            if not command or not command[0].startswith("/"):
                raise BadRequest(f"{name}: begins with the path of a program, such as /usr/bin/mail", where="commands")
