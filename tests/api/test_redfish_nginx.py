"""What nginx itself answers below ``/redfish``, and what it lets through."""

from __future__ import annotations

from pathlib import Path

import pytest
from redfish_site import redfish_site
from redfish_support import keys


@pytest.mark.slow
@pytest.mark.server
async def test_nginx_speaks_redfish_below_redfish(tmp_path: Path) -> None:
    async with redfish_site(tmp_path, 4) as site, site.client() as client:
        unknown = await client.request("BREW", "/redfish/v1/")
        assert (unknown.status_code, keys(unknown)) == (501, ["OperationNotAllowed"])
        assert unknown.headers["odata-version"] == "4.0"
        large = await client.post("/redfish/v1/SessionService/Sessions", content=b"x" * (65 * 2**20))
        assert (large.status_code, keys(large)) == (413, ["BadRequest"])
        head = await client.head("/redfish/v1/Systems")
        assert (head.status_code, head.content) == (200, b"")
        assert int(head.headers["content-length"]) > 100
        async with client.stream("GET", "/redfish/v1/EventService/SSE") as stream:
            chunks = stream.aiter_bytes()  # held: dropping it would hang up
            assert (await anext(chunks)).startswith(b":")
            listed = (await client.get("/redfish/v1/EventService/Subscriptions")).json()
            assert listed["Members@odata.count"] == 1
            await chunks.aclose()
