"""Health checks, the policy for nodes that fail them, and what is shown of both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from strata.core.errors import BadRequest
from strata.core.texts import NAME, In, NoteText, Out, SelectText
from strata.platform.scopes import check_scope

Kind = Literal["script", "filesystem", "memory", "accelerators", "network", "time", "machine"]
Severity = Literal["warning", "critical"]
Repair = Literal["restart", "reboot", "power-cycle"]
Word = Literal["ok", "failing", "repaired", "unknown"]

CheckName = Annotated[str, Meta(pattern=NAME, max_length=63)]
PathText = Annotated[str, Meta(pattern=r"^/[^\u0000-\u001f\u007f]{0,1023}$(?!\n)", max_length=1024)]
WordText = Annotated[str, Meta(pattern=r"^[^\u0000]*$", max_length=4096)]
WhereText = Annotated[str, Meta(pattern=r"^([a-z0-9][a-z0-9_.-]{0,62})?$(?!\n)", max_length=63)]
MOST_CHECKS = 64

_MIB = 2**20
_ANY = ("kind", "select", "severity", "every", "timeout", "tries", "passes", "description")
FIELDS: Mapping[str, tuple[str, ...]] = {
    "script": ("script", "command", "memory", "where"),
    "filesystem": ("path", "mounted", "writable", "least_free", "where"),
    "memory": ("least", "most_corrected"),
    "accelerators": ("count",),
    "network": ("interface", "least_mbit"),
    "time": ("most",),
    "machine": (),
}
"""What each kind of check takes besides what all take."""


class CheckSpec(In, frozen=True, kw_only=True, omit_defaults=True):
    """What the agents of the selected nodes look at, and how often."""

    kind: Kind
    """``script``: a command of the site; it passes with exit status 0, and else its last line says why.
    ``filesystem``: mounted, writable, not full. ``memory``: as much as expected, no ECC errors. ``accelerators``: all
    there, with all their lanes, without memory errors, not slowed down. ``network``: the link is up and as fast as
    expected. ``time``: the clock is right.
    ``machine``: whatever the agent finds wrong by itself."""
    select: SelectText = "*"
    severity: Severity = "critical"
    """``critical``: a node that fails it is not well. ``warning``: it is an alert and nothing more."""
    every: Annotated[float, Meta(ge=5, le=86_400)] = 60.0
    timeout: Annotated[float, Meta(ge=1, le=600)] = 30.0
    tries: Annotated[int, Meta(ge=1, le=20)] = 2
    """Failures in a row until it fails."""
    passes: Annotated[int, Meta(ge=1, le=20)] = 2
    """Passes in a row until a check that failed passes."""
    description: NoteText = ""
    script: Annotated[str, Meta(pattern=r"^[^\u0000]*$", max_length=65_536)] = ""
    """For the shell, ``/bin/sh -c``."""
    command: Annotated[tuple[WordText, ...], Meta(max_length=64)] = ()
    """Or a program and its arguments, which is there already."""
    memory: Annotated[int, Meta(ge=16 * _MIB, le=2**40)] = 256 * _MIB
    """Bytes of address space that it may have."""
    where: WhereText = ""
    """Empty: the personality's first member. ``minos``, or a member's name."""
    path: PathText = "/"
    mounted: bool = True
    writable: bool = True
    least_free: Annotated[float, Meta(ge=0, le=100)] = 2.0
    """Percent, of bytes and of files."""
    least: Annotated[int, Meta(ge=0, le=2**60)] = 0
    """Bytes of memory."""
    most_corrected: Annotated[int, Meta(ge=0, le=10**9)] = 1000
    count: Annotated[int, Meta(ge=0, le=1024)] = 0
    interface: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.@-]{0,31}$(?!\n)", max_length=31)] = ""
    """Empty: every one that is a device."""
    least_mbit: Annotated[int, Meta(ge=0, le=10_000_000)] = 0
    most: Annotated[float, Meta(gt=0, le=86_400)] = 1.0
    """Seconds off the controller's clock; what is told of it is exact to a second."""

    def wire(self, name: str) -> dict[str, Any]:
        """As an agent is told of it."""
        own = ("kind", "every", "timeout", "tries", "passes", *FIELDS[self.kind])
        return {"name": name, **{field: getattr(self, field) for field in own}}


class CheckEntry(CheckSpec, frozen=True, kw_only=True, omit_defaults=True):
    """The same, with its name: as the repository says it."""

    name: CheckName


def check(spec: CheckSpec, where: str) -> CheckSpec:
    """The same, if it makes sense; else ``BadRequest``."""
    takes = {*_ANY, *FIELDS[spec.kind]}
    said = {field.name for field in msgspec.structs.fields(CheckSpec) if getattr(spec, field.name) != field.default}
    if wrong := sorted(said - takes):
        own = ", ".join(FIELDS[spec.kind]) or "nothing of its own"
        raise BadRequest(f"a {spec.kind} check has no {wrong[0]}", where=where, hint=f"it takes {own}")
    if spec.kind == "script" and bool(spec.script) == bool(spec.command):
        raise BadRequest("a script check has either a script or a command", where=where)
    if spec.timeout > spec.every:
        raise BadRequest(f"timeout ({spec.timeout:g} s) is longer than every ({spec.every:g} s)", where=where)
    check_scope(spec.select, where)
    return spec


class HealthCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A check, as it is stored."""

    spec: CheckSpec
    author: str


class CheckView(Out, frozen=True, kw_only=True):
    """A check, and how it goes."""

    name: str
    spec: CheckSpec
    author: str
    revision: int
    nodes: int
    """Nodes that it is for."""
    failing: int
    """Nodes that fail it."""
    trusted: bool
    """False: it fails on so many nodes that no further one counts."""


class Failing(Out, frozen=True, kw_only=True):
    """A check that a node fails."""

    check: str
    severity: Severity
    reason: str
    since: float
    counts: bool
    """Whether the node is held to be failing for it."""


class NodeHealth(Out, frozen=True, kw_only=True):
    """How a node is."""

    node: str
    health: Word
    why: str
    """Where there is more to say than what fails."""
    failing: tuple[Failing, ...]
    repairs: tuple[str, ...]
    """What was done about it within a day, the last one last."""


class CheckDetail(CheckView, frozen=True, kw_only=True):
    """A check, and who fails it."""

    items: tuple[NodeHealth, ...]


class CheckRun(In, frozen=True, kw_only=True):
    """Run the checks of these nodes now."""

    select: SelectText


class Checked(Out, frozen=True, kw_only=True):
    """What came of running the checks of a node now: by check, what is wrong (empty: nothing; null: it could not be
    told). ``error``: why they were not run."""

    node: str
    results: Mapping[str, str | None]
    error: str = ""


class HealthPolicy(In, frozen=True, kw_only=True):
    """What is done about nodes that are wanted to be well and are not."""

    repairs: Annotated[tuple[Repair, ...], Meta(max_length=10)] = ("restart", "power-cycle")
    """What is tried, one after the other within a day, the last one again and again. Nothing: a person repairs."""
    per_day: Annotated[int, Meta(ge=0, le=100)] = 3
    """Most repairs of one node within a day."""
    most: Annotated[float, Meta(ge=0, le=100)] = 10.0
    """Percent of the nodes that run a check: if more fail it, it is the check that is not trusted. One node may always
    fail."""
    steady: Annotated[float, Meta(ge=10, le=3000)] = 120.0
    """Seconds for which a node that was repaired must be well before it counts as well."""


class HealthPolicyEntry(HealthPolicy, frozen=True, kw_only=True):
    """The same, as the repository says it; there is one."""

    name: Literal["policy"] = "policy"


class Repaired(msgspec.Struct, frozen=True, kw_only=True):
    """That something was done about some nodes. Written before it was."""

    at: float
    action: Repair
    nodes: str
    """Folded."""
