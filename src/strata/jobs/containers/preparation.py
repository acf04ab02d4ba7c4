"""From a request and an unpacked image to what a runtime builds its command from.

The environment: the job's own (unless it is to be cleared), over it what the image says, over that what the request
says, and at last what tells programs which accelerators they have. Only what the image and the request say stands in
the command; the job's own comes in by itself, so that no secret of it is ever in a list of processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from strata.core.errors import BadRequest, Refused
from strata.jobs.accelerators.assignment import LIBRARIES, PROGRAMS, Assigned, choose, given
from strata.jobs.accelerators.records import Found
from strata.jobs.containers.cache import Image
from strata.jobs.containers.records import Abilities, Bind, Container, Ready, check
from strata.jobs.containers.runtimes import check_abilities, runtime

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LIBRARY_STAGE, PROGRAM_STAGE = "driver-lib", "driver-bin"
"""Folders of empty files in the folder of a start: what drivers' files are bound over, where a runtime needs places."""


class User(NamedTuple):
    """Who runs it."""

    uid: int
    gid: int
    name: str
    home: str


class Start(NamedTuple):
    """A start, but for the runtime's own words."""

    ready: Ready
    argv: tuple[str, ...]
    places: tuple[str, ...]
    """Empty files that have to be in the folder of the start."""


def start(
    container: Container,
    image: Image | None,
    words: Sequence[str],
    user: User,
    environment: Mapping[str, str],
    *,
    found: Found | None = None,
    folder: str = "",
) -> Start:
    """Put together what is to be started. ``found``: what the machine has, where devices are asked for. ``folder``: one
    of this start alone. Raises ``Refused`` for what the runtime cannot do, and ``BadRequest`` for what cannot be."""
    check(container)
    one = runtime(container.runtime)
    check_abilities(one, container)
    assigned = _assigned(container, found, environment)
    drivers, places = _drivers(assigned, found or Found(), one.abilities, folder)
    env = _environment(container, image, user, assigned, found or Found(), one.abilities)
    ready = Ready(
        asked=container,
        root=image.root if image else "",
        reference=container.image.removeprefix("docker://"),  # as other runtimes write it
        binds=(*container.binds, *drivers),
        devices=assigned.devices(found) if found else (),
        env=env,
        inherited=environment,
        workdir=container.workdir or (image.config.cwd if image else "") or "/",
        home_path=user.home,
        uid=user.uid,
        gid=user.gid,
        user=user.name,
    )
    if image is not None and not one.abilities.makes_places:
        _check_places(ready, Path(image.root), one.name)
    return Start(ready, _argv(container, image, words), places)


def _argv(container: Container, image: Image | None, words: Sequence[str]) -> tuple[str, ...]:
    own = image.entrypoint if image and container.entrypoint else ()
    argv = (*own, *words) if words else (image.config.argv if image else ())
    if not argv:
        raise BadRequest("there is nothing to run: the image names no program", where=container.image, hint="name one")
    return argv


def _assigned(container: Container, found: Found | None, environment: Mapping[str, str]) -> Assigned:
    if not container.devices or found is None:
        return Assigned()
    named = choose(found, [word for word in container.devices if word != "given"])
    if "given" not in container.devices:
        return named
    got = given(found, environment)
    return Assigned(
        tuple(dict.fromkeys((*named.accelerators, *got.accelerators))),
        tuple(dict.fromkeys((*named.adapters, *got.adapters))),
    )


def _drivers(assigned: Assigned, found: Found, can: Abilities, folder: str) -> tuple[tuple[Bind, ...], tuple[str, ...]]:
    """The binds of the drivers' files, and the empty files that they need where a runtime cannot make places."""
    shown = assigned.shown(found)
    files = [Bind(source=source, target=target, read_only=can.read_only_binds) for source, target in shown]
    if can.makes_places or not files:
        return tuple(files), ()
    places = []
    for bind in files:
        stage = LIBRARY_STAGE if bind.place.startswith(f"{LIBRARIES}/") else PROGRAM_STAGE
        places.append(f"{stage}/{bind.place.rpartition('/')[2]}")
    targets = {LIBRARY_STAGE: LIBRARIES, PROGRAM_STAGE: PROGRAMS}
    stages = [
        Bind(source=f"{folder}/{stage}", target=target, read_only=can.read_only_binds)
        for stage, target in targets.items()
        if any(place.startswith(f"{stage}/") for place in places)
    ]
    return (*stages, *files), tuple(places)


def _environment(
    container: Container, image: Image | None, user: User, assigned: Assigned, found: Found, can: Abilities
) -> dict[str, str]:
    env = dict(word.partition("=")[::2] for word in (image.config.env if image else ()))
    env.setdefault("PATH", _PATH)
    env["HOME"] = "/" if container.home == "none" else user.home
    env |= container.env
    env |= assigned.variables(found, hidden=can.hides_devices)
    for name, folder in (("LD_LIBRARY_PATH", LIBRARIES), ("PATH", PROGRAMS)):
        has = any(target.startswith(f"{folder}/") for _, target in assigned.shown(found))
        if has and folder not in env.get(name, "").split(":"):
            env[name] = f"{folder}:{env[name]}" if env.get(name) else folder
    return env


def _check_places(ready: Ready, root: Path, name: str) -> None:
    """That there is a folder or file where something is to be shown, for runtimes that cannot make one."""
    homes = [ready.home_path] if ready.asked.home != "none" else []
    for place in [*homes, *(bind.place for bind in ready.binds)]:
        if place.startswith(("/home/", "/mnt/", "/run/", "/tmp/", "/dev/")) and name == "bubblewrap":
            continue
        if any(place.startswith(f"{bind.place}/") for bind in ready.binds):
            continue
        if not (root / place.lstrip("/")).exists():
            raise Refused(
                f"the image has nothing at {place}, and {name} cannot make a place there",
                by=f"runtime {name}",
                where="binds",
                hint="native, podman and apptainer can; or have the image made with such a folder",
            )
