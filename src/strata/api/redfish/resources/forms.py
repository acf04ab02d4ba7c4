"""How what we know is written in Redfish: times, texts, health, numbers. What is not known is null."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from math import isfinite
from typing import Any

from strata.api.redfish.protocol.route import Json
from strata.api.redfish.protocol.schemas import resource
from strata.hardware.bmc.protocol import Severity
from strata.hardware.inventory.records import ComponentView

HEALTH: dict[str, str] = {"ok": "OK", "warning": "Warning", "critical": "Critical"}
_WORSE: dict[str | None, int] = {None: 0, "ok": 1, "warning": 2, "critical": 3}
_CONTROL = re.compile(r"[\u0000-\u001f\u007f-\u009f\u2028\u2029]+")
_UUID = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\Z")
_MAC = re.compile(r"([0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}\Z")


def plain(text: str, limit: int = 256) -> str | None:
    """Text that a device chose, bounded and on one line; null: there is none."""
    return _CONTROL.sub(" ", text[: limit * 2]).strip()[:limit] or None


def uuid(text: str) -> str | None:
    """A UUID, if it is one."""
    return text.lower() if _UUID.match(text) else None


def mac(text: str) -> str | None:
    """A MAC address, if it is one."""
    return text.upper() if _MAC.match(text) else None


def when(seconds: float) -> str:
    """Unix seconds as Redfish writes time."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def worst(given: Iterable[Severity | None]) -> Severity | None:
    """The worst of them; None: nothing is known."""
    return max(given, key=_WORSE.__getitem__, default=None)


def status(state: str | None, health: Severity | None = None, *, rollup: Severity | None = None) -> Json:
    """A Status. ``rollup``: the worst of the parts too, where that is another thing than ``health``."""
    found: Json = {"State": state, "Health": HEALTH.get(health or "")}
    if rollup is not None:
        found["HealthRollup"] = HEALTH[rollup]
    return found


ENABLED = {"State": "Enabled", "Health": "OK"}
"""Of a service that is there."""


def service(path: str, name: str, *, enabled: bool = True, **more: Any) -> Json:
    """The resource that is a service: its kind is the last part of its path."""
    kind = path.rpartition("/")[2]
    return resource(path, kind, name, ServiceEnabled=enabled, Status=dict(ENABLED), **more)


def whole(part: ComponentView, fact: str) -> int | None:
    """A fact as a whole number, if it is a number."""
    value = number(part, fact)
    return None if value is None else round(value)


def number(part: ComponentView, fact: str) -> float | None:
    """A fact, if it is a number."""
    value = part.facts.get(fact)
    return value if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) else None


def word(part: ComponentView, fact: str, allowed: Iterable[str]) -> str | None:
    """A fact that must be one of these words, whatever its case."""
    value = str(part.facts.get(fact, "")).lower()
    return next((known for known in allowed if known.lower() == value), None)


def label(part: ComponentView, path: str) -> str:
    """What to call a part: its name, or else its id."""
    return plain(part.name) or path.rpartition("/")[2]


def maker(part: ComponentView) -> Json:
    """Who made it, and which one it is."""
    return {
        "Manufacturer": plain(part.vendor),
        "Model": plain(part.model),
        "PartNumber": plain(part.part),
        "SerialNumber": plain(part.serial),
    }


def slot(part: ComponentView) -> Json:
    """Where it is in the machine, for those who go there."""
    label = plain(part.slot)
    return {"Location": {"PartLocation": {"ServiceLabel": label}}} if label else {}


def present(part: ComponentView) -> Json:
    """What every part that was found has: its status, who made it, where it is."""
    return {"Status": status("Enabled", part.health), **maker(part), **slot(part)}


def known(given: Json) -> Json:
    """Without what is null: for properties that may be absent and may not be null."""
    return {key: value for key, value in given.items() if value is not None}
