"""Limits in the kernels of nodes, from the command to the files that they are kept in: jobs, brakes, and reasons."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from strata.agent.errors import CommandFailed
from strata.agent.host.limits import Limits
from strata.agent.paths import Paths
from strata.core import intset
from strata.core.errors import DeviceError, StrataError, Unavailable
from strata.core.nodeset import fold
from strata.fleet.operations.records import OperationError, OperationRow, encode
from strata.power.capping import operations as cap_jobs
from strata.power.capping.operations import FROZEN
from strata.power.limits import operations as limit_jobs
from strata.power.limits.agents import AgentNodes
from strata.power.limits.inband import Attribute, Value, VirtualNodes
from strata.power.limits.operations import KIND
from strata.store.protocol import Put
from support.capmc_site import CapmcSite, capmc_site

pytestmark = pytest.mark.slow


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[CapmcSite]:
    async with capmc_site(tmp_path, 8) as found:
        yield found


def compute(site: CapmcSite) -> list[int]:
    table = site.view.nodes()
    return table.nids[table.compute].tolist()  # type: ignore[no-any-return]


def listed(nids: Sequence[int]) -> str:
    return ",".join(map(str, nids))


def data(reply: Any) -> list[Any]:
    return [one["data"] for one in reply["nids"]]


async def range_of(site: CapmcSite, nid: int) -> list[int]:
    """Lower and upper limit of a node's clock."""
    [one] = data(await site.ask("get_freq_limits", "-n", str(nid)))
    return [attribute["PWR_AttrValue"] for attribute in one["PWR_Attrs"]][1:]


async def limit_jobs_of(site: CapmcSite) -> list[OperationRow]:
    return [job for job in await site.service.operations.recent() if job.kind == KIND]


# jobs


async def test_limits_are_set_by_a_job_that_can_be_looked_up_and_stand_in_the_audit_log(site: CapmcSite) -> None:
    nids = compute(site)[:2]
    assert (await site.ask("set_freq_limits", "-n", listed(nids), "-m", "1400000", "-M", "2000000"))["e"] == 0
    assert (await site.ask("set_sleep_state_limit", "-n", str(nids[0]), "-l", "2"))["e"] == 0
    sleep, clock = await limit_jobs_of(site)
    assert [(job.state, job.done, job.total, job.author) for job in (clock, sleep)] == [
        ("done", 2, 2, "local-admin"),
        ("done", 1, 1, "local-admin"),
    ]
    entries = [entry for entry in await site.service.ledger.latest() if entry.action == "limits.set"]
    assert [(entry.author, entry.target, entry.detail) for entry in entries] == [
        ("local-admin", f"n{nids[0]:05d}", {"limits": {"sleep-limit": 2}, "nodes": 1}),
        (
            "local-admin",
            fold(f"n{nid:05d}" for nid in nids),
            {"limits": {"freq-min": 1400000, "freq-max": 2000000}, "nodes": 2},
        ),
    ]


async def test_reading_limits_is_no_job(site: CapmcSite) -> None:
    await site.ask("get_freq_limits", "-n", listed(compute(site)))
    assert await limit_jobs_of(site) == []


async def test_a_job_that_was_half_done_goes_on_after_a_restart(site: CapmcSite) -> None:
    uids = site.view.nodes().uids[site.view.nodes().compute][:3]
    arguments = {"uids": intset.pack(np.sort(uids)), "changes": [("freq-max", 2000000)], "ticket": "gone", "asked": 1.0}
    job = OperationRow(
        id="00000000001aaaaaa", kind=KIND, author="slurm", created=1.0, arguments=arguments, total=3, state="running",
        position=1, done=1, owner=site.service.operations._owner, instance="before",
    )  # fmt: skip
    await site.service.controller.store.txn([Put(f"job/{job.id}", encode(job))])
    assert await site.service.operations.recover() == [job.id]
    assert (ended := await site.service.operations.wait(job.id)).state == "done"
    assert (ended.done, ended.failed) == (3, 0)
    assert [(await range_of(site, nid))[1] for nid in compute(site)[:3]] == [2601000, 2000000, 2000000]


class Slow(VirtualNodes):
    """The first set waits until it may go on."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.begun = asyncio.Event()
        self.go = asyncio.Event()

    async def set(
        self, names: Sequence[str], changes: Sequence[tuple[Attribute, int]]
    ) -> Mapping[str, Sequence[Value] | StrataError]:
        """As its parent does it, later."""
        if not self.begun.is_set():
            self.begun.set()
            await self.go.wait()
        return await super().set(names, changes)


async def test_a_cancelled_job_sets_nothing_more_and_who_waits_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limit_jobs, "_CHUNK", 1)
    slow = Slow(tmp_path / "kernels")
    async with capmc_site(tmp_path, 8, inband=slow) as site:
        nids = compute(site)[:3]
        asked = asyncio.create_task(site.ask("set_freq_limits", "-n", listed(nids), "-m", "1400000", "-M", "2000000"))
        async with asyncio.timeout(60):
            await slow.begun.wait()
            [job] = await limit_jobs_of(site)
            await site.service.operations.cancel(job.id, "a person")
            slow.go.set()
            reply = await asked
        assert reply["e"] == 52
        why = [one["PWR_ErrorMessages"] for one in data(reply)]
        assert why == [None, f"operation {job.id} was cancelled", f"operation {job.id} was cancelled"]
        assert [(await range_of(site, nid))[1] for nid in nids] == [2000000, 2601000, 2601000]


async def test_a_later_request_is_not_undone_by_an_earlier_one_that_is_still_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limit_jobs, "_CHUNK", 1)
    slow = Slow(tmp_path / "kernels")
    async with capmc_site(tmp_path, 8, inband=slow) as site:
        nids = compute(site)[:3]
        early = asyncio.create_task(site.ask("set_sleep_state_limit", "-n", listed(nids), "-l", "1"))
        async with asyncio.timeout(60):
            await slow.begun.wait()
            assert (await site.ask("set_sleep_state_limit", "-n", str(nids[2]), "-l", "4"))["e"] == 0
            assert (await site.ask("set_freq_limits", "-n", str(nids[1]), "-m", "1400000", "-M", "2000000"))["e"] == 0
            slow.go.set()
            reply = await early
        why = [one["PWR_ErrorMessages"] for one in data(reply)]
        assert why == [None, None, "not set: a later request gave the node other limits"]
        read = data(await site.ask("get_sleep_state_limit", "-n", listed(nids)))
        assert [one["PWR_Attrs"][0]["PWR_AttrValue"] for one in read] == [1, 1, 4]


async def test_who_has_waited_long_enough_is_told_which_job_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cap_jobs, "PATIENCE", 0.2)
    slow = Slow(tmp_path / "kernels")
    async with capmc_site(tmp_path, 8, inband=slow) as site:
        nid = compute(site)[0]
        [one] = data(await site.ask("set_sleep_state_limit", "-n", str(nid), "-l", "1"))
        [job] = await limit_jobs_of(site)
        assert one["PWR_ErrorMessages"] == f"not finished after 0 s; it goes on as operation {job.id}"
        slow.go.set()
        assert (await site.service.operations.wait(job.id)).done == 1
        [one] = data(await site.ask("get_sleep_state_limit", "-n", str(nid)))
        assert one["PWR_Attrs"][0]["PWR_AttrValue"] == 1


# what is refused


async def test_service_nodes_are_refused_and_then_nothing_is_changed(site: CapmcSite) -> None:
    service, good = compute(site)[:2]
    index = site.service.registry.index_of(f"n{service:05d}")
    node = msgspec.structs.replace(site.service.registry.node_at(index), role="service")
    put = Put(f"node/{node.name}", msgspec.msgpack.encode(node))
    await site.service.settled(await site.service.controller.store.txn([put]))
    reply = await site.ask("set_freq_limits", "-n", listed([service, good]), "-m", "1400000", "-M", "2000000")
    assert reply == {
        "e": 22,
        "err_msg": "Invalid argument",
        "nids": [{"nid": service, "e": 22, "err_msg": "Invalid type, not a compute node"}],
    }
    assert await limit_jobs_of(site) == []
    assert await range_of(site, good) == [1200000, 2601000]
    assert await range_of(site, service) == [1200000, 2601000], "to look is allowed"


async def test_frozen_nodes_are_left_alone_and_the_others_are_set(site: CapmcSite) -> None:
    frozen, free = compute(site)[:2]
    await site.service.settled(await site.service.edits.freeze(f"node:n{frozen:05d}", "smoke", "a person"))
    reply = await site.ask("set_sleep_state_limit", "-n", listed([frozen, free]), "-l", "1")
    assert reply["e"] == 52
    assert [one["PWR_ErrorMessages"] for one in data(reply)] == [FROZEN, None]
    [job] = await limit_jobs_of(site)
    assert (job.done, job.errors) == (1, (OperationError(node=f"n{frozen:05d}", detail=FROZEN),))
    read = data(await site.ask("get_sleep_state_limit", "-n", listed([frozen, free])))
    assert [one["PWR_Attrs"][0]["PWR_AttrValue"] for one in read] == [5, 1]


@pytest.mark.parametrize(("low", "high"), [("2600000", "1200000"), ("1400000", "9999999")])
async def test_a_range_that_cannot_be_changes_nothing(site: CapmcSite, low: str, high: str) -> None:
    nid = compute(site)[0]
    reply = await site.ask("set_freq_limits", "-n", str(nid), "-m", low, "-M", high)
    assert reply["e"] != 0
    assert await range_of(site, nid) == [1200000, 2601000]


async def test_a_reversed_range_is_refused_in_words_and_no_job(site: CapmcSite) -> None:
    reply = await site.ask("set_freq_limits", "-n", str(compute(site)[0]), "-m", "2600000", "-M", "1200000")
    assert reply == {
        "e": 400,
        "err_msg": "Bad Request: PWR_ATTR_FREQ_LIMIT_MIN 2600000 is above PWR_ATTR_FREQ_LIMIT_MAX 1200000",
    }
    assert await limit_jobs_of(site) == []


async def test_a_limit_that_fails_says_why(site: CapmcSite) -> None:
    nid = compute(site)[0]
    [one] = data(await site.ask("set_sleep_state_limit", "-n", str(nid), "-l", "9"))
    assert one["PWR_ErrorMessages"] == "PWR_ATTR_CSTATE_LIMIT: sleep-limit: 9 is not a sleep state (0 to 5)"
    assert one["PWR_ReturnCode"] == -1


# through agents


class Nodes:
    """The limits of machines as their agents keep them, asked as the service asks."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.gone: set[str] = set()

    def paths(self, name: str) -> Paths:
        """Where one machine's files are."""
        paths = Paths(run=self._directory / name / "run", root=self._directory / name / "root")
        paths.proc("cpuinfo").parent.mkdir(parents=True, exist_ok=True)
        paths.proc("cpuinfo").write_text("flags : fpu hypervisor\n")
        return paths

    async def command(self, name: str, wanted: Mapping[str, int]) -> Mapping[str, Any]:
        """Have it done."""
        if name in self.gone:
            raise Unavailable("its agent has not been heard of", where=name)
        try:
            done = await asyncio.to_thread(lambda: Limits(self.paths(name)).apply(dict(wanted)))
        except CommandFailed as error:
            raise DeviceError(str(error), node=name, request="limits") from None
        told: dict[str, Any] = json.loads(base64.b64decode(done["output"]))
        return told


async def test_agents_on_virtual_machines_answer_every_question_about_limits(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path / "machines")
    async with capmc_site(tmp_path, 8, inband=AgentNodes(nodes.command)) as site:
        nid, lost = compute(site)[:2]
        nodes.gone = {f"n{lost:05d}"}
        [one] = data(await site.ask("get_freq_capabilities", "-n", str(nid)))
        clocks = one["PWR_Attrs"][0]["PWR_AttrValueCapabilities"]
        assert len(clocks) > 2 and clocks == sorted(clocks)

        reply = await site.ask("get_freq_limits", "-n", str(nid))
        assert (reply["e"], reply["err_msg"]) == (0, "Success")
        values = [attribute["PWR_AttrValue"] for attribute in data(reply)[0]["PWR_Attrs"]]
        assert values == [clocks[-1], clocks[0], clocks[-1]]

        wanted = ("-m", str(clocks[1]), "-M", str(clocks[2]))
        assert (await site.ask("set_freq_limits", "-n", str(nid), *wanted))["e"] == 0
        reply = await site.ask("get_freq_limits", "-n", str(nid))
        values = [attribute["PWR_AttrValue"] for attribute in data(reply)[0]["PWR_Attrs"]]
        assert values == [clocks[2], clocks[1], clocks[2]], "the clock stays within its limits"

        [one] = data(await site.ask("get_sleep_state_limit_capabilities", "-n", str(nid)))
        assert one["PWR_Attrs"][0]["PWR_AttrValueCapabilities"] == [0, 1, 2, 3]
        [one] = data(await site.ask("set_sleep_state_limit", "-n", str(nid), "-l", "9"))
        assert "choose from 0 to 3" in one["PWR_ErrorMessages"]
        reply = await site.ask("set_sleep_state_limit", "-n", listed([nid, lost]), "-l", "1")
        assert reply["e"] == 52
        assert [one["PWR_ErrorMessages"] for one in data(reply)] == [
            None,
            f"n{lost:05d}: its agent has not been heard of",
        ]


async def test_what_a_kernel_does_not_tell_is_named_beside_what_it_does(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path / "machines")
    async with capmc_site(tmp_path, 8, inband=AgentNodes(nodes.command)) as site:
        nid = compute(site)[0]
        await site.ask("get_freq_limits", "-n", str(nid))
        (nodes.paths(f"n{nid:05d}").run / "cpu/cpufreq/policy0/scaling_cur_freq").unlink()
        reply = await site.ask("get_freq_limits", "-n", str(nid))
        assert reply["e"] == 52
        [one] = data(reply)
        assert one["PWR_ErrorMessages"] == "PWR_ATTR_FREQ: it does not tell"
        assert [attribute["PWR_ReturnCode"] for attribute in one["PWR_Attrs"]] == [-1, 0, 0]
