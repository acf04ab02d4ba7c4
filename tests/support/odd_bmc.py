"""A tiny Redfish service behind a real socket, for shapes that the simulator does not take.

async with OddBmc({"/redfish/v1/Systems/1": {...}}) as bmc:
    bmc.answers[("PATCH", "/redfish/v1/Systems/1")] = lambda asked: web.Response(status=412)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import NamedTuple

from aiohttp import web

ROOT = "/redfish/v1"
SESSIONS = f"{ROOT}/SessionService/Sessions"


class Asked(NamedTuple):
    """One request."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    query: str = ""

    @property
    def json(self) -> object:
        return json.loads(self.body)


class OddBmc:
    """Tells what is in ``resources``; everything else as ``answers`` says, by method and path."""

    def __init__(self, resources: Mapping[str, object]) -> None:
        self.resources = {f"{ROOT}": {"@odata.id": f"{ROOT}/"}, **resources}
        self.answers: dict[tuple[str, str], Callable[[Asked], web.StreamResponse]] = {}
        self.asked: list[Asked] = []
        self.address = ""
        self._runner: web.AppRunner | None = None

    def sent(self, method: str, path: str = "") -> list[Asked]:
        """The requests of that method (to that path)."""
        return [one for one in self.asked if one.method == method and path in ("", one.path)]

    async def __aenter__(self) -> OddBmc:
        app = web.Application(client_max_size=16 << 20)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.address = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, wrong: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path.rstrip("/")
        asked = Asked(request.method, path, request.headers, await request.read(), request.query_string)
        self.asked.append(asked)
        if special := self.answers.get((request.method, path)):
            return special(asked)
        if request.method == "POST" and path == SESSIONS:
            return web.json_response({}, status=201, headers={"X-Auth-Token": "t", "Location": f"{SESSIONS}/1"})
        if request.method == "GET" and path in self.resources:
            return web.json_response({"@odata.id": path, **self.resources[path]})  # type: ignore[dict-item]
        if request.method in ("PATCH", "DELETE", "POST"):
            return web.Response(status=204)
        return web.json_response({"error": {"message": f"nothing at {path}"}}, status=404)


def only_system(**more: object) -> dict[str, object]:
    """A service with one system that has these properties."""
    return {
        f"{ROOT}/Systems": {"Members": [{"@odata.id": f"{ROOT}/Systems/1"}]},
        f"{ROOT}/Systems/1": {"PowerState": "On", **more},
    }
