"""Finds the route of a path. Knows URI templates, nothing of what is behind them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import unquote_to_bytes

from strata.api.redfish.protocol.route import Route

_LONGEST = 2048


class _Node:
    """One segment of a template: what may follow literally, and what for anything."""

    def __init__(self) -> None:
        self.literal: dict[str, _Node] = {}
        self.anything: tuple[str, _Node] | None = None
        self.route: Route | None = None


class Table:
    """All routes, as a tree of their segments: looking one up costs as much as its path is long."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._root = _Node()
        for route in routes:
            self._add(route)

    def _add(self, route: Route) -> None:
        node = self._root
        for segment in route.template.strip("/").split("/"):
            if segment.startswith("{") and segment.endswith("}"):
                name = segment[1:-1]
                if node.anything is None:
                    node.anything = (name, _Node())
                if node.anything[0] != name:
                    raise RuntimeError(f"{route.template}: this place is called {{{node.anything[0]}}} elsewhere")
                node = node.anything[1]
            else:
                node = node.literal.setdefault(segment, _Node())
        if node.route is not None:
            raise RuntimeError(f"{route.template}: declared twice")
        node.route = route

    def find(self, raw_path: str) -> tuple[Route, Mapping[str, str]] | None:
        """The route of a path as it stood in the request (still quoted), and what stood in its template's braces."""
        if len(raw_path) > _LONGEST:
            return None
        segments = raw_path.removeprefix("/").removesuffix("/").split("/")
        try:
            plain = [unquote_to_bytes(segment).decode() for segment in segments]
        except UnicodeDecodeError:
            return None
        params: dict[str, str] = {}
        route = _find(self._root, plain, 0, params)
        return (route, params) if route is not None else None


def _find(node: _Node, segments: list[str], depth: int, params: dict[str, str]) -> Route | None:
    if depth == len(segments):
        return node.route
    segment = segments[depth]
    following = node.literal.get(segment)
    if following is not None:
        route = _find(following, segments, depth + 1, params)
        if route is not None:
            return route
    if node.anything is None or not segment or segment in (".", ".."):
        return None
    name, following = node.anything
    route = _find(following, segments, depth + 1, params)
    if route is not None:
        params[name] = segment
    return route
