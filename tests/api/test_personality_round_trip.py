"""What ``strata personality show --json`` prints is what ``strata personality put`` takes, with the real service."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from pathlib import Path

import pytest

from strata.cli import main
from support.agent_site import AgentSite, agent_site

pytestmark = pytest.mark.slow

SET = """
name: compute
description: what nodes run
members:
  - name: system
    release: debian:12
    mode: demand
    env: {MOTTO: "größer 🚀 \\t\\\\"}
    ready: {kind: tcp, port: 22, within: 1.5e-3}
    restart: {most: 2, backoff: 0.25}
    mounts: [{source: /run/x, target: /x, readonly: false}]
    files: [{path: /etc/motd, content: "{node} {{node}} ${HOME}\\n", mode: 0600}]
  - {name: side, release: "debian:12"}
"""


async def strata(site: AgentSite, *words: str) -> str:
    """One command line, in a thread of its own; it must go well."""

    def go() -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main.run(["--url", f"unix:{site.admin}", *words])
        return code, out.getvalue(), err.getvalue()

    code, out, err = await asyncio.to_thread(go)
    assert code == 0, err
    return out


async def test_what_is_shown_can_be_put_again_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with agent_site(tmp_path / "s", nodes=1) as site:
        site.releases.move("debian:12", 1)
        written = tmp_path / "compute.yaml"
        written.write_text(SET)
        await strata(site, "personality", "put", str(written))
        shown = await strata(site, "personality", "show", "compute", "--json")
        before = site.sets.records.get("compute")
        assert json.loads(shown)["members"][0]["files"][0]["mode"] == 0o600

        file = tmp_path / "compute.json"
        file.write_text(shown)
        await strata(site, "personality", "put", str(file))
        monkeypatch.setattr("sys.stdin", io.StringIO(shown))
        again = json.loads(await strata(site, "personality", "put", "-", "--json"))
        assert site.sets.records.get("compute") == before
        assert {**again, "revision": 0} == {**json.loads(shown), "revision": 0}
        assert again["digest"].startswith("sha256:")
