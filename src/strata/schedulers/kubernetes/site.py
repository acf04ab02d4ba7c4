"""How a site's Kubernetes is reached, and what stands there for what jobs ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from strata.core.texts import In

LABEL = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
"""The value of a label."""
NAME = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
"""The name of a namespace."""

ClaimText = Annotated[str, Meta(pattern=rf"^{NAME}$(?!\n)", max_length=63)]
PlaceText = Annotated[str, Meta(pattern=r"^/[A-Za-z0-9_./-]{0,254}$(?!\n)", min_length=2, max_length=255)]
ResourceText = Annotated[str, Meta(pattern=r"^[a-z0-9.-]{1,200}/[A-Za-z0-9_.-]{1,63}$(?!\n)", max_length=255)]
KeyText = Annotated[str, Meta(pattern=r"^([a-z0-9.-]{1,200}/)?[A-Za-z0-9_.-]{1,63}$(?!\n)", max_length=255)]
LabelText = Annotated[str, Meta(pattern=rf"^{LABEL}$(?!\n)", max_length=63)]
TypeText = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{0,64}$(?!\n)", max_length=64)]
ImageText = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_./:@-]{0,512}$(?!\n)", max_length=512)]
RuleText = Annotated[str, Meta(pattern=r"^[a-z0-9{}-]{1,128}$(?!\n)", max_length=128)]
ServerText = Annotated[
    str, Meta(pattern=r"^https://[A-Za-z0-9_.:\[\]-]{1,255}(/[A-Za-z0-9_./-]{0,255})?$(?!\n)", max_length=520)
]
PemText = Annotated[str, Meta(pattern=r"^[\u0009-\u007e]*$", max_length=100_000)]


class Accelerator(In, frozen=True, kw_only=True):
    """What Kubernetes calls a kind of accelerator."""

    resource: ResourceText
    """``nvidia.com/gpu``, as the device plugin announces it."""
    labels: Annotated[Mapping[KeyText, LabelText], Meta(max_length=8)] = {}
    """Labels of the nodes that have this type."""


class KubernetesSite(In, frozen=True, kw_only=True):
    """A Kubernetes that runs jobs."""

    server: ServerText
    """Its API: ``https://HOST:6443``. Its certificate is always checked."""
    ca: PemText = ""
    """Whose certificate it has, as PEM. Empty: one of those that this machine trusts."""
    namespace: RuleText = "jobs"
    """Where jobs go: ``{account}`` and ``{project}`` in it stand for those of the job. A namespace that is not there is
    not made."""
    image: ImageText = ""
    """What a job runs in that brings no image. Empty: each has to bring one."""
    claims: Annotated[Mapping[PlaceText, ClaimText], Meta(max_length=16)] = {}
    """Folders that jobs see → PersistentVolumeClaims in their namespace."""
    accelerators: Annotated[Mapping[TypeText, Accelerator], Meta(max_length=64)] = msgspec.field(
        default_factory=lambda: {"": Accelerator(resource="nvidia.com/gpu")}
    )
    """Type of accelerators → what they are called there; the empty type: any."""
    keep: Annotated[int, Meta(ge=60, le=366 * 86_400)] = 86_400
    """Seconds for which an ended job and its log stay there."""
    impersonate: bool = False
    """Whether jobs are sent and ended in the name of their account (``Impersonate-User``), so that what Kubernetes
    allows that user holds. The token needs the right to."""
