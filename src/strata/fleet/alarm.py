"""Trouble that a part of this controller has noticed. Whoever notices tells; the hardware layer makes alerts of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import msgspec

Occurrence = Literal[
    "token-replayed",
    "token-foreign",
    "token-stale",
    "boot-data-refused",
    "generation-refused",
    "rogue-machine",
    "rogue-relay",
    "certificate-superseded",
    "certificate-revoked",
    "image-refused",
    "rollout-failed",
]
"""What happened once, and is not something that is so until somebody says that it is over."""
Condition = Literal[
    "boot-failed",
    "node-unhealthy",
    "image-damaged",
    "minos-refused",
    "controller",
    "look-failed",
    "workload-manager",
    "config-drift",
    "config-refused",
    "secret",
    "health-check",
    "health-repair",
    "rollout",
    "playbook",
    "image-source",
    "disk-full",
]
"""What is so until it is said to be over."""
AlarmKind = Literal[Occurrence, Condition]
OCCURRENCES: frozenset[str] = frozenset(get_args(Occurrence))
AlarmSeverity = Literal["ok", "warning", "critical"]


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """One case of it. Never holds a secret: who asked, from where, for what, and why it was refused."""

    kind: AlarmKind
    message: str
    node: str = ""
    """The node that it is about, where one is known."""
    peer: str = ""
    """Address (or MAC) that asked."""
    about: str = ""
    """What it is about where that is neither: an image, a build of the minimal OS, a controller."""
    severity: AlarmSeverity = "critical"
    """``ok``: the trouble is over."""


AlarmSink = Callable[[Alarm], None]
"""Takes alarms. Never blocks and never raises."""
