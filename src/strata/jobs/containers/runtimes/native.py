"""Strata's own: user and mount namespaces, entered by a small program. The default: it starts at once."""

from __future__ import annotations

from collections.abc import Sequence

from strata.jobs.containers.records import NODE_TMP, Abilities, Ready
from strata.jobs.containers.runtimes.runtime import Plain
from strata.jobs.native import program


class Native(Plain):
    """``strata-run``."""

    name = "native"
    install = "make native"
    abilities = Abilities(node_tmp=True)

    @property
    def program(self) -> str:
        """Where it was built."""
        return str(program("strata-run"))

    def command(self, ready: Ready, argv: Sequence[str], folder: str) -> list[str]:
        """The program with its options."""
        return [self.program, *options(ready), "--", *argv]


def options(ready: Ready) -> list[str]:
    """What ``strata-run`` is told, wherever it is: one option for each thing that is asked for."""
    words = ["--root", ready.root, "--workdir", ready.workdir, "--home", ready.asked.home]
    for place in NODE_TMP if ready.asked.node_tmp else ():
        words += ["--bind", f"{place}:{place}"]
    for bind in ready.binds:
        words += ["--bind", f"{bind.source}:{bind.place}{':ro' if bind.read_only else ''}"]
    for device in ready.devices:
        words += ["--device", device]
    words += ["--clear-env"] if ready.asked.clear_env else []
    for name, value in ready.env.items():
        words += ["--env", f"{name}={value}"]
    words += ["--writable"] if ready.asked.writable else []
    words += ["--pid"] if ready.asked.own_pids else []
    words += ["--keep-fd", str(ready.held)] if ready.held >= 0 else []
    return words
