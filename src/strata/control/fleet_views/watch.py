"""What a watch of the fleet sends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from strata.control.texts import Out

EventKind = Literal["transition", "desire", "hold", "freeze", "node", "job", "compacted"]


class WatchEvent(Out, frozen=True, kw_only=True):
    """One change. All events of one revision come together; resume after ``revision``."""

    revision: int
    event: EventKind
    data: Mapping[str, Any]
