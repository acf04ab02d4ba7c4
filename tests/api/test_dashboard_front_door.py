"""The dashboard by way of the real nginx: what its files are served with, and what is said where there are none."""

from __future__ import annotations

from pathlib import Path

import pytest
from nginx_site import opened_site

pytestmark = [pytest.mark.server, pytest.mark.slow]


async def test_files_are_served_with_a_policy_that_allows_nothing_but_this_origin(tmp_path: Path) -> None:
    files = tmp_path / "dashboard"
    (files / "assets").mkdir(parents=True)
    (files / "index.html").write_text("<!doctype html><title>page</title>")
    (files / "assets" / "app-1.js").write_text("1")
    async with opened_site(tmp_path, dashboard=files) as site, site.client() as client:
        page = await client.get("/")
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html")
        assert page.headers["cache-control"] == "no-cache"
        script = await client.get("/assets/app-1.js")
        assert (script.status_code, script.headers["content-type"]) == (200, "text/javascript")
        assert "immutable" in script.headers["cache-control"]
        for answer in (page, script):
            policy = answer.headers["content-security-policy"].split("; ")
            assert {"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"} <= set(
                policy
            )
            assert "unsafe" not in answer.headers["content-security-policy"]
            assert answer.headers["x-frame-options"] == "DENY"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert "strict-transport-security" in answer.headers
        for path in ("/assets/", "/assets/../index.html/x", "/assets/%2e%2e/%2e%2e/admin.sock", "/assets/none.js"):
            assert (await client.get(path)).status_code in (400, 403, 404), path


async def test_without_files_the_front_page_says_so_and_the_api_answers(tmp_path: Path) -> None:
    async with opened_site(tmp_path) as site, site.client() as client:
        page = await client.get("/")
        assert page.status_code == 404
        assert "make dashboard" in page.text
        assert (await client.get("/v1/health")).status_code == 200


async def test_the_whole_machine_is_compressed_for_whoever_takes_that(tmp_path: Path) -> None:
    async with opened_site(tmp_path) as site:
        token = await site.service.token("viewer")
        async with site.client(Authorization=f"Bearer {token}") as client:
            whole = await client.get("/v1/machine")
            assert whole.json()["names"] == ["n000", "n001", "n002"]
            assert whole.headers["content-encoding"] == "gzip"
            plain = await client.get("/v1/machine", headers={"Accept-Encoding": "identity"})
            assert plain.json() == whole.json()
