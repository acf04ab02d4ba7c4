"""Somebody asked for what is not theirs. Whoever notices tells; what becomes of it (an alert) is wired elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

AlarmKind = Literal[
    "token-replayed",
    "token-foreign",
    "token-stale",
    "boot-data-refused",
    "generation-refused",
    "rogue-machine",
    "rogue-relay",
    "certificate-superseded",
    "certificate-revoked",
    "boot-failed",
    "image-refused",
    "image-damaged",
    "minos-refused",
]


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """One such case. Never holds a secret: who asked, from where, for what, and why it was refused."""

    kind: AlarmKind
    message: str
    node: str = ""
    """The node that it is about, where one is known."""
    peer: str = ""
    """Address (or MAC) that asked."""
    about: str = ""
    """What it is about where that is neither: an image, a build of the minimal OS."""


AlarmSink = Callable[[Alarm], None]
"""Takes alarms. Never blocks and never raises."""
