"""Query parameters of DSP0266: read from a request (``parse``) and done to a resource (``apply``).

Everything is bounded: a collection comes in pages with a link to the next, an expansion that would be too large is
refused. ``FEATURES`` is what the service root promises, next to the code that keeps it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import parse_qsl, quote

import msgspec

from strata.api.redfish.protocol.errors import Rejected, rejected
from strata.api.redfish.protocol.filter import Test, compile_filter
from strata.api.redfish.protocol.messages import message
from strata.api.redfish.protocol.route import ROOT, Json, Links
from strata.core.errors import BadRequest

PAGE = 10_000
"""Most members that one answer links to."""
EXPANDED_PAGE = 500
"""Most members that one answer holds whole."""
MOST_FILTERED = 10_000
"""Most members that a filter looks at."""
MOST_EXPANDED = 2_000
"""Most resources that one answer holds."""
MAX_LEVELS = 3
_AT_ONCE = 32
_MOST_PARAMETERS = 32

FEATURES: Json = {
    "ExpandQuery": {"ExpandAll": True, "Levels": True, "MaxLevels": MAX_LEVELS, "Links": True, "NoLinks": True},
    "FilterQuery": True,
    "FilterQueryComparisonOperations": True,
    "FilterQueryCompoundOperations": True,
    "SelectQuery": True,
    "OnlyMemberQuery": True,
    "TopSkipQuery": True,
    "ExcerptQuery": False,
    "MultipleHTTPRequests": True,
    "DeepOperations": {"DeepPATCH": False, "DeepPOST": False},
}

Fetch = Callable[[str], Awaitable[Json | None]]
"""The resource at a path; None: not there, or not for whoever asks."""

_EXPAND = re.compile(r"([*.~])(?:\(\$levels=(\d{1,6})\))?\Z")
_SELECT = re.compile(r"[A-Za-z@][\w@./\-]*\Z")
_KNOWN = frozenset({"$expand", "$filter", "$select", "$top", "$skip", "only"})


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """What the parameters ask for."""

    expand: Literal["", "*", ".", "~"] = ""
    levels: int = 1
    select: tuple[tuple[str, ...], ...] = ()
    filter: Test | None = None
    top: int | None = None
    skip: int = 0
    only: bool = False
    given: Mapping[str, str] = {}

    @property
    def depends_on_others(self) -> bool:
        """Whether the answer holds, or hangs on, more than the resource itself."""
        return bool(self.expand or self.filter or self.only)


NOTHING = Query()


def parse(text: str) -> Query:
    """The query of a URL; ``Rejected`` for what is wrong or not supported. Unknown ones without a ``$`` are ignored."""
    if not text:
        return NOTHING
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_PARAMETERS)
    except ValueError:
        raise rejected(400, "QueryNotSupportedOnResource", hint="send fewer query parameters") from None
    given: dict[str, str] = {}
    for name, value in pairs:
        if name not in _KNOWN:
            if name.startswith("$"):
                raise rejected(501, "QueryNotSupported")
            continue
        if name in given:
            raise _wrong(name, value, "give it once")
        given[name] = value
    if not given:
        return NOTHING
    if "only" in given:
        if given["only"]:
            raise _wrong("only", given["only"], "it takes no value")
        if len(given) > 1 and set(given) != {"only", "$select"}:
            raise rejected(400, "QueryCombinationInvalid")
    expand, levels = _expand(given.get("$expand"))
    return Query(
        expand=expand,
        levels=levels,
        select=_select(given.get("$select")),
        filter=_filter(given.get("$filter")),
        top=_number(given, "$top"),
        skip=_number(given, "$skip") or 0,
        only="only" in given,
        given=given,
    )


def _expand(value: str | None) -> tuple[Literal["", "*", ".", "~"], int]:
    if value is None:
        return "", 1
    match = _EXPAND.match(value)
    if match is None:
        raise _wrong("$expand", value, "it takes *, . or ~, then perhaps ($levels=2)")
    levels = int(match[2] or 1)
    if not 1 <= levels <= MAX_LEVELS:
        raise rejected(400, "QueryParameterOutOfRange", str(levels), "$levels", f"1-{MAX_LEVELS}")
    for kind in ("*", ".", "~"):
        if match[1] == kind:
            return kind, levels
    raise AssertionError(value)


def _select(value: str | None) -> tuple[tuple[str, ...], ...]:
    if value is None:
        return ()
    names = [name.strip() for name in value.split(",")]
    if len(names) > 100 or not all(map(_SELECT.match, names)):
        raise _wrong("$select", value, "it takes names of properties: Id,Status/Health")
    return tuple(tuple(name.removeprefix("Members/").split("/")) for name in names)


def _filter(value: str | None) -> Test | None:
    if value is None:
        return None
    try:
        return compile_filter(value)
    except BadRequest as error:
        raise _wrong("$filter", value, error.detail) from None


def _number(given: Mapping[str, str], name: str) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    if not (value.isascii() and value.isdigit() and len(value) <= 9):
        raise _wrong(name, value, "it takes a number")
    return int(value)


def _wrong(name: str, value: str, hint: str) -> Rejected:
    return rejected(400, "QueryParameterValueFormatError", value[:100], name, hint=hint)


async def apply(query: Query, resource: Json, fetch: Fetch) -> Json:
    """The resource as the query wants it."""
    members = resource.get("Members")
    if isinstance(members, list | Links):
        return await _collection(query, resource, members, fetch)
    if query.only or query.filter or "$top" in query.given or "$skip" in query.given:
        raise rejected(400, "QueryNotSupportedOnResource", hint="this resource is not a collection")
    if query.expand:
        resource = await _Expansion(query, fetch).grown(resource, query.levels, in_links=False)
    return selected(resource, query.select) if query.select else resource


async def _collection(query: Query, resource: Json, members: Sequence[Json], fetch: Fetch) -> Json:
    if query.only and len(members) == 1:
        whole = await fetch(members[0]["@odata.id"])
        if whole is not None:
            return selected(whole, query.select) if query.select else whole
    if query.filter is not None:
        members = await _filtered(query.filter, members, fetch)
    total = len(members)
    holds = query.expand in ("*", ".")
    wanted = members[query.skip :] if query.top is None else members[query.skip : query.skip + query.top]
    page = wanted[: EXPANDED_PAGE if holds else PAGE]
    answer = {**resource, "Members": list(page), "Members@odata.count": total}
    if len(page) < len(wanted):
        answer["Members@odata.nextLink"] = _next(query, resource, len(page))
    if query.expand:
        answer = await _Expansion(query, fetch).grown(answer, query.levels, in_links=False)
    if query.select:
        chosen = [selected(member, query.select) if len(member) > 1 else member for member in answer["Members"]]
        answer["Members"] = chosen
    return answer


async def _filtered(test: Test, members: Sequence[Json], fetch: Fetch) -> list[Json]:
    if len(members) > MOST_FILTERED:
        few = message("QueryNotSupportedOnResource", resolution=f"a filter looks at up to {MOST_FILTERED} members")
        raise Rejected(400, [few])
    kept: list[Json] = []
    for start in range(0, len(members), _AT_ONCE):
        part = list(members[start : start + _AT_ONCE])
        found = await asyncio.gather(*(_whole(member, fetch) for member in part))
        kept += [link for link, whole in zip(part, found, strict=True) if whole is not None and test(whole)]
    return kept


async def _whole(member: Json, fetch: Fetch) -> Json | None:
    """What a member is, where the collection does not hold it already."""
    return await fetch(member["@odata.id"]) if _is_link(member) else member


def _next(query: Query, resource: Json, taken: int) -> str:
    """Where the rest is. What the client did not ask to skip is not skipped, and not more than it asked for given."""
    rest = {**query.given, "$skip": str(query.skip + taken)}
    if query.top is not None:
        rest["$top"] = str(query.top - taken)
    words = "&".join(f"{name}={quote(value, safe=chr(39) + '*.~()$=,/')}" for name, value in rest.items())
    return f"{resource['@odata.id']}?{words}"


class _Expansion:
    """Puts resources in the place of links to them, a bounded number of times."""

    def __init__(self, query: Query, fetch: Fetch) -> None:
        self._in_links = query.expand in ("*", "~")
        self._others = query.expand in ("*", ".")
        self._fetch = fetch
        self._left = MOST_EXPANDED

    async def grown(self, resource: Json, levels: int, *, in_links: bool) -> Json:
        """``resource`` with what it links to."""
        grown: Json = {}
        for name, value in resource.items():
            if name == "Actions" or not isinstance(value, dict | list):
                grown[name] = value
            else:
                grown[name] = await self._value(value, levels, in_links or name == "Links")
        return grown

    async def _value(self, value: Any, levels: int, in_links: bool) -> Any:
        if isinstance(value, list):
            found: list[Any] = []
            for start in range(0, len(value), _AT_ONCE):
                part = value[start : start + _AT_ONCE]
                found += await asyncio.gather(*(self._value(item, levels, in_links) for item in part))
            return found
        if not isinstance(value, dict):
            return value
        if not _is_link(value):
            return await self.grown(value, levels, in_links=in_links)
        if not (self._in_links if in_links else self._others):
            return value
        self._left -= 1
        if self._left < 0:
            big = message("QueryNotSupportedOnResource", resolution=f"expand at most {MOST_EXPANDED} resources at once")
            raise Rejected(400, [big])
        whole = await self._fetch(value["@odata.id"])
        if whole is None:
            return value
        return await self.grown(whole, levels - 1, in_links=False) if levels > 1 else whole


def _is_link(value: Json) -> bool:
    path = value.get("@odata.id")
    return len(value) == 1 and isinstance(path, str) and path.startswith(ROOT) and "#" not in path


def selected(resource: Json, paths: tuple[tuple[str, ...], ...]) -> Json:
    """The chosen properties, and those that say what it is."""
    kept: Json = {name: value for name, value in resource.items() if name.startswith("@odata.")}
    for path in paths:
        _copy(resource, kept, path)
    return kept


def _copy(source: Json, target: Json, path: tuple[str, ...]) -> None:
    name, rest = path[0], path[1:]
    if name not in source:
        return
    value = source[name]
    if not rest:
        target[name] = value
    elif isinstance(value, dict):
        inner = target.get(name)
        part: Json = {**inner} if isinstance(inner, dict) else {}
        _copy(value, part, rest)
        target[name] = part
