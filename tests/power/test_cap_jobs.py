"""Several requests for caps at once, under a limit and a ramp: who waits for whom, and what a cancel stops."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from strata.core import intset
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.operations.records import OperationError, OperationRow, encode
from strata.power.capping import ledger
from strata.power.capping import operations as cap_jobs
from strata.power.settings import PowerSettings
from strata.store.protocol import Put
from support.power_site import NODES, Site, compute, settled, site_of

pytestmark = pytest.mark.slow

LIMIT, RAMP = NODES * 500.0, 100.0
HOUR = 3600.0


async def low(site: Site) -> list[str]:
    """All compute nodes at 300 W, which leaves 1600 W; their names."""
    await site.until("lowered", lambda: settled(site))
    names = compute(site)
    assert await site.cap(dict.fromkeys(names, 300.0)) == {"e": 0, "err_msg": ""}
    site.peak = 0.0
    return names


def cap_of(site: Site, name: str) -> float:
    return float(site.machine.nodes.electricity.caps[site.machine.nodes.index[name]])


async def job(site: Site) -> OperationRow:
    return (await site.service.operations.recent())[0]


async def test_a_raise_that_waits_for_the_ramp_keeps_nobody_else_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "MINUTE", HOUR)
    async with site_of(tmp_path, PowerSettings(limit=LIMIT, ramp=RAMP)) as site:
        first, second, third, *_ = await low(site)
        monkeypatch.setattr(cap_jobs, "PATIENCE", 1.0)
        told = await site.cap({first: 700.0})
        assert isinstance(told, dict) and "it goes on as operation" in told["nids"][0]["err_msg"]
        waiting = await job(site)
        monkeypatch.setattr(cap_jobs, "PATIENCE", 60.0)
        assert await site.cap({second: 250.0}) == {"e": 0, "err_msg": ""}
        assert await site.cap({second: 220.0, third: 280.0}) == {"e": 0, "err_msg": ""}
        assert (cap_of(site, second), cap_of(site, third)) == (220.0, 280.0)
        assert (await site.service.operations.show(waiting.id)).state == "running"
        await site.until("a step of what the ramp allows", lambda: cap_of(site, first) == 300.0 + RAMP)
        # A later request for the same node is the one that counts.
        assert await site.cap({first: 320.0}) == {"e": 0, "err_msg": ""}
        ended = await site.service.operations.wait(waiting.id)
        assert (ended.state, ended.errors[0].detail) == ("failed", "not set: a later request gave the node another cap")
        assert cap_of(site, first) == 320.0


async def test_a_raise_above_the_ramp_goes_up_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MINUTE", 0.5)
    async with site_of(tmp_path, PowerSettings(limit=LIMIT, ramp=RAMP)) as site:
        first, *_ = await low(site)
        seen: list[float] = []
        set_cap = site.machine.nodes.electricity.set_cap

        def noted(idx: np.ndarray, watts: float | None) -> None:  # type: ignore[type-arg]
            set_cap(idx, watts)
            seen.append(cap_of(site, first))

        site.machine.nodes.electricity.set_cap = noted  # type: ignore[method-assign, assignment]
        monkeypatch.setattr(cap_jobs, "PATIENCE", 60.0)
        assert await site.cap({first: 650.0}) == {"e": 0, "err_msg": ""}
        assert seen == [400.0, 500.0, 600.0, 650.0]
        assert site.peak <= LIMIT


async def test_a_cancelled_job_sets_nothing_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MINUTE", HOUR)
    async with site_of(tmp_path, PowerSettings(limit=LIMIT, ramp=RAMP)) as site:
        first, second, *_ = await low(site)
        monkeypatch.setattr(cap_jobs, "PATIENCE", 1.0)
        await site.cap({first: 380.0, second: 380.0})
        waiting = await job(site)
        await site.until("one of them raised", lambda: 380.0 in (cap_of(site, first), cap_of(site, second)))
        await site.service.operations.cancel(waiting.id, "ada")
        monkeypatch.setattr(ledger, "MINUTE", 0.0)  # there is room for the second one at once
        ended = await site.service.operations.wait(waiting.id)
        assert ended.state == "cancelled"
        assert sorted((cap_of(site, first), cap_of(site, second))) == [300.0, 380.0]


async def test_a_node_that_is_frozen_while_it_waits_is_not_raised_any_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "MINUTE", HOUR)
    async with site_of(tmp_path, PowerSettings(limit=LIMIT, ramp=RAMP)) as site:
        first, *_ = await low(site)
        monkeypatch.setattr(cap_jobs, "PATIENCE", 1.0)
        await site.cap({first: 700.0})
        waiting = await job(site)
        await site.until("a step of what the ramp allows", lambda: cap_of(site, first) == 300.0 + RAMP)
        await site.service.freeze(LOCAL_ADMIN, f"node:{first}", "a test")
        monkeypatch.setattr(ledger, "MINUTE", 0.0)  # there is room for the rest at once
        ended = await site.service.operations.wait(waiting.id)
        assert (ended.state, ended.errors) == ("failed", (OperationError(node=first, detail=cap_jobs.FROZEN),))
        assert cap_of(site, first) == 300.0 + RAMP


async def test_a_policy_of_the_site_lowers_a_frozen_node_too(tmp_path: Path) -> None:
    async with site_of(tmp_path, PowerSettings(limit=LIMIT)) as site:
        first, *_ = await low(site)
        await site.service.freeze(LOCAL_ADMIN, f"node:{first}", "a test")
        await site.run("night", "limit: 2.4kW\ncap: 250W\nevery: 1s\nnodes: {low: 100W, high: 2400W}")
        await site.until("lowered", lambda: cap_of(site, first) == 250.0, 60.0)


async def test_a_job_that_is_cancelled_before_its_turn_does_nothing_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site_of(tmp_path, PowerSettings(limit=LIMIT)) as site:
        first, second, *_ = await low(site)
        go = asyncio.Event()
        begun = asyncio.Event()
        send = site.sender.send

        async def slow(*args: object, **more: object) -> object:
            begun.set()
            await go.wait()
            return await send(*args, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(site.sender, "send", slow)
        falls = asyncio.create_task(site.cap({first: 250.0}))
        await begun.wait()
        rises = asyncio.create_task(site.cap({second: 400.0}))
        async with asyncio.timeout(60):
            while not (rising := await job(site)).arguments["moves"][0]["rises"] or rising.state != "running":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await site.service.operations.cancel(rising.id, "ada")
        go.set()
        assert await falls == {"e": 0, "err_msg": ""}
        told = await rises
        assert isinstance(told, dict) and told["nids"][0]["err_msg"] == f"operation {rising.id} was cancelled"
        assert (cap_of(site, first), cap_of(site, second)) == (250.0, 300.0)


async def test_what_is_overtaken_while_it_waits_is_told_by_name_and_the_rest_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "MINUTE", HOUR)
    async with site_of(tmp_path, PowerSettings(limit=LIMIT, ramp=RAMP)) as site:
        first, second, *_ = await low(site)
        monkeypatch.setattr(cap_jobs, "PATIENCE", 1.0)
        await site.cap({first: 380.0, second: 380.0})
        waiting = await job(site)
        await site.until("one of them raised", lambda: 380.0 in (cap_of(site, first), cap_of(site, second)))
        later = second if cap_of(site, first) == 380.0 else first
        monkeypatch.setattr(cap_jobs, "PATIENCE", 60.0)
        assert await site.cap({later: 250.0}) == {"e": 0, "err_msg": ""}
        ended = await site.service.operations.wait(waiting.id)
        why = "not set: a later request gave the node another cap"
        assert (ended.done, ended.errors) == (1, (OperationError(node=later, detail=why),))
        assert cap_of(site, later) == 250.0


async def test_a_successor_does_not_raise_what_a_later_request_took_back(tmp_path: Path) -> None:
    async with site_of(tmp_path, PowerSettings(limit=LIMIT)) as site:
        first, second, *_ = await low(site)
        uids = intset.pack(site.service.registry.uids[site.service.registry.select(f"{first},{second}")])
        move = {"control": "node", "watts": 400.0, "rises": True, "uids": uids}
        kept = OperationRow(
            id="00000000000abcdef", kind="power-cap", author="slurm", created=1.0, total=2, state="running",
            arguments={"moves": [move], "ticket": "of a process that is no more", "asked": 1.0}, owner="dead",
            instance="x", position=(0, False, ((0, 0),)),
        )  # fmt: skip
        await site.service.controller.store.txn([Put(f"job/{kept.id}", encode(kept))])
        assert await site.service.operations.recover() == [kept.id]
        ended = await site.service.operations.wait(kept.id)
        assert (ended.state, ended.done, ended.failed) == ("done", 1, 1)
        assert (cap_of(site, first), cap_of(site, second)) == (300.0, 400.0)
