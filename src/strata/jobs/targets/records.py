"""Targets that are connected for jobs alone, as they are kept, asked for and shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from strata.core.texts import Out
from strata.platform.workload.records import Reached
from strata.schedulers.kubernetes.site import KubernetesSite

TargetKind = Literal["slurm", "gridengine", "pbs", "lsf", "htcondor", "kubernetes"]
TokenText = Annotated[str, Meta(pattern=r"^[\u0021-\u007e]*$", max_length=16_384)]


class TargetSpec(Reached, frozen=True, kw_only=True):
    """How something that runs jobs is reached. Its nodes are none of Strata's."""

    kind: TargetKind
    kubernetes: KubernetesSite | None = None
    """A Kubernetes has this instead of commands."""


class TargetRequest(TargetSpec, frozen=True, kw_only=True):
    """The same with what proves who Strata is."""

    token: TokenText = ""
    """A token of a service account of the Kubernetes. It is sealed, and never shown. Empty: the one that is kept."""


class JobTarget(msgspec.Struct, frozen=True, kw_only=True):
    """One of them, as it is stored; the token is sealed for the record's key."""

    spec: TargetSpec
    sealed: bytes = b""
    author: str
    connected: float


class ConnectedTarget(Out, frozen=True, kw_only=True):
    """A target that is connected for jobs alone."""

    name: str
    kind: TargetKind
    on: str | None
    env: Mapping[str, str]
    kubernetes: KubernetesSite | None
    token: bool
    """Whether one is kept."""
    author: str
    connected: float
