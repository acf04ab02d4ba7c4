"""Connected workload managers, as they are kept, asked for and shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from strata.core.texts import PLAIN, In, Out

Kind = Literal["slurm", "gridengine"]
Place = Literal["in", "out", "unknown"]
"""``in``: the workload manager has the node, or a job is on it. ``out``: it is drained and empty, or not the workload
manager's at all."""

# Never an option of ssh, whatever else it may be.
HostText = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@:-]{0,254}$(?!\n)", max_length=255)]
NodesetText = Annotated[str, Meta(pattern=PLAIN, min_length=1, max_length=100_000)]
SettingText = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$(?!\n)", max_length=128)]
SettingValue = Annotated[str, Meta(pattern=PLAIN, min_length=1, max_length=1024)]


PathText = Annotated[str, Meta(pattern=r"^/[^\u0000-\u001f\u007f]{0,1023}$(?!\n)", max_length=1024)]


class Reached(In, frozen=True, kw_only=True):
    """Where a scheduler's commands are run."""

    on: HostText | None = None
    """By ssh (``HOST`` or ``USER@HOST``). None: where the controller runs."""
    env: Annotated[Mapping[SettingText, SettingValue], Meta(max_length=8)] = {}
    """What they find the cluster by: ``SLURM_CONF``; ``SGE_ROOT``, ``SGE_CELL``; ``PBS_CONF_FILE``, ``LSF_ENVDIR``,
    ``CONDOR_CONFIG``."""


class WorkloadSpec(Reached, frozen=True, kw_only=True):
    """How a workload manager is reached."""

    kind: Kind
    names: Annotated[Mapping[NodesetText, NodesetText], Meta(max_length=1000)] = {}
    """Nodes that it calls otherwise: our names → its names, as nodesets of the same size."""
    strata: PathText | None = None
    """Strata's command on its nodes, which starts containers of jobs. None: it is looked for in ``PATH``."""
    images: PathText | None = None
    """A folder of unpacked images that its nodes and the controllers see at the same path. Where there is one, its
    nodes need nothing of Strata's to run jobs in containers but ``runner``. None: there is none."""
    runner: PathText = "/usr/lib/strata/strata-run"
    """The runner on its nodes, for images of that folder."""


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """A connected workload manager, as it is stored."""

    spec: WorkloadSpec
    mark: str
    """Every drain that is ours bears it, so that nobody else's is taken for it: another Strata's neither."""
    author: str
    connected: float


class WorkloadView(Out, frozen=True, kw_only=True):
    """One of them, and how it is."""

    name: str
    kind: Kind
    on: str | None
    env: Mapping[str, str]
    names: Mapping[str, str]
    strata: str | None
    images: str | None
    runner: str
    author: str
    connected: float
    answers: bool
    """Whether it did when it was last looked at."""
    trouble: str
    """What it said instead of an answer."""
    seen: float | None
    """When it last answered; None: not yet."""
    nodes: int
    """Nodes of ours that it knows."""
    drained: int
    """Of those, how many it gives to nobody."""
    busy: int
    """Of those, how many have a job."""
    strangers: str
    """Nodes of its that Strata does not know, folded."""
    missing: str
    """Compute nodes of ours that it does not know, folded: it is held that none of its jobs is there."""


class WorkloadNode(Out, frozen=True, kw_only=True):
    """A node as its workload manager sees it."""

    node: str
    called: str
    """What the workload manager calls it."""
    workload: Place
    state: str
    jobs: tuple[str, ...]
    reason: str
    by: str
    ours: bool
    """Whether Strata drained it, and may resume it."""
