"""Configuration: what a commit comes to, what would change, what was applied, and which branch is followed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import UNSET, Meta

from strata.core.texts import PLAIN, GroupNameText, In, NoteText, Out
from strata.fleet.budgets.records import BudgetEntry
from strata.fleet.desires.records import DocumentSpec
from strata.fleet.nodes.records import NodePatch, NodeStatement
from strata.fleet.plans.records import PlanClass
from strata.platform.cloudinit.records import CloudInit
from strata.platform.delivery.records import Overlay, OverlaysIn
from strata.platform.flows.records import FlowEntry, SystemEntry
from strata.platform.health.records import CheckEntry, HealthPolicyEntry
from strata.platform.playbooks.records import PlaybookEntry
from strata.platform.rollouts.records import RolloutPolicy, RolloutSpec
from strata.platform.secrets.records import SecretEntry
from strata.platform.sources.records import SourceEntry
from strata.power.policies.records import PolicyEntry
from strata.provisioning.boot.records import ProfileEntry
from strata.provisioning.bootnets.records import NetworkEntry
from strata.provisioning.personalities.records import Personality

MOST_NODES = 250_000
MEMBERS = Annotated[str, Meta(pattern=PLAIN, max_length=1_000_000)]
SYSTEM = r"^([A-Za-z0-9][A-Za-z0-9_.-]{0,62})?$(?!\n)"
COMMIT = r"^([0-9a-f]{40}|[0-9a-f]{64})?$(?!\n)"
BRANCH = r"^[A-Za-z0-9][A-Za-z0-9_./+-]{0,199}$(?!\n)"
CommitText = Annotated[str, Meta(pattern=COMMIT, max_length=64)]
SystemText = Annotated[str, Meta(pattern=SYSTEM, max_length=63)]
BranchText = Annotated[str, Meta(pattern=BRANCH, max_length=200)]


class NodeEntry(NodeStatement, frozen=True, kw_only=True):
    """What the configuration says of one node. What it does not say is not its business."""

    @property
    def said(self) -> tuple[str, ...]:
        """The fields that it says."""
        return tuple(name for name in NODE_FIELDS if getattr(self, name) is not UNSET)


NODE_FIELDS = tuple(NodePatch.__struct_fields__)


class GroupEntry(In, frozen=True, kw_only=True):
    """A group: its members are a nodeset."""

    name: GroupNameText
    members: MEMBERS = ""
    description: NoteText = ""


Named = (
    CloudInit
    | SecretEntry
    | FlowEntry
    | SystemEntry
    | CheckEntry
    | HealthPolicyEntry
    | ProfileEntry
    | PolicyEntry
    | BudgetEntry
    | RolloutPolicy
    | PlaybookEntry
    | SourceEntry
    | NetworkEntry
)
"""What the configuration says for a room to keep."""
KeptKind = Literal[
    "cloud-init",
    "secret",
    "flow",
    "system",
    "health-check",
    "health-policy",
    "boot-profile",
    "power-policy",
    "budget",
    "rollout-policy",
    "playbook",
    "image",
    "network",
]


class Configuration(In, frozen=True, kw_only=True):
    """What one state of a repository comes to, for one system: all layers merged."""

    commit: CommitText = ""
    """Empty: files that are in no commit."""
    system: SystemText = ""
    nodes: Annotated[tuple[NodeEntry, ...], Meta(max_length=MOST_NODES)] = ()
    groups: Annotated[tuple[GroupEntry, ...], Meta(max_length=10_000)] = ()
    desires: Annotated[tuple[DocumentSpec, ...], Meta(max_length=10_000)] = ()
    personalities: Annotated[tuple[Personality, ...], Meta(max_length=1000)] = ()
    overlays: OverlaysIn = ()
    cloud_inits: Annotated[tuple[CloudInit, ...], Meta(max_length=1000)] = ()
    secrets: Annotated[tuple[SecretEntry, ...], Meta(max_length=1000)] = ()
    """Encrypted: what is in them is for the service alone."""
    flows: Annotated[tuple[FlowEntry, ...], Meta(max_length=1000)] = ()
    systems: Annotated[tuple[SystemEntry, ...], Meta(max_length=1)] = ()
    health_checks: Annotated[tuple[CheckEntry, ...], Meta(max_length=1000)] = ()
    health_policies: Annotated[tuple[HealthPolicyEntry, ...], Meta(max_length=1)] = ()
    boot_profiles: Annotated[tuple[ProfileEntry, ...], Meta(max_length=1000)] = ()
    power_policies: Annotated[tuple[PolicyEntry, ...], Meta(max_length=100)] = ()
    budgets: Annotated[tuple[BudgetEntry, ...], Meta(max_length=1000)] = ()
    rollout_policies: Annotated[tuple[RolloutPolicy, ...], Meta(max_length=1)] = ()
    playbooks: Annotated[tuple[PlaybookEntry, ...], Meta(max_length=1000)] = ()
    images: Annotated[tuple[SourceEntry, ...], Meta(max_length=200)] = ()
    networks: Annotated[tuple[NetworkEntry, ...], Meta(max_length=4096)] = ()
    places: Annotated[Mapping[str, Annotated[str, Meta(max_length=4096)]], Meta(max_length=30_000)] = {}
    """``group/gpu`` → where it is written, for what is said of it later."""

    @property
    def kept(self) -> Mapping[KeptKind, Mapping[str, Named]]:
        """What rooms of their own keep: kind → name → what is said."""
        return {kind: {one.name: one for one in getattr(self, field)} for kind, field in FIELDS.items()}

    def place(self, kind: str, name: str) -> str:
        """Where something is written, as far as it is known."""
        return self.places.get(f"{kind}/{name}", f"{kind} {name}")


def _many(kind: str) -> str:
    """``boot_profiles`` of ``boot-profile``, ``power_policies`` of ``power-policy``."""
    one = kind.replace("-", "_")
    return f"{one[:-1]}ies" if one.endswith("y") else f"{one}s"


FIELDS: Mapping[KeptKind, str] = {kind: _many(kind) for kind in get_args(KeptKind)}
"""Kinds that rooms of their own keep → the field of a configuration."""


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What was last applied, and what is there because of it: the only things that a later commit removes."""

    commit: str = ""
    system: str = ""
    author: str = ""
    time: float = 0.0
    nodes: Mapping[str, str] = {}
    """Fields that were said (``location,nid``) → the nodes of which they were, folded."""
    groups: tuple[str, ...] = ()
    desires: tuple[str, ...] = ()
    personalities: tuple[str, ...] = ()
    overlays: str = ""
    """The revision of its overlays; empty: it has none."""
    kept: Mapping[str, tuple[str, ...]] = {}
    """Kind → names, of what rooms of their own keep."""


Kind = Literal["node", "group", "desire", "personality", "overlay"] | KeptKind
Action = Literal["created", "changed", "removed"]


class ConfigChange(Out, frozen=True, kw_only=True):
    """One thing that would change, or did; nodes that change in the same way are one."""

    kind: Kind
    name: str
    """Of nodes: a nodeset."""
    action: Action
    count: int = 1
    detail: str = ""
    place: str = ""


class CommitRollout(Out, frozen=True, kw_only=True):
    """A part of a commit that reaches its nodes in waves."""

    name: str
    nodes: int
    nodeset: str
    set: Mapping[str, tuple[str, ...]]
    waves: tuple[int, ...]
    """How many nodes each has."""


class ConfigPlan(Out, frozen=True, kw_only=True):
    """What applying a configuration changes in Strata, and what Strata would then do to nodes."""

    commit: str
    system: str
    changes: tuple[ConfigChange, ...]
    unchanged: int
    """Nodes, groups, desires and personalities that are already as the configuration says."""
    nodes: int = 0
    """How many nodes would be acted on."""
    classes: tuple[PlanClass, ...] = ()
    """Nodes with the same way to go."""
    totals: Mapping[str, int] = {}
    """Mutation → number of nodes."""
    disrupts: str = ""
    """The nodes (folded) of which something is taken away on the way: power, the running image, jobs."""
    disrupted: int = 0
    seconds: float = 0.0
    """How long the longest way should take one node, without the waiting that budgets and running jobs cause."""
    all_seconds: float = 0.0
    """How long it should take all of them: as many at a time as ``places`` says. Running jobs come on top."""
    places: int | None = None
    """How many nodes may be out of service at once; none: no budget says."""
    removes: int = 0
    """Nodes that would be forgotten."""
    refused: str = ""
    """The brake that stops an apply without ``remove_most``; empty: none does."""
    rollouts: tuple[CommitRollout, ...] = ()
    """It would go in waves: nodes first, and the rest when all have it. Empty: at once."""
    rollout_refused: str = ""
    """Why it cannot go in waves, though it should."""
    warnings: tuple[str, ...] = ()
    """What somebody may not have meant: documents that are about no node."""


Way = Literal["policy", "rollout", "at-once"]
"""How a commit reaches nodes: as the repository's ``rollout-policy`` says; in waves; or all at once."""


class PlanOrder(In, frozen=True, kw_only=True):
    """Say what the configuration would change, and how that would reach nodes."""

    configuration: Configuration
    way: Way = "policy"


class ApplyOrder(In, frozen=True, kw_only=True):
    """Make the service be what the configuration says. ``remove_most``: also if that removes much of it."""

    configuration: Configuration
    remove_most: bool = False
    way: Way = "policy"


class RollingCommit(msgspec.Struct, frozen=True, kw_only=True):
    """A commit that reaches its nodes in waves, as it is kept. It is applied when they are through."""

    commit: str
    system: str
    author: str
    time: float
    remove_most: bool
    rollouts: Mapping[str, RolloutSpec]
    parts: int
    """Into how many records its configuration is divided."""
    failed: str = ""
    """Why it was not applied: its rollouts went back."""


class ConfigurationPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a configuration that waits, compressed."""

    data: bytes


class RollingView(Out, frozen=True, kw_only=True):
    """A commit on its way."""

    commit: str
    rollouts: tuple[str, ...]
    waits_for: str
    failed: str


class ConfigDone(Out, frozen=True, kw_only=True):
    """What an apply changed. Applied a second time, it changes nothing."""

    commit: str
    system: str
    changes: tuple[ConfigChange, ...]
    unchanged: int
    revision: int
    rollouts: tuple[str, ...] = ()
    """The rollouts that have begun for it: the changes are applied when they are through. Empty: they are applied."""


Policy = Literal["manual", "window", "auto"]


class WatchSpec(In, frozen=True, kw_only=True):
    """A branch to follow, and when what is new on it is applied.

    `manual`: when somebody approves it. `window`: within the maintenance window. `auto`: at once."""

    url: Annotated[str, Meta(pattern=PLAIN, min_length=1, max_length=1024)]
    branch: BranchText = "main"
    system: SystemText = ""
    policy: Policy = "manual"
    window: Annotated[str, Meta(pattern=PLAIN, max_length=64)] = ""
    every: Annotated[float, Meta(ge=5, le=86_400)] = 60.0
    """Seconds between two looks."""


class Followed(msgspec.Struct, frozen=True, kw_only=True):
    """The branch that is followed, as it is kept."""

    spec: WatchSpec
    paused: str = ""
    """Why nothing of it is applied; empty: it is."""
    approved: str = ""
    """The commit that somebody approved."""
    remove_most: bool = False
    """Whether the approval was for removing much, too."""


class WatchView(Out, frozen=True, kw_only=True):
    """A branch that is followed."""

    url: str
    branch: str
    system: str
    policy: Policy
    window: str
    every: float
    paused: str


class HeldDocuments(Out, frozen=True, kw_only=True):
    """Documents of the repository as they are in force: those that no list shows whole."""

    overlays: tuple[Overlay, ...] = ()
    revision: str = ""
    """Of the overlays: what a desire calls ``current``."""
    secrets: tuple[SecretEntry, ...] = ()
    """Encrypted, as they came."""
    images: tuple[SourceEntry, ...] = ()


class ConfigStatus(Out, frozen=True, kw_only=True):
    """What was applied, and what waits."""

    commit: str
    system: str
    author: str
    time: float | None
    nodes: int
    watch: WatchView | None = None
    seen: str = ""
    """The newest commit of the branch."""
    looked: float | None = None
    """When the branch was last looked at."""
    pending: str = ""
    """A commit that is sound and not applied."""
    waits_for: str = ""
    """What it waits for."""
    error: str = ""
    """Why the newest commit cannot be applied, or the branch not be read."""
    rolling: RollingView | None = None
    """A commit that reaches its nodes in waves, or did not."""


class Approval(In, frozen=True, kw_only=True):
    """Which commit may be applied. ``remove_most``: also if it removes much."""

    commit: Annotated[str, Meta(pattern=r"^[0-9a-f]{7,64}$(?!\n)")]
    remove_most: bool = False


class Pause(In, frozen=True, kw_only=True):
    """Why nothing more of the branch is applied; empty: it is again."""

    reason: NoteText = ""


class Origin(Out, frozen=True, kw_only=True):
    """Where one value of a node comes from, and what it overrides."""

    field: str
    value: str
    layer: str
    place: str
    overrides: tuple[str, ...] = ()
    """Places that said something else of it, the one that ruled before last."""
