"""Charliecloud: namespaces without anything else, as Los Alamos runs them."""

from __future__ import annotations

from collections.abc import Sequence

from strata.jobs.containers.records import Abilities, Ready
from strata.jobs.containers.runtimes.runtime import Plain


class Charliecloud(Plain):
    """``ch-run``."""

    name = "charliecloud"
    program = "ch-run"
    install = "apt-get install charliecloud"
    abilities = Abilities(
        writable="it would write to the image itself, which all jobs share",
        homes=("none",),
        own_pids=False,
        hides_devices=False,
        makes_places=False,
        read_only_binds=False,
        node_tmp=True,
    )

    def command(self, ready: Ready, argv: Sequence[str], folder: str) -> list[str]:
        """The host's /dev is there in any case, and its /tmp where it is not told otherwise."""
        words = [self.program, *(() if ready.asked.node_tmp else ("--private-tmp",))]
        words += ["--no-passwd", "--cd", ready.workdir, "--env-no-expand"]
        for bind in ready.binds:
            words += ["--bind", f"{bind.source}:{bind.place}"]
        words += ["--unset-env=*"] if ready.asked.clear_env else []
        words += [f"--set-env={name}={value}" for name, value in ready.env.items()]
        return [*words, ready.root, "--", *argv]
