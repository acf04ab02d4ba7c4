"""What becomes of a job's container where the scheduler starts containers itself. Pure."""

from __future__ import annotations

import msgspec

from strata.core.errors import BadRequest
from strata.jobs.containers.images import REGISTRY
from strata.jobs.containers.records import Container
from strata.jobs.submission.records import JobDocument


def image_of(document: JobDocument) -> str:
    """The image, as such a scheduler fetches it; empty: the job brings none. Raises ``BadRequest`` for what of a
    container is the node's to give."""
    if document.modules:
        raise BadRequest("modules are on the nodes, and this target runs jobs elsewhere", where="modules")
    wanted = document.container
    if wanted is None:
        return ""
    plain = Container(image=wanted.image)
    for field, why in (
        ("runtime", "this target has its own container runtime"),
        ("binds", "this target does not see the nodes' folders"),
        ("home", "this target does not see the accounts' homes"),
        ("entrypoint", "this target runs the job's command, not the image's program"),
        ("clear_env", "this target always starts with a fresh environment"),
    ):
        if getattr(wanted, field) != getattr(plain, field):
            raise BadRequest(why, where=f"container.{field}")
    if wanted.devices not in ((), ("given",)):
        raise BadRequest("ask for devices as accelerators, not here", where="container.devices")
    if not wanted.image.startswith(REGISTRY):
        told = "it fetches images from registries alone"
        raise BadRequest(told, where="container.image", hint=f"{REGISTRY}HOST/NAME:TAG")
    return wanted.image.removeprefix(REGISTRY)


def without_container(document: JobDocument) -> JobDocument:
    """The same job for inside of its container."""
    wanted = document.container
    if wanted is None:
        return document
    workdir = document.workdir or wanted.workdir or None
    return msgspec.structs.replace(document, container=None, env={**document.env, **wanted.env}, workdir=workdir)
