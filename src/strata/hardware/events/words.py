"""What a device says, made fit to be kept and compared: clean text, severities, times, and what a message is about."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from datetime import UTC, datetime

from strata.hardware.bmc.protocol import CLOCK_AHEAD, Severity

MESSAGE_MOST = 500
KEY_MOST = 200
RANK: dict[Severity, int] = {"ok": 0, "warning": 1, "critical": 2}

_CLOCK_BEHIND = 86400.0
"""Seconds that a BMC's clock may be behind ours before its times are not believed."""

# Controls, and marks that reorder or hide text: it ends up on terminals and in other people's tools.
_UNFIT = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]+")
_SPACES = re.compile(r"\s+")
_SEVERITIES: dict[str, Severity] = {
    "ok": "ok", "informational": "ok", "info": "ok", "normal": "ok", "": "ok",
    "critical": "critical", "fatal": "critical", "error": "critical",
}  # fmt: skip
# ResourceErrorsDetected and ResourceErrorsCorrected are about one trouble: what is left without these words.
_TURN = re.compile(
    r"(?:Detected|Corrected|Cleared|Exceeded|Critical|Warning|OK|Ok|Failed|Failure|Failing|Restored|Recovered|Resolved"
    r"|Normal|Degraded|Asserted|Deasserted|Error|NoLonger|Lost|Regained|Redundant)+\Z"
)
# The whole machine: of a log entry about it, BMCs do not say what it is about.
_WHOLE = re.compile(r"/redfish/v1/(?:Systems|Chassis|Managers)/[^/]+/?\Z")
_STATE = re.compile(
    r"Power(?:ed|ing)?(?:On|Off|Cycled?|State)|State(?:Changed|Enabled|Disabled)|Reset|Restart|Rebooted|Boot(?:ed|Up)"
    r"|HostState"
)


def plain(value: object, most: int = MESSAGE_MOST) -> str:
    """``value`` as one line of harmless text of at most ``most`` characters."""
    text = value if isinstance(value, str) else "" if value is None else str(value)[: most * 4]
    text = _SPACES.sub(" ", _UNFIT.sub(" ", text[: most * 4])).strip()
    return text if len(text) <= most else text[: most - 1] + "…"


def severity_of(*told: object) -> Severity:
    """The first of ``told`` that says something. A word that we do not know is a warning: nothing is played down."""
    for value in told:
        if isinstance(value, str) and value:
            return _SEVERITIES.get(value.lower()[:20], "warning")
    return "ok"


def moment(told: object, now: float) -> tuple[float, str]:
    """When it happened, and what the BMC said of that if it cannot be right."""
    if not isinstance(told, str) or not told:
        return now, ""
    try:
        when = datetime.fromisoformat(told[:40])
        found = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, OSError):
        return now, plain(told, 40)
    return believable(found, now)


def believable(found: float | None, now: float) -> tuple[float, str]:
    """As ``moment``, for a time in seconds."""
    if found is None:
        return now, ""
    if now - _CLOCK_BEHIND <= found <= now + CLOCK_AHEAD:
        return min(found, now), ""
    return now, f"{found:.0f}"


def family(message_id: str) -> str:
    """``ResourceEvent.1.0.ResourceErrorsCorrected`` as ``ResourceEvent.ResourceErrors``: without version and turn."""
    parts = [part for part in message_id.split(".") if part and not part.isdigit()]
    if not parts:
        return ""
    name = _TURN.sub("", parts[-1]) or parts[-1]
    return ".".join((*parts[:-1], name))


def tells_of_state(message_id: str) -> bool:
    """Whether the message says that power or the system's state changed: worth a look at once."""
    return bool(_STATE.search(message_id))


_POWERED: dict[tuple[str, str], str] = {
    (registry, f"{name}{word}"): word.lower()
    for registry, name in (("ResourceEvent", "ResourcePowered"), ("iLOEvents", "ServerPowered"), ("OpenBMC", "DCPower"))
    for word in ("On", "Off")
}
"""Messages that say how power is now: of the DMTF, of HPE's iLO and of OpenBMC. Others say that it is about to change
(Dell's SYS1000 and SYS1001), or only that it has."""
_CHANGED = "PowerStateChanged"
"""How the names of messages end of which an argument says what power has become (HPE Cray EX)."""


def power_told(message_id: str, args: Sequence[str]) -> str:
    """``on`` or ``off`` where the message says that something's power is so now; else empty."""
    parts = message_id.split(".")
    if (found := _POWERED.get((parts[0], parts[-1]))) is not None:
        return found
    words = {arg.lower() for arg in args} & {"on", "off"}
    return words.pop() if parts[-1].endswith(_CHANGED) and len(words) == 1 else ""


def key_of(message_id: str, message: str, *, sensor: str = "", origin: str = "") -> str:
    """What an event is about. A message and the one that says that it is over have the same key."""
    kind = family(message_id)
    measured = kind.startswith("SensorEvent")
    if sensor and (measured or not kind):
        return sensor_key(sensor)
    if measured and origin:
        return sensor_key(origin.rpartition("/")[2])
    if kind:
        about = "" if _WHOLE.match(origin) else origin.strip("/")
        return bounded("/".join(filter(None, (f"log/{kind}", about or sensor))))
    # No registry: numbers and addresses in the text differ where the trouble is the same.
    return bounded("log/" + re.sub(r"(?:0x)?[0-9][0-9a-fA-F]*", "#", message))


def sensor_key(name: str) -> str:
    """The key of what a sensor measures. ``CPU1 Temp`` is called ``CPU1Temp`` and ``cpu1_temp`` elsewhere."""
    return bounded("sensor/" + (re.sub(r"[\W_]+", "", name).lower() or name))


def bounded(key: str) -> str:
    """A key of bounded length that stays apart from others with the same beginning."""
    key = plain(key, 4 * KEY_MOST)
    if len(key) <= KEY_MOST:
        return key
    return key[: KEY_MOST - 13] + "~" + hashlib.blake2b(key.encode(), digest_size=6).hexdigest()
