"""Where BMCs may be: addresses that people give, as a list or a CSV file. No I/O.

An address is a URL (``https://10.0.0.7``, ``ipmi://10.0.0.8``) or a bare host, of which it has yet to be found out
what it speaks.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from strata.core.errors import BadRequest
from strata.core.node import check_label, check_node_name
from strata.core.xname import parse as parse_xname
from strata.hardware.bmc.dialects import DIALECTS
from strata.hardware.discovery.crawl_values import mac as mac_of

SCHEMES = ("https", "http", *DIALECTS)
MOST_ERRORS = 20
_SYSTEM = "/redfish/v1/Systems/"
_SECRET = ("password", "passwd", "pass", "secret", "user", "username")


class Candidate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An address at which a BMC may answer, and what is known beforehand of the machine behind it."""

    address: str
    name: str = ""
    location: str = ""
    nid: int | None = None
    role: str = ""
    mac: str = ""
    serial: str = ""
    labels: Mapping[str, str] = {}


def address_of(given: str) -> str:
    """An address in its one form; ``BadRequest`` says what is wrong with it, without repeating a password."""
    text = given.strip().rstrip("/")
    # Not repeated: what stands before an @ may be a password.
    where = "address" if "@" in text else f"address {text[:80]!r}"
    if not text or text.endswith(":") or len(text) > 256 or not text.isprintable() or any(c in text for c in " ?#\\"):
        raise BadRequest("not an address: give a host name, an IP address or a URL", where=where)
    url = "://" in text
    try:
        parts = urlsplit(text if url else f"//{text}")
        port, host = parts.port, parts.hostname
    except ValueError as wrong:
        raise BadRequest(f"not an address: {wrong}", where=where) from None
    if "@" in text:
        raise BadRequest("holds a user name or password", where=where, hint="set them: strata hardware credentials")
    if url and parts.scheme not in SCHEMES:
        raise BadRequest(f"begins with none of {', '.join(f'{scheme}://' for scheme in SCHEMES)}", where=where)
    if not host or (not url and parts.path):
        raise BadRequest("names no host", where=where, hint="for example https://10.0.0.7 or 10.0.0.7")
    netloc = f"[{host}]" if ":" in host else host
    netloc += f":{port}" if port is not None else ""
    if not url:
        return netloc
    return f"{parts.scheme}://{netloc}{parts.path.rstrip('/').removesuffix('/redfish/v1')}"


def bmc_of(address: str) -> tuple[str, str]:
    """The BMC's own address, and the path of the system that ``address`` names in it (empty: none)."""
    base, found, system = address.rstrip("/").partition(_SYSTEM)
    return base, f"{_SYSTEM}{system}" if found else ""


def bare(address: str) -> str:
    """An address without what it speaks: a host that was given is the same as the URL that it turned out to be."""
    base, system = bmc_of(address)
    return base.rpartition("://")[2].lower() + system


def read_list(addresses: Iterable[str]) -> list[Candidate]:
    """Candidates from addresses; one that is given twice is one."""
    return [Candidate(address=address) for address in dict.fromkeys(map(address_of, addresses))]


class CsvRows:
    """The rows of a CSV file with a header, and everything that is wrong with them, by line and column."""

    def __init__(self, text: str, known: Mapping[str, Callable[[str], Any]], what: str) -> None:
        self._known = known
        self._what = what
        self._errors: list[str] = []
        self._more = 0
        # The line after a skipped one keeps its own number: count while reading.
        self._lines = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), skipinitialspace=True)
        self.columns = self._header()

    def __iter__(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Line number and the values that are there, each in its own form. A row with something wrong is left out."""
        while (row := self._next()) is not None:
            line = self._lines.line_num
            if not any(cell.strip() for cell in row) or row[0].lstrip().startswith("#"):
                continue
            if len(row) > len(self.columns):
                self.wrong(line, "", f"{len(row)} values for {len(self.columns)} columns")
                continue
            found, good = {}, True
            for column, cell in zip(self.columns, row, strict=False):
                if cell.strip():
                    try:
                        found[column] = self._known[column](cell.strip())
                    except (BadRequest, ValueError) as error:
                        good = False
                        self.wrong(line, column, error.detail if isinstance(error, BadRequest) else str(error))
            if good:
                yield line, found

    def wrong(self, line: int, column: str, detail: str) -> None:
        """Note an error."""
        place = f"line {line}, column {column}" if column else f"line {line}"
        if len(self._errors) < MOST_ERRORS:
            self._errors.append(f"{place}: {detail}")
        else:
            self._more += 1

    def check(self) -> None:
        """Raise ``BadRequest`` with everything that was wrong, if anything was."""
        if self._errors:
            more = f"; and {self._more} more" if self._more else ""
            raise BadRequest("; ".join(self._errors) + more, where=self._what, hint="nothing was taken from it")

    def _next(self) -> list[str] | None:
        try:
            return next(self._lines, None)
        except csv.Error as error:
            self.wrong(self._lines.line_num, "", f"not CSV: {error}")
            return None

    def _header(self) -> list[str]:
        row = self._next() or []
        columns = [cell.strip().lower() for cell in row]
        for column in columns:
            if column in _SECRET:
                raise BadRequest(
                    f"has a column {column!r}; files hold no credentials",
                    where=self._what,
                    hint="take it out, and set them with: strata hardware credentials",
                )
            if column not in self._known:
                known = ", ".join(self._known)
                raise BadRequest(
                    f"no such column: {column[:40]!r}", where=f"{self._what}, line 1", hint=f"known are {known}"
                )
        if len(set(columns)) < len(columns) or not columns:
            raise BadRequest("a column is there twice, or there is none", where=f"{self._what}, line 1")
        return columns


def read_csv(text: str) -> list[Candidate]:
    """Candidates from a CSV file; ``BadRequest`` names every line and column that is wrong."""
    table = CsvRows(text, COLUMNS, "CSV")
    if "address" not in table.columns:
        raise BadRequest("has no column 'address'", where="CSV, line 1", hint=f"known are {', '.join(COLUMNS)}")
    found: list[Candidate] = []
    taken: dict[tuple[str, object], int] = {}
    for line, values in table:
        if "address" not in values:
            table.wrong(line, "address", "empty")
            continue
        for column in ("address", "name", "location", "nid", "mac", "serial"):
            if column in values and (before := taken.setdefault((column, values[column]), line)) != line:
                table.wrong(line, column, f"{values[column]} is also in line {before}")
        found.append(Candidate(**values))
    table.check()
    return found


def node_name(text: str) -> str:
    """A node's name."""
    check_node_name(text)
    return text


def location(text: str) -> str:
    """An xname in its one form."""
    return parse_xname(text).text


def nid(text: str) -> int:
    """A NID."""
    if not text.isascii() or not text.isdecimal() or int(text) >= 2**31:
        raise BadRequest("a NID is a number from 0 to 2147483647")
    return int(text)


def mac(text: str) -> str:
    """A MAC address in its one form."""
    found = mac_of(text)
    if not found:
        raise BadRequest(f"not a MAC address: {text[:40]!r}")
    return found


def plain(text: str) -> str:
    """A short printable text."""
    if len(text) > 128 or not text.isprintable():
        raise BadRequest("at most 128 printable characters")
    return text


def _role(text: str) -> str:
    check_label("role", text)
    return text


def _labels(text: str) -> dict[str, str]:
    found = {}
    for pair in text.split(";"):
        key, equals, value = pair.strip().partition("=")
        if not equals:
            raise BadRequest("labels are key=value;key=value")
        check_label(key, value)
        found[key] = value
    return found


COLUMNS: Mapping[str, Callable[[str], Any]] = {
    "address": address_of,
    "name": node_name,
    "location": location,
    "nid": nid,
    "role": _role,
    "mac": mac,
    "serial": plain,
    "labels": _labels,
}
"""Columns of the CSV, and how a value of each is read."""


def merged(*lists: Sequence[Candidate]) -> list[Candidate]:
    """All candidates, one for each address: the one that says more."""
    found: dict[str, Candidate] = {}
    for candidate in (candidate for some in lists for candidate in some):
        before = found.get(candidate.address)
        if before is None or before == Candidate(address=before.address):
            found[candidate.address] = candidate
    return list(found.values())
