"""What a request says, looked at before anything is done. Whatever is wrong is a ``Refusal``."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from strata.core.distinct import distinct
from strata.power.capmc.records import NodeTable, Positions
from strata.power.capmc.reply import UNDEFINED, Refusal, undefined

Nids = npt.NDArray[np.int64]

MOST_NID = 2**31 - 1
MOST_NIDS = 1_000_000
"""In one request: ten times the largest machine."""
_SHOWN = 20
"""NIDs that a refusal names."""
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\Z")


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One request."""

    applet: str
    body: Mapping[str, Any]
    shasta: bool = False
    """It came by one of Shasta's paths."""


def integer(value: Any, what: str, *, low: int = -(2**53), high: int = 2**53) -> int:
    """A JSON integer within bounds."""
    if type(value) is not int or not low <= value <= high:
        raise Refusal(400, f"Bad Request: invalid {what}: {shown(value)}")
    return value


def word(value: Any, what: str, most: int = 1024) -> str:
    if not isinstance(value, str) or len(value) > most:
        raise Refusal(400, f"Bad Request: invalid {what}")
    return value


def flag(body: Mapping[str, Any], key: str) -> bool:
    """A JSON boolean; absent: no."""
    value = body.get(key, False)
    if not isinstance(value, bool):
        raise Refusal(400, f"Bad Request: invalid {key}")
    return value


def shown(value: Any) -> str:
    """For a message: short and plain."""
    return "".join(c if c.isprintable() else "?" for c in str(value)[:80])


def listed(nids: Sequence[Any] | Nids) -> str:
    """NIDs for a message."""
    values = [shown(nid) for nid in list(nids)[:_SHOWN]]
    return f"[{','.join(values)}{',...' if len(nids) > _SHOWN else ''}]"


def nids_of(body: Mapping[str, Any], *, required: bool = False) -> Nids:
    """The NIDs of a request, in its order, as integers; none where there is no list."""
    given = body.get("nids")
    if given is None:
        given = []
    if not isinstance(given, list):
        raise Refusal(400, "Bad Request: nids must be an array")
    if required and not given:
        raise Refusal(400, "Bad Request: Missing required NID list")
    if len(given) > MOST_NIDS:
        raise Refusal(413, f"Bad Request: a request has at most {MOST_NIDS} NIDs")
    if not set(map(type, given)) <= {int} or not 0 <= min(given, default=0) <= max(given, default=0) <= MOST_NID:
        bad = [nid for nid in given if type(nid) is not int or not 0 <= nid <= MOST_NID]
        raise Refusal(400, f"invalid nids: {listed(bad)}")
    return np.array(given, dtype=np.int64)


def chosen(table: NodeTable, nids: Nids, *, compute: bool = False) -> Positions:
    """Where the nodes of a request are in the table: in the table's order, each once. No NIDs: all of them.
    ``compute``: all of the compute nodes, then."""
    at, unknown = those_known(table, nids, compute=compute)
    if unknown:
        raise undefined(unknown)
    return at


def those_known(table: NodeTable, nids: Nids, *, compute: bool = False) -> tuple[Positions, dict[int, str]]:
    """The same, without those that are nobody's: of these, why each is not answered. A scheduler that still has a node
    which is gone must not lose sight of all others."""
    if not len(nids):
        everybody = table.compute if compute else np.ones(len(table.nids), dtype=np.bool_)
        return np.flatnonzero(everybody), {}
    at = table.find(nids)
    strange = at < 0
    if not strange.any():
        return distinct(at), {}
    unknown = distinct(nids[strange]).tolist()
    if strange.all():
        raise undefined(unknown)
    return distinct(at[~strange]), dict.fromkeys(unknown, UNDEFINED)


def objects_of(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The list of objects with a ``nid`` each that setters take."""
    given = body.get("nids")
    if not isinstance(given, list) or not given:
        raise Refusal(400, "no NIDs")
    if len(given) > MOST_NIDS:
        raise Refusal(413, f"Bad Request: a request has at most {MOST_NIDS} NIDs")
    for one in given:
        if not isinstance(one, dict) or type(one.get("nid")) is not int or not 0 <= one["nid"] <= MOST_NID:
            raise Refusal(400, f"invalid nids: {listed([one.get('nid') if isinstance(one, dict) else one])}")
    return given


def moment(text: Any, zone: dt.tzinfo, wrong: str) -> float:
    """``YYYY-MM-DD HH:MM:SS`` in the site's own time."""
    if not isinstance(text, str) or not _TIME.match(text):
        raise Refusal(400, wrong)
    try:
        return dt.datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=zone).timestamp()
    except (ValueError, OverflowError):
        raise Refusal(400, wrong) from None


def written(time: float, zone: dt.tzinfo) -> str:
    return dt.datetime.fromtimestamp(time, zone).strftime("%Y-%m-%d %H:%M:%S")


def stamped(time: float, zone: dt.tzinfo) -> str:
    """With just six fractional digits and the offset as short as it goes: ``2015-06-03 14:07:32.886126-05``."""
    text = dt.datetime.fromtimestamp(time, zone).isoformat(sep=" ", timespec="microseconds")
    return text.removesuffix(":00") if re.search(r"[+-]\d\d:00\Z", text) else text
