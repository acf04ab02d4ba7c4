"""What a query asks for besides the resource itself: links replaced by what they lead to, the only member."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import unquote_plus

from strata.virtual.redfish.body import Json, refuse

MOST_LEVELS = 6
MOST_EXPANDED = 2000
"""Resources in one expanded reply."""

View = Callable[[str], Json]
"""Path → the resource there, or a link to it."""

_EXPAND = re.compile(r"([*.~])(?:\(\$levels=(\d{1,2})\))?")


def queried(body: Json, query: str, view: View) -> Json:
    """The resource ``body`` as ``query`` wants it."""
    for pair in query.split("&"):
        name, _, value = unquote_plus(pair).partition("=")
        if name == "$expand":
            wanted = _EXPAND.fullmatch(value)
            levels = int(wanted[2] or 1) if wanted else 0
            if wanted is None or not 1 <= levels <= MOST_LEVELS:
                refuse(400, "QueryParameterValueFormatError", f"$expand is *, . or ~ of 1 to {MOST_LEVELS} levels.")
            body = _Expander(wanted[1], view).expand(body, levels)
        elif name == "only":
            members = body.get("Members")
            if not isinstance(members, list):
                refuse(400, "QueryNotSupportedOnResource", "only is for collections.")
            if len(members) == 1:
                body = view(members[0]["@odata.id"])
        elif name.startswith("$"):
            refuse(501, "QueryNotSupported", f"{name[:80]} is not supported.")
    return body


class _Expander:
    """Puts resources in the place of links to them. A resource is not put inside itself."""

    def __init__(self, which: str, view: View) -> None:
        self._which = which
        self._view = view
        self._count = 0

    def expand(self, body: Json, levels: int, above: frozenset[str] = frozenset()) -> Json:
        above |= {str(body.get("@odata.id"))}
        return {
            key: self._walk(value, levels, above, key == "Links")
            if type(value) in _HOLDS_LINKS and key != "Actions" and key[0] != "@"
            else value
            for key, value in body.items()
        }

    def _walk(self, value: object, levels: int, above: frozenset[str], related: bool) -> object:
        if isinstance(value, list):
            return [self._walk(item, levels, above, related) for item in value]
        if not isinstance(value, dict):
            return value
        path = value.get("@odata.id")
        if len(value) != 1 or not isinstance(path, str):
            return {
                key: self._walk(item, levels, above, related or key == "Links") if type(item) in _HOLDS_LINKS else item
                for key, item in value.items()
            }
        if self._which != "*" and related != (self._which == "~"):
            return value
        if path in above or "#" in path or self._count >= MOST_EXPANDED:
            return value
        self._count += 1
        body = self._view(path)
        return self.expand(body, levels - 1, above) if levels > 1 else body


_HOLDS_LINKS = frozenset({dict, list})
