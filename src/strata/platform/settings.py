"""The platform layer's section of the configuration file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from strata.core.errors import BadRequest
from strata.core.settings_section import Section
from strata.core.units import Seconds


class PlatformSettings(Section, frozen=True, kw_only=True):
    """How workload managers are asked, what flows may run here, and how waves of a rollout are checked."""

    workload: Literal["required", "none"] = "required"
    """What Strata assumes while no workload manager is connected. ``required``: jobs may be running, so no node is
    switched off or changed. ``none``: nobody runs jobs here. A workload manager that is connected is always asked.
    Default: required, the safe one."""
    workload_poll: Seconds = Seconds(15)
    """How often each connected workload manager is asked about all its nodes. Default: 15 s; a question costs it as
    much as one ``sinfo`` and one ``squeue``."""
    ssh_config: Path | None = None
    """The file that ssh reads (``ssh -F``) when a workload manager's commands are run on another host, a repository is
    fetched or a playbook is run: accounts, keys, known hosts. Default: none, the files of the account that the service
    runs as. Host keys are always checked."""
    git_ca: Path | None = None
    """Certificates that https hosts of repositories are checked against (PEM). Default: none, those of the machine."""

    vault: str = ""
    """Address of the HashiCorp Vault that keeps some secrets of nodes (``https://vault.site.example:8200``). Default:
    empty, none does."""
    vault_ca: Path | None = None
    """Certificates that the Vault is checked against (PEM). Default: none, those of the machine."""
    vault_token: Path | None = None
    """File (0600) with the token by which the service logs in to the Vault. Default: none; then AppRole is used."""
    vault_role: str = ""
    """The service's role id, if it logs in by AppRole. Default: empty."""
    vault_secret_id: Path | None = None
    """File (0600) with the secret id that belongs to the role. Default: none."""
    vault_namespace: str = ""
    """Namespace in a Vault Enterprise. Default: empty, the root."""
    commands: Mapping[str, tuple[str, ...]] = {}
    """Commands that steps of flows may run on the controller (``run``): name → program and arguments. They get the
    names of the step's nodes on standard input, a line each. Default: none."""
    playbook_account: str = "nobody"
    """The account that playbooks of the repository run as, if the service runs as root. Default: nobody."""
    playbook_key: Path | None = None
    """File (0600) with the private key by which playbooks log in to nodes. It is given to an ssh agent that lives as
    long as one run; the account of the playbooks cannot read the file. Default: none."""
    rollout_checks: Mapping[str, tuple[str, ...]] = {}
    """The site's own checks of the waves of a rollout: a name and a command (words, no shell). It gets the nodes of the
    wave, folded, on standard input; a status other than 0 stops the rollout, and what it prints says why. Default:
    none."""

    def check(self) -> None:
        """That nobody is asked all the time, before facts are too old, that files are there, and that no token goes
        over a network in clear."""
        if not 1 <= self.workload_poll <= 60:
            raise BadRequest("must be between 1s and 60s", where="workload_poll", hint="a fact lasts 90 s")
        for name, command in self.rollout_checks.items():
            if not command or not all(command):
                raise BadRequest("a command must have at least one word", where=f"rollout_checks.{name}")
        self._need_files("ssh_config", "git_ca", "playbook_key")
        for name, command in self.commands.items():
            if not command or not command[0].startswith("/"):
                raise BadRequest(
                    f"{name}: must begin with the path of a program, such as /usr/bin/mail", where="commands"
                )
        if self.vault:
            self._check_vault()

    def _need_files(self, *names: str) -> None:
        for name in names:
            path = getattr(self, name)
            if path is not None and not path.is_file():
                raise BadRequest(f"no such file: {path}", where=name)

    def _check_vault(self) -> None:
        if not self.vault.startswith(("https://", "http://127.", "http://localhost:", "http://[::1]")):
            raise BadRequest(
                "must begin with https://",
                where="vault",
                hint="otherwise the token would cross the network in clear text",
            )
        self._need_files("vault_ca", "vault_token", "vault_secret_id")
        if (self.vault_token is None) == (self.vault_secret_id is None):
            raise BadRequest("give either vault_token or vault_role and vault_secret_id", where="vault_token")
