"""A member of etcd that sends us elsewhere is not believed: what we write goes to members only."""

from __future__ import annotations

import pytest
from aiohttp import web

from strata.store.etcd_http import EtcdSettings, Gateway, Unanswered


@pytest.mark.server
async def test_a_redirect_is_not_followed() -> None:
    seen: list[str] = []

    async def serve(request: web.Request) -> web.Response:
        seen.append(request.path)
        return web.Response(status=307, headers={"Location": f"http://{request.host}/elsewhere"})

    app = web.Application()
    app.router.add_post("/{path:.*}", serve)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    endpoint = f"127.0.0.1:{runner.addresses[0][1]}"
    gateway = Gateway([endpoint], EtcdSettings())
    try:
        with pytest.raises(Unanswered):
            await gateway.once(endpoint, "/v3/kv/range", {}, dict)
    finally:
        await gateway.close()
        await runner.cleanup()
    assert seen == ["/v3/kv/range"]
