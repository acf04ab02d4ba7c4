"""A directory of recorded Redfish resources behind a real socket: each ``index.json`` is what a GET of its path tells.

    async with Mockup(directory) as mockup:
        ... mockup.address ...

Everything else is 404, other methods 405. With ``auth`` it wants a session or basic credentials (root, mockup).
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from aiohttp import BasicAuth, web

USER, PASSWORD, TOKEN = "root", "mockup", "a-token-of-the-mockup"
SESSIONS = "/redfish/v1/SessionService/Sessions"

SHARED = Path(__file__).resolve().parents[3] / "shared" / "redfish" / "mockups"
"""Where the DMTF's mockups are, if they are here."""


def shared_mockups() -> list[Path]:
    """The DMTF's mockups; none where the folder is not there."""
    return sorted(path for path in SHARED.glob("*") if (path / "index.json").is_file()) if SHARED.is_dir() else []


class Mockup:
    """Serves ``directory`` at ``address`` on loopback."""

    def __init__(self, directory: Path, *, auth: bool = False) -> None:
        self.directory = directory.resolve()
        self.address = ""
        self.asked: list[str] = []
        """``METHOD path`` of every request, in order."""
        self._auth = auth
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Mockup:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.address = f"http://{host}:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, wrong: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path.rstrip("/")
        self.asked.append(f"{request.method} {path}")
        if path == SESSIONS and request.method == "POST":
            headers = {"X-Auth-Token": TOKEN, "Location": f"{SESSIONS}/1"}
            return web.json_response({"@odata.id": f"{SESSIONS}/1", "Id": "1"}, status=201, headers=headers)
        if self._auth and path != "/redfish/v1" and not _known(request):
            return web.json_response({"error": {"message": "who are you?"}}, status=401)
        if path.startswith(f"{SESSIONS}/") and request.method == "DELETE":
            return web.Response(status=204)
        if request.method not in ("GET", "HEAD"):
            return web.json_response({"error": {"message": "a mockup only tells"}}, status=405)
        file = (self.directory / path.removeprefix("/redfish/v1").lstrip("/") / "index.json").resolve()
        if not path.startswith("/redfish/v1") or not file.is_relative_to(self.directory) or not file.is_file():
            return web.json_response({"error": {"message": f"there is nothing at {path}"[:200]}}, status=404)
        return web.Response(body=file.read_bytes(), content_type="application/json")


def _known(request: web.Request) -> bool:
    return (
        request.headers.get("X-Auth-Token") == TOKEN
        or request.headers.get("Authorization") == BasicAuth(USER, PASSWORD).encode()
    )
