"""The driver ``workload`` over workload managers that behave: what it believes, does and refuses."""

from __future__ import annotations

import asyncio
import time

import numpy as np
import pytest

from strata.core.driver import Batch
from strata.core.errors import BadRequest, DeviceError, Unavailable
from strata.core.state import Outcome
from strata.platform.model import LAYER
from strata.platform.no_workload import NoWorkload
from strata.platform.workload.cluster import Cluster, jobs_in_words
from strata.platform.workload.driver import WorkloadDriver
from strata.platform.workload.records import WorkloadSpec
from support.fake_scheduler import FakeScheduler

STEPS = {mutation.name: mutation for mutation in LAYER.mutations}
AWAY = Unavailable("the command did not end within 30 s and was killed", where="sinfo")


class Site:
    """One or more workload managers, and the driver."""

    def __init__(self, *schedulers: FakeScheduler, names: dict[str, str] | None = None) -> None:
        spec = WorkloadSpec(kind="slurm", names=names or {})
        self.now = 1000.0
        self.clusters = [
            Cluster(f"c{number}", spec, scheduler, clock=lambda: self.now)
            for number, scheduler in enumerate(schedulers)
        ]
        self.driver = WorkloadDriver(
            lambda: self.clusters, NoWorkload(required=True), why=lambda name: "to switch-image", clock=lambda: self.now
        )

    async def places(self, *names: str) -> list[str]:
        return (await self.driver.observe(["workload"], batch(*names)))["workload"].values()

    async def refusal(self, name: str) -> str:
        return (await self.driver.permits("no-running-job", batch(name)))[0]

    async def do(self, step: str, *names: str, **more: object) -> list[tuple[Outcome, str]]:
        outcomes = await self.driver.act(STEPS[step], batch(*names, **more))
        return [(Outcome(code), outcomes.reasons.get(at, "")) for at, code in enumerate(outcomes.codes.tolist())]


def batch(*names: str, **more: object) -> Batch:
    return Batch(names=names, uids=np.arange(len(names)), **more)  # type: ignore[arg-type]


async def test_a_node_is_out_when_it_is_drained_and_its_last_job_has_ended() -> None:
    slurm = FakeScheduler("n1")
    site = Site(slurm)
    assert await site.places("n1") == ["in"]
    slurm.be("n1", jobs=("7",))
    assert await site.do("leave-workload", "n1") == [(Outcome.DONE, "")]
    assert slurm.told == [("drain", "n1")] and slurm.reasons == ["to switch-image"]
    assert await site.places("n1") == ["in"]
    assert await site.refusal("n1") == "job 7 runs there (slurm c0)"
    slurm.be("n1", jobs=())
    site.now += 10
    assert await site.places("n1") == ["out"]
    assert await site.refusal("n1") == ""


async def test_the_guard_asks_at_that_moment_and_never_goes_by_what_was_seen_before() -> None:
    slurm = FakeScheduler("n1")
    slurm.be("n1", drained=True)
    site = Site(slurm)
    assert await site.places("n1") == ["out"]
    slurm.be("n1", drained=False, jobs=("8",))
    assert await site.places("n1") == ["out"], "a fact may be some seconds old"
    assert await site.refusal("n1") == "job 8 runs there (slurm c0)"


async def test_a_look_that_began_before_the_question_is_no_answer_to_it() -> None:
    slurm = FakeScheduler("n1")
    slurm.be("n1", drained=True)
    slurm.gate = asyncio.Event()
    site = Site(slurm)
    early = asyncio.create_task(site.places("n1"))
    await slurm.looking.wait()
    slurm.be("n1", jobs=("9",))  # after the look saw that there was none
    guards = [asyncio.create_task(site.refusal("n1")) for _ in range(5)]
    await asyncio.sleep(0)
    slurm.gate.set()
    assert await early == ["out"]
    assert await asyncio.gather(*guards) == ["job 9 runs there (slurm c0)"] * 5
    assert slurm.looks == 2, "all questions of the same moment share one look"


async def test_whoever_waits_for_a_connection_that_is_ended_is_told_so_and_that_is_a_no() -> None:
    slurm = FakeScheduler("n1")
    slurm.gate = asyncio.Event()
    site = Site(slurm)
    asked = asyncio.create_task(site.refusal("n1"))
    await slurm.looking.wait()
    await site.clusters[0].close()
    assert "its connection was changed" in await asked


async def test_whatever_is_not_sure_is_a_no() -> None:
    slurm = FakeScheduler("idle", "odd", "down", "drained", "held")
    slurm.be("odd", understood=False, drained=True, state="dancing")
    slurm.be("down", down=True, state="down")
    slurm.be("drained", drained=True)
    slurm.be("held", drained=True, jobs=("?",))
    site = Site(slurm)
    assert "may start a job there at any moment" in await site.refusal("idle")
    assert "says 'dancing', which can mean anything" in await site.refusal("odd")
    assert await site.refusal("held") == "a job runs there (slurm c0)"
    assert await site.refusal("down") == await site.refusal("drained") == await site.refusal("stranger") == ""
    assert await site.places("idle", "odd", "down", "drained", "held", "stranger") == [
        *("in", "unknown", "in", "out", "in", "out")
    ]
    slurm.error = AWAY
    for name in (*slurm.nodes, "stranger"):
        assert "slurm c0 does not answer" in await site.refusal(name)
    assert all(await site.driver.permits("another-guard", batch("drained")))


async def test_what_the_workload_manager_itself_switched_off_is_out_without_a_drain_until_a_job_has_it() -> None:
    slurm = FakeScheduler("n1")
    slurm.be("n1", state="idle+powering_down", boots_first=True)
    site = Site(slurm)
    assert await site.places("n1") == ["out"] and await site.refusal("n1") == ""
    assert await site.do("leave-workload", "n1") == [(Outcome.DONE, "")], "the fact may be from before"
    slurm.be("n1", state="allocated+powered_down", jobs=("8",))
    site.now += 10
    assert await site.places("n1") == ["in"]
    assert await site.refusal("n1") == "job 8 runs there (slurm c0)"
    assert slurm.told == []


async def test_where_nobody_answers_nothing_is_seen_and_it_is_said_why() -> None:
    slurm = FakeScheduler("n1")
    slurm.error = AWAY
    seen = (await Site(slurm).driver.observe(["workload"], batch("n1")))["workload"]
    assert seen.values() == ["unknown"]
    assert "did not end within 30 s" in seen.reasons[0]


async def test_of_two_workload_managers_both_must_have_let_go() -> None:
    old, new = FakeScheduler("n1", "n2"), FakeScheduler("n1")
    site = Site(old, new)
    assert await site.do("leave-workload", "n1", "n2") == [(Outcome.DONE, "")] * 2
    assert old.told == [("drain", "n1", "n2")] and new.told == [("drain", "n1")]
    new.be("n1", jobs=("5",))
    site.now += 10
    assert await site.places("n1", "n2") == ["in", "out"]
    assert await site.refusal("n1") == "job 5 runs there (slurm c1)"
    new.error = AWAY
    site.now += 10
    assert await site.places("n1", "n2") == ["unknown", "unknown"]
    assert "slurm c1 does not answer" in await site.refusal("n2"), "it may have come to know it"


async def test_what_a_person_drained_is_neither_drained_again_nor_resumed() -> None:
    slurm = FakeScheduler("n1", "n2")
    slurm.be("n1", drained=True, reason="bad DIMM", by="anna")
    site = Site(slurm)
    assert await site.do("leave-workload", "n1", "n2") == [(Outcome.DONE, "")] * 2
    assert slurm.told == [("drain", "n2")]
    assert await site.do("join-workload", "n1", "n2") == [
        (Outcome.UNTRIED, "anna drained it in slurm c0 (bad DIMM): only people resume that"),
        (Outcome.DONE, ""),
    ]
    assert slurm.told[1:] == [("resume", "n2")]


async def test_a_node_that_no_workload_manager_knows_leaves_and_cannot_join() -> None:
    site = Site(FakeScheduler("n1"))
    assert await site.do("leave-workload", "n9") == [(Outcome.DONE, "")]
    assert await site.do("join-workload", "n9") == [(Outcome.UNTRIED, "no connected workload manager knows it")]


async def test_whoever_lost_the_lead_tells_the_workload_manager_nothing() -> None:
    slurm = FakeScheduler("n1")
    site = Site(slurm)
    ((outcome, _),) = await site.do("leave-workload", "n1", valid_until=site.now - 1)
    assert outcome == Outcome.FENCED and slurm.told == []


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(AWAY, Outcome.UNKNOWN), (DeviceError("Access/permission denied", node="scontrol"), Outcome.FAILED)],
)
async def test_a_drain_that_has_no_answer_is_unknown_and_one_that_is_refused_has_failed(
    error: Unavailable | DeviceError, outcome: Outcome
) -> None:
    slurm = FakeScheduler("n1")
    slurm.refuses = error
    ((found, why),) = await Site(slurm).do("leave-workload", "n1")
    assert found == outcome and error.detail in why


async def test_a_look_from_before_an_act_says_nothing_of_the_nodes_that_were_acted_on() -> None:
    slurm = FakeScheduler("n1", "n2")
    site = Site(slurm)
    site.now = began = time.monotonic()
    assert await site.places("n1") == ["in"]
    site.now += 1
    await site.do("leave-workload", "n1")
    assert site.driver.told_since(began) == {"n1"}
    site.now += 1
    assert await site.places("n1", "n2") == ["out", "in"], "asked anew, although the last look was a moment ago"
    assert site.driver.told_since(site.now) == set()


async def test_names_are_the_workload_managers_own_where_it_has_others() -> None:
    slurm = FakeScheduler("nid00001", "nid00002")
    site = Site(slurm, names={"n[1-2]": "nid[00001-00002]"})
    await site.do("leave-workload", "n2")
    assert slurm.told == [("drain", "nid00002")]
    assert await site.places("n1", "n2", "nid00001") == ["in", "out", "in"]


@pytest.mark.parametrize("names", [{"n[1-2]": "nid1"}, {"n1": "x", "n2": "x"}])
def test_names_that_do_not_fit_are_refused(names: dict[str, str]) -> None:
    with pytest.raises(BadRequest):
        Site(FakeScheduler(), names=names)


async def test_where_none_is_connected_nobody_says_that_no_job_runs() -> None:
    assert "no workload manager is connected" in await Site().refusal("n1")
    with pytest.raises(BadRequest):
        await Site().do("leave-workload", "n1")


def test_jobs_are_told_in_words() -> None:
    assert jobs_in_words(["7"]) == "job 7 runs there"
    assert jobs_in_words(["7_1", "8", "9", "10", "11"]) == "jobs 7_1, 8, 9 and 2 more run there"
