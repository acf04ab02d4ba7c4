"""The runtimes, by name. Each builds the command that starts a program in an image; none starts anything here."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from strata.core.errors import BadRequest, Refused, Unavailable
from strata.jobs.containers.records import Abilities, Container
from strata.jobs.containers.runtimes.bubblewrap import Bubblewrap
from strata.jobs.containers.runtimes.bundle import Bundle
from strata.jobs.containers.runtimes.charliecloud import Charliecloud
from strata.jobs.containers.runtimes.native import Native
from strata.jobs.containers.runtimes.others import Apptainer, Enroot, Sarus, Shifter
from strata.jobs.containers.runtimes.podman import Podman
from strata.jobs.containers.runtimes.runtime import Runtime
from strata.jobs.containers.runtimes.udocker import Udocker

RUNTIMES: Mapping[str, Runtime] = {
    one.name: one
    for one in (
        Native(),
        Charliecloud(),
        Bubblewrap(),
        Podman(),
        Bundle("runc"),
        Bundle("crun"),
        Udocker(),
        Apptainer(),
        Enroot(),
        Sarus(),
        Shifter(),
    )
}


def runtime(name: str) -> Runtime:
    """The one of that name, or ``BadRequest``."""
    if name not in RUNTIMES:
        raise BadRequest(f"there is no such runtime; there are {', '.join(RUNTIMES)}", where=f"runtime {name[:40]!r}")
    return RUNTIMES[name]


def require(one: Runtime) -> str:
    """Where its program is; ``Unavailable`` names what installs it."""
    found = one.program if one.program.startswith("/") else shutil.which(one.program)
    if not found or not shutil.which(found):
        raise Unavailable(f"{one.program or one.name} is not installed", where=f"runtime {one.name}", hint=one.install)
    return found


def check_abilities(one: Runtime, container: Container) -> None:
    """Raise ``Refused`` where the container asks for what the runtime cannot do, and say which can."""
    for field, why in _lacks(one.abilities, container).items():
        able = [name for name, other in RUNTIMES.items() if not _lacks(other.abilities, container)]
        hint = f"these can: {', '.join(able)}" if able else "no runtime can"
        raise Refused(f"{one.name} cannot do that: {why}", by=f"runtime {one.name}", where=field, hint=hint)


def _lacks(can: Abilities, container: Container) -> dict[str, str]:
    """What of the container cannot be done, by field, and why."""
    some = [word for word in container.devices if word not in ("all", "given")]
    questions = {
        "writable": (container.writable and can.writable, can.writable),
        "home": (container.home not in can.homes, f"it has no home of the kind {container.home!r}"),
        "own_pids": (container.own_pids and not can.own_pids, "it shows the processes of the node"),
        "clear_env": (container.clear_env and not can.clear_env, "it always takes the environment over"),
        "devices": (some and not can.hides_devices, "it shows all devices of the node: some cannot be kept from a job"),
        "node_tmp": (container.node_tmp and not can.node_tmp, "its /tmp and /dev/shm are its own, never the node's"),
        "binds": (
            not can.read_only_binds and any(bind.read_only for bind in container.binds),
            "its binds can be written to",
        ),
    }
    return {field: why for field, (lacking, why) in questions.items() if lacking}
