"""What agents said and showed, with the real service behind the door: of nodes that are gone, of boots that never were,
and when it was said."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from provisioned import Ids, live, provide
from real_service import RealService, describe, real_service

from strata.hardware.consoles.service import ConsoleService
from strata.provisioning.agents.door import AgentDoor
from strata.provisioning.agents.hub import Hub
from strata.provisioning.identity.identity import Identity
from support.fake_agents import node_headers

pytestmark = [pytest.mark.server, pytest.mark.slow]


async def test_a_deleted_node_takes_its_agent_and_its_certificate_with_it(tmp_path: Path) -> None:
    async with real_service(tmp_path) as real:
        ids = Ids()
        await provide(real, ids)
        serial = await live(real, ids)
        name, hub = real.nodes[0], real.of(Hub)
        assert hub.attached(name) and real.of(Identity).record(name).serial == serial

        async with real.client() as client:
            assert (await client.delete(f"/v1/nodes/{name}")).is_success
            assert hub.get(name) is None
            assert (await _exchange(real, name, serial)).status_code == 403
            await describe(real)
            assert (await client.get(f"/v1/nodes/{name}/agent")).json()["attached"] is False
            alerts = (await client.get("/v1/alerts", params={"all": "true"})).json()["items"]
            assert not [alert for alert in alerts if "certificate" in alert["key"]], "who deleted it knows that"
        again = await _exchange(real, name, serial)
        assert (again.status_code, "earlier boot" in again.json()["detail"]) == (403, True), "not its certificate"
        assert real.of(Identity).record(name).generation == 0


async def test_an_agent_that_speaks_for_a_boot_that_was_never_handed_out_is_refused_and_not_shut_out(
    tmp_path: Path,
) -> None:
    async with real_service(tmp_path) as real:
        ids = Ids()
        await provide(real, ids)
        serial = await live(real, ids)
        name = real.nodes[0]
        refused = await _exchange(real, name, serial, generation=2**53)
        assert (refused.status_code, "no such boot was handed out" in refused.json()["detail"]) == (403, True)
        assert (await _exchange(real, name, serial)).status_code == 200, "the node's own agent is heard all the same"
        async with real.client() as client:
            deadline = time.monotonic() + 60
            while "generation-refused" not in (found := await client.get("/v1/alerts")).text:
                assert time.monotonic() < deadline, found.text
                await asyncio.sleep(0.02)


async def _exchange(real: RealService, name: str, serial: str, *, generation: int = 1) -> httpx.Response:
    said: dict[str, Any] = {"generation": generation, "boot_id": "b1", "seq": 2, "wait": 0, "state": {}}
    async with real.client("front") as client:
        return await client.post("/agent/v1/exchange", json=said, headers=node_headers(name, serial))


async def test_lines_have_the_time_at_which_they_were_written_where_that_can_be(tmp_path: Path) -> None:
    async with real_service(tmp_path) as real:
        log, name = real.of(ConsoleService)._log, real.nodes[0]
        written = asyncio.Event()
        log.listeners.append(lambda *_: written.set())
        before = time.time()
        real.of(AgentDoor).logged(
            name, [(before - 100, "system", "a"), (1.0, "system", "b"), (before + 9e6, "system", "c")]
        )
        await asyncio.wait_for(written.wait(), 60)
        async with real.client() as client:
            lines = (await client.get(f"/v1/nodes/{name}/console")).json()["items"]
        assert [line["text"] for line in lines] == ["system: a", "system: b", "system: c"]
        first, *others = [line["time"] for line in lines]
        assert first == pytest.approx(before - 100, abs=0.01)
        assert all(before - 0.01 <= at <= time.time() for at in others), "a clock that is wrong is not believed"
