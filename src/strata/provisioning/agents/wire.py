"""What agents and the controller say to each other, as JSON. Everything that comes from a node is bounded here.

Fields that we do not know are ignored: an agent may be newer than its controller.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

MOST_OUTPUT = 64 * 1024
"""Bytes of a command's output that an agent sends back."""
MOST_WAIT = 25.0
"""Seconds that an exchange is held at most, whatever the agent asks for."""

Name = Annotated[str, Meta(max_length=128)]
Text = Annotated[str, Meta(max_length=2000)]
Ident = Annotated[str, Meta(min_length=1, max_length=64)]
Number = Annotated[float, Meta(ge=-1e15, le=1e15)]


class MemberState(msgspec.Struct, frozen=True, kw_only=True):
    """One image of the personality, as it runs."""

    name: Name
    state: Name = ""
    ready: bool = False
    restarts: Annotated[int, Meta(ge=0, le=10**9)] = 0
    since: Number = 0.0
    reason: Text = ""


class SetState(msgspec.Struct, frozen=True, kw_only=True):
    """The personality that the agent holds, and how it is."""

    name: Name = ""
    digest: Name = ""
    state: Name = "idle"
    reason: Text = ""
    members: Annotated[tuple[MemberState, ...], Meta(max_length=64)] = ()


class AgentInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The agent itself."""

    version: Name = ""
    started: Number = 0.0
    cpu_s: Number = 0.0


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent thinks of its machine."""

    ok: bool = True
    problems: Annotated[tuple[Text, ...], Meta(max_length=64)] = ()


class Drifted(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is not as it was delivered to the node, or was not until the agent put it right."""

    what: Name
    """``file``, ``user``, ``group``, ``package``, ``service``, ``mount`` or ``sysctl``."""
    where: Text
    how: Text = ""
    member: Name = ""
    policy: Name = "report"
    corrected: bool = False
    since: Number = 0.0


class ConfigState(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration that is in force in the personality."""

    revision: Name = ""
    digest: Name = ""
    """Empty: none is."""
    drift: Annotated[tuple[Drifted, ...], Meta(max_length=64)] = ()


class Checks(msgspec.Struct, frozen=True, kw_only=True):
    """How the checks went that the node was told to run."""

    digest: Name = ""
    """Which checks these are."""
    ran: bool = True
    """Whether each of them has run."""
    failing: Annotated[dict[Name, Text], Meta(max_length=64)] = {}
    """Those that fail, and why."""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What a node is, as its agent sees it."""

    uptime: Number = 0.0
    agent: AgentInfo = AgentInfo()
    profile: Name = ""
    set: SetState = SetState()
    loaded: Annotated[tuple[Name, ...], Meta(max_length=64)] = ()
    images: Annotated[tuple[Name, ...], Meta(max_length=256)] = ()
    """Digests of the images (squashfs) that it holds, whole or on demand."""
    damaged: Annotated[dict[Name, Text], Meta(max_length=64)] = {}
    """Digests of those that came to it otherwise than signed, from every controller; and what was wrong."""
    config: ConfigState = ConfigState()
    secrets: Annotated[dict[Name, Name], Meta(max_length=1000)] = {}
    """Secrets that it holds: name → stamp of the version."""
    health: Health = Health()
    checks: Checks = Checks()
    metrics: Annotated[dict[Name, Any], Meta(max_length=64)] = {}


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a command. ``output`` is bytes (base64 on the wire)."""

    id: Ident
    ok: bool
    error: Text = ""
    exit: int | None = None
    output: Annotated[bytes, Meta(max_length=MOST_OUTPUT)] = b""
    truncated: bool = False
    unknown: bool = False
    """The agent does not know how it ended."""


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """One request of an agent: report, heartbeat and call for commands."""

    generation: Annotated[int, Meta(ge=0, le=2**53)]
    boot_id: Ident
    seq: Annotated[int, Meta(ge=0, le=2**53)]
    wait: Annotated[float, Meta(ge=0, le=3600)] = 20.0
    state: msgspec.Raw
    """A ``State``: looked into only where it may have changed."""
    results: Annotated[tuple[Result, ...], Meta(max_length=1024)] = ()
    doing: Annotated[tuple[Ident, ...], Meta(max_length=1024)] = ()
    """Commands that it has and is at. One that it does not name here is sent again now and then."""


class Reply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an agent is answered."""

    acked: tuple[str, ...]
    """Results that it need not send again."""
    commands: tuple[Mapping[str, Any], ...]
    wait: float
    pause: float = 0.0
    """Seconds that it should stay away, unless it has something to tell; 0: it may ask again at once."""


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that nobody knows says what it is."""

    macs: Annotated[tuple[Annotated[str, Meta(pattern=r"^[0-9a-f]{2}(:[0-9a-f]{2}){5}$")], ...], Meta(max_length=64)]
    uuid: Name = ""
    serial: Name = ""
    inventory: Annotated[dict[str, Any], Meta(max_length=64)] = {}


class LogLines(msgspec.Struct, frozen=True, kw_only=True):
    """Lines that a node's containers and kernel wrote: time, source, text."""

    lines: Annotated[tuple[tuple[Number, Name, Annotated[str, Meta(max_length=8192)]], ...], Meta(max_length=1000)]
