"""Values as BMCs give them, and what of them can be believed: bounded, cleaned, or nothing."""

from __future__ import annotations

import re
import sys

from strata.hardware.bmc.protocol import Severity
from strata.hardware.bmc.redfish.endpoint import Json, below
from strata.hardware.bmc.redfish.sensors import SEVERITIES
from strata.hardware.bmc.redfish.sensors import number as finite

LONGEST = 128
"""Characters of a text that is kept."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]+")
_MAC = re.compile(r"[0-9a-f]{12}\Z")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_JUNK = re.compile(
    r"(to be filled|o\.?e\.?m\.?$|default string|not specified|not available|not applicable|system serial"
    r"|chassis serial|base board serial|serial number|no asset|unknown|none|null|n/?a\.?$|empty|invalid|undefined|xxx"
    r"|0?123456789)",
    re.IGNORECASE,
)
_JUNK_UUIDS = ("03000200-0400-0500-0006-000700080009", "12345678-1234-5678-90ab-cddeefaabbcc")  # AMI; Supermicro


def text(value: object, most: int = LONGEST) -> str:
    """A text on one line, cut; numbers are taken as texts, everything else is none."""
    if isinstance(value, str):
        found = _CONTROL.sub(" ", value[: 4 * most])
        if not found.isprintable():
            found = "".join(c if c.isprintable() else "?" for c in found)
        # Most values occur in thousands of machines: one copy of each is enough.
        return sys.intern(found.strip()[:most])
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)[:most]
    return ""


def first(body: Json, *names: str) -> str:
    """The first of these properties that holds a text."""
    return next((found for name in names if (found := text(body.get(name)))), "")


def number(value: object) -> float | None:
    """A number that can be true, also where it is written as a text."""
    found = finite(value)
    return found if found is not None and 0 <= found < 1e18 else None


def fact(value: object) -> str | int | float | bool | None:
    """A value for ``Component.facts``; None: nothing worth keeping."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        found = number(value)
        return None if found is None else int(found) if found == int(found) else found
    return text(value) or None


def mac(value: object) -> str:
    """A MAC address in lower case with colons; empty if it is none, or no real one."""
    plain = re.sub(r"[-:.\s]", "", value[:40]).lower() if isinstance(value, str) else ""
    if not _MAC.match(plain) or plain in ("0" * 12, "f" * 12):
        return ""
    return ":".join(plain[i : i + 2] for i in range(0, 12, 2))


def serial(value: object) -> str:
    """A serial number; empty where it is one of the texts that makers leave in by mistake."""
    found = text(value)
    return "" if _JUNK.match(found) or len(set(found)) < 2 else found


def uuid(value: object) -> str:
    """A UUID in lower case; empty if it is none, or one that every board of a kind has."""
    found = text(value).lower()
    if not _UUID.match(found) or found in _JUNK_UUIDS or len(set(found.replace("-", ""))) < 2:
        return ""
    return found


def health(body: Json) -> Severity | None:
    """What the BMC thinks of the part."""
    status = below(body, "Status")
    return SEVERITIES.get(text(status.get("Health")) or text(status.get("HealthRollup")))


def absent(body: Json) -> bool:
    """Whether this is an empty place, and no part."""
    return text(below(body, "Status").get("State")) == "Absent"


def type_of(body: Json) -> str:
    """``#Processor.v1_20_0.Processor`` → ``Processor``."""
    return text(body.get("@odata.type")).lstrip("#").split(".")[0]
