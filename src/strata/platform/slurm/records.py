"""A Slurm cluster as its site describes it, and the files that come of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from strata.core.texts import PLAIN, In, Out, SelectText
from strata.schedulers.slurm.conf import AccountingSpec, HostText, NameText, PathText, SettingText, SettingValue

Span = Annotated[int, Meta(ge=1, le=86400 * 365)]


class PartitionSpec(In, frozen=True, kw_only=True):
    """Nodes that jobs are submitted to."""

    name: NameText
    select: SelectText
    """Which nodes: ``@compute``, say."""
    settings: Annotated[Mapping[SettingText, SettingValue], Meta(max_length=500)] = {}
    """What else its line says: ``{Default: YES, MaxTime: 1-00:00:00}``."""


class NodesSpec(In, frozen=True, kw_only=True):
    """What the site says of some nodes; it rules over the inventory, and a later one over an earlier one."""

    select: SelectText
    settings: Annotated[Mapping[SettingText, SettingValue], Meta(max_length=500)]
    """Of their lines: ``{Weight: "10", Feature: hdr}``; ``{CPUs: "4", RealMemory: "8000"}`` where nothing was found."""


class SwitchSpec(In, frozen=True, kw_only=True):
    """A switch that the site declares: it has nodes, or other switches."""

    name: NameText
    select: Annotated[str, Meta(pattern=PLAIN, max_length=100_000)] = ""
    switches: Annotated[tuple[NameText, ...], Meta(max_length=10_000)] = ()


class SavingSpec(In, frozen=True, kw_only=True):
    """Have Slurm switch idle nodes off, and on when a job wants them."""

    after: Span
    """Seconds that a node is idle before it is switched off."""
    off: Span = 300
    """Seconds that this may take."""
    on: Span = 900
    """Seconds from being switched on until slurmd has reported for duty."""
    never: Annotated[str, Meta(pattern=PLAIN, max_length=100_000)] = ""
    """Nodes that stay on."""


class SlurmSpec(In, frozen=True, kw_only=True):
    """A Slurm cluster, as far as the inventory does not know it."""

    controllers: Annotated[tuple[HostText, ...], Meta(min_length=1, max_length=10)]
    """Hosts that slurmctld runs on, the first in charge: ``HOST`` or ``HOST(ADDRESS)``."""
    partitions: Annotated[tuple[PartitionSpec, ...], Meta(max_length=1000)] = ()
    """Their nodes together are the cluster's. None: one, ``compute``, of all nodes with that role."""
    nodes: Annotated[tuple[NodesSpec, ...], Meta(max_length=1000)] = ()
    topology: Literal["flat", "location", "fabric", "declared"] = "flat"
    """The tree of switches: none; chassis and cabinets, by where nodes are; leaf switches, as discovery found them; or
    ``switches``."""
    switches: Annotated[tuple[SwitchSpec, ...], Meta(max_length=10_000)] = ()
    saving: SavingSpec | None = None
    accounting: AccountingSpec | None = None
    programs: PathText = "/usr/bin"
    """The folder that Strata's programs for Slurm are in, where slurmctld runs."""
    settings: Annotated[Mapping[SettingText, SettingValue], Meta(max_length=500)] = {}
    """More of slurm.conf; empty: a setting that Strata makes is left out."""
    cgroup: Annotated[Mapping[SettingText, SettingValue], Meta(max_length=500)] = {}
    """More of cgroup.conf."""


class SlurmCluster(msgspec.Struct, frozen=True, kw_only=True):
    """One of them, as it is stored."""

    spec: SlurmSpec
    author: str
    time: float


class SlurmView(Out, frozen=True, kw_only=True):
    """One of them."""

    name: str
    spec: SlurmSpec
    author: str
    time: float


class SlurmPower(In, frozen=True, kw_only=True):
    """What Slurm's power saving wants of nodes."""

    action: Literal["resume", "suspend", "reboot"]
    nodes: Annotated[str, Meta(pattern=PLAIN, min_length=1, max_length=500_000)]
    """A hostlist, in Slurm's names."""


class SlurmRefused(Out, frozen=True, kw_only=True):
    """Nodes for which it was not done."""

    nodes: str
    reason: str


class SlurmPowered(Out, frozen=True, kw_only=True):
    """What came of it. Nodes are folded, in our names."""

    done: str
    """Wanted now: the rest is the engine's."""
    refused: tuple[SlurmRefused, ...]


class SlurmFiles(Out, frozen=True, kw_only=True):
    """What its configuration comes to now."""

    name: str
    nodes: int
    files: Mapping[str, str]
    """Text by the name of the file."""
    warnings: tuple[str, ...]
    """What is left out, and why."""
