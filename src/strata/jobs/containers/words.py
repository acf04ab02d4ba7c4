"""A request for a container as words of ``strata container run``, by which scripts of jobs start it. Pure."""

from __future__ import annotations

from strata.jobs.containers.records import Container

INSIDE = "/.strata"
"""Where a container sees the folder of its job. Every image that we unpack has the place."""


def run_words(container: Container) -> list[str]:
    """What stands behind ``strata``, but for ``--`` and the program."""
    words = ["container", "run", container.image, f"--runtime={container.runtime}", f"--home={container.home}"]
    for flag in ("clear_env", "writable", "own_pids", "entrypoint", "node_tmp"):
        words += [f"--{flag.replace('_', '-')}"] if getattr(container, flag) else []
    words += [f"--workdir={container.workdir}"] if container.workdir else []
    words += [f"--device={device}" for device in container.devices]
    words += [f"--bind={bind.source}:{bind.place}{':ro' if bind.read_only else ''}" for bind in container.binds]
    return [*words, *(f"--env={name}={value}" for name, value in container.env.items())]
