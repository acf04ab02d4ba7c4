"""BMCs that show up in DHCP: whom it saw, and lease files of other servers. No I/O.

Serves no DHCP itself: whoever does calls ``Sightings.seen``.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from ipaddress import ip_address

import msgspec

from strata.core.errors import BadRequest
from strata.hardware.discovery.crawl_values import mac as mac_of
from strata.hardware.discovery.crawl_values import text as clean

CLASSES = (
    ("idrac", "Dell iDRAC"),
    ("cpqrib", "HPE iLO"),
    ("ilo", "HPE iLO"),
    ("xcc", "Lenovo XCC"),
    ("imm", "Lenovo IMM"),
    ("cisco-cimc", "Cisco CIMC"),
    ("megarac", "AMI MegaRAC"),
    ("ami", "AMI MegaRAC"),
    ("openbmc", "OpenBMC"),
    ("aspeed", "ASPEED"),
    ("bmc", "a BMC"),
)
"""How the vendor classes of BMCs begin, and whose they are."""


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody whom DHCP saw."""

    mac: str
    ip: str = ""
    vendor_class: str = ""
    hostname: str = ""

    @property
    def is_bmc(self) -> bool:
        """Whether it says that it is one. (Those that do not say so are scanned for.)"""
        found = self.vendor_class.lower()
        return any(found.startswith(begin) for begin, _ in CLASSES) or self.hostname.lower().startswith(
            ("bmc", "idrac", "ilo", "xcc")
        )


class Sightings:
    """The BMCs that DHCP saw lately; Bounded: the oldest go first."""

    def __init__(self, *, most: int = 131_072) -> None:
        self._most = most
        self._seen: dict[str, Sighting] = {}

    def seen(self, mac: str, ip: str, vendor_class: str, hostname: str = "") -> None:
        """DHCP gave ``ip`` to ``mac``. Who does not look like a BMC is not kept."""
        sighting = Sighting(mac=mac_of(mac), ip=ip, vendor_class=clean(vendor_class), hostname=clean(hostname))
        if not sighting.mac or not ip or not sighting.is_bmc:
            return
        self._seen.pop(sighting.mac, None)
        self._seen[sighting.mac] = sighting
        if len(self._seen) > self._most:
            del self._seen[next(iter(self._seen))]

    def addresses(self) -> list[str]:
        """Where they are, the latest last."""
        return list(dict.fromkeys(sighting.ip for sighting in self._seen.values()))


def read_leases(text: str) -> list[Sighting]:
    """The leases of a file of ISC dhcpd, dnsmasq or Kea (the last of each MAC); ``BadRequest`` names a bad line."""
    body = text.removeprefix("\ufeff")
    first = next((line for line in body.splitlines() if line.strip()), "")
    if first.startswith("address,hwaddr"):
        leases = _kea(body.splitlines())
    elif re.search(r"^\s*lease\s", body, re.MULTILINE):
        leases = _isc(body)
    else:
        leases = _dnsmasq(body)
    return list({lease.mac: lease for lease in leases}.values())


def _checked(mac: str, ip: str, line: int, **more: str) -> Sighting:
    found = mac_of(mac)
    try:
        address = str(ip_address(ip))
    except ValueError:
        address = ""
    if not found or not address:
        raise BadRequest("not a lease", where=f"leases, line {line}", hint="a file of ISC dhcpd, dnsmasq or Kea")
    return Sighting(mac=found, ip=address, **{name: clean(value) for name, value in more.items()})


def _kea(lines: Sequence[str]) -> Iterator[Sighting]:
    try:
        for line, row in enumerate(csv.DictReader(lines), 2):
            if (row.get("state") or "0") == "0" and row.get("hwaddr"):
                yield _checked(row["hwaddr"], row.get("address") or "", line, hostname=row.get("hostname") or "")
    except csv.Error as wrong:
        raise BadRequest(f"not a lease file: {wrong}", where="leases", hint="a file of Kea") from None


def _dnsmasq(text: str) -> Iterator[Sighting]:
    for line, row in enumerate(text.splitlines(), 1):
        words = row.split()
        if not words or words[0] == "duid":
            continue
        if len(words) < 4:
            raise BadRequest("not a lease", where=f"leases, line {line}", hint="a file of ISC dhcpd, dnsmasq or Kea")
        yield _checked(words[1], words[2], line, hostname="" if words[3] == "*" else words[3])


_ISC_HARDWARE = re.compile(r"hardware\s+ethernet\s+([0-9a-fA-F:]+)\s*;")
_ISC_CLASS = re.compile(r'vendor-class-identifier\s*=?\s*"([^"]*)"\s*;')
_ISC_NAME = re.compile(r'client-hostname\s+"([^"]*)"\s*;')
_ISC_STATE = re.compile(r"^\s*binding\s+state\s+(\w+)\s*;", re.MULTILINE)


def _isc(text: str) -> Iterator[Sighting]:
    for found in re.finditer(r"^\s*lease\s+(\S+)\s*\{([^}]*)\}", text, re.MULTILINE):
        body = found[2]
        hardware, state = _ISC_HARDWARE.search(body), _ISC_STATE.search(body)
        if hardware is None or (state is not None and state[1] != "active"):
            continue
        kind, name = _ISC_CLASS.search(body), _ISC_NAME.search(body)
        line = text.count("\n", 0, found.start()) + 1
        yield _checked(
            hardware[1], found[1], line, vendor_class=kind[1] if kind else "", hostname=name[1] if name else ""
        )
