"""The platform layer's section of the configuration file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from strata.core.errors import BadRequest
from strata.core.section import Section
from strata.core.units import Seconds


class PlatformSettings(Section, frozen=True, kw_only=True):
    """How workload managers are asked, and what waves of a rollout are checked by."""

    workload_poll: Seconds = Seconds(15)
    """How often each connected workload manager is asked about all its nodes. Default: 15 s; a question costs it as
    much as one ``sinfo`` and one ``squeue``."""
    ssh_config: Path | None = None
    """The file that ssh reads (``ssh -F``) when a workload manager's commands are run on another host: accounts, keys,
    known hosts. Default: none, the files of the account that the service runs as. Host keys are always checked."""

    rollout_checks: Mapping[str, tuple[str, ...]] = {}
    """The site's own checks of the waves of a rollout: a name and a command (words, no shell). It gets the nodes of the
    wave, folded, on standard input; a status other than 0 stops the rollout, and what it prints says why. Default:
    none."""

    def check(self) -> None:
        """That it is not asked all the time, before facts are too old, and that the file is there."""
        if not 1 <= self.workload_poll <= 60:
            raise BadRequest("is between 1s and 60s", where="workload_poll", hint="a fact lasts 90 s")
        for name, command in self.rollout_checks.items():
            if not command or not all(command):
                raise BadRequest("a command is one word or more", where=f"rollout_checks.{name}")
        if self.ssh_config is not None and not self.ssh_config.is_file():
            raise BadRequest(f"no such file: {self.ssh_config}", where="ssh_config")
