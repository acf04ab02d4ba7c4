"""Commits that reach nodes in waves, on simulated clusters in virtual time: canary first, taken back where they do
harm, carried on whatever controller dies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from strata.core.errors import Conflict
from strata.core.node import Node
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.budgets.service import BudgetService
from strata.fleet.fleet import Fleet
from strata.fleet.plans.service import PlanService
from strata.platform.config.records import Approval, ConfigDone, Configuration, RollingView, WatchSpec
from strata.platform.config.repository import Repository
from strata.platform.config.service import ConfigService
from strata.platform.rollouts.records import AbortRequest
from strata.platform.rollouts.service import RolloutService
from strata.virtual import timewarp
from support.platform_fleet import platform_fleet, until
from support.simulated_cluster import READY, Cluster, twin
from support.site_repository import small_site

LONG = 6 * 3600.0
POLICY = "kind: rollout-policy\nwaves: [1, 100%]\nsoak: 5s\nmax_unavailable: 25%\n"

pytestmark = pytest.mark.slow


class GitCluster(Cluster):
    """Whose nodes want what a repository says, and nothing by themselves."""

    config: ConfigService

    async def open_config(self) -> None:
        self.fleet.put(self.rollouts, RolloutService)
        self.fleet.put(PlanService(self.fleet))
        self.fleet.put(BudgetService(self.fleet))
        self.config = self.fleet.put(ConfigService(self.fleet))
        await self.config.start()
        await self.config._rolling.start()

    async def close_config(self) -> None:
        await self.config.stop()

    async def say(self, configuration: Configuration) -> ConfigDone:
        return await self.config.apply(LOCAL_ADMIN, configuration)

    async def rolling(self) -> RollingView | None:
        return (await self.config.status(LOCAL_ADMIN)).rolling

    async def over(self) -> None:
        """Let time pass until no commit is on its way."""
        found = self.config._rolling
        await self.watch(lambda: (view := found.shown()) is None or bool(view.failed), LONG)

    def images(self) -> dict[str, int]:
        found = self.sim.truth("image", self.sim.all, asyncio.get_running_loop().time()).values()
        return {image: found.count(image) for image in set(found) if image is not None}

    def said_by_nodes(self) -> int:
        """On how many nodes an image is set by themselves."""
        uids = self.fleet.registry.uids
        return int((self.fleet.registry.desires.overrides.codes("image", uids, lambda _: 1) > 0).sum())


def commit(letter: str, image: str, more: str = POLICY, **other: str) -> Configuration:
    """A commit that wants an image of all nodes, and ``other`` images of some."""
    wanted = {name: values[0] for name, values in READY.items()} | {"image": image}
    text = f"kind: desire\nname: all\nselect: '*'\nset: {wanted}\n"
    for node, own in other.items():
        text += f"---\nkind: desire\nname: {node}\nselect: {node}\nset: {{image: {own}}}\n"
    files = {"site/all.yaml": text.encode(), **({"site/policy.yaml": more.encode()} if more else {})}
    return Repository(files, commit=letter * 40).configuration()


def on(count: int, story: Callable[[GitCluster], Awaitable[None]]) -> None:
    async def told() -> None:
        cluster = GitCluster(twin(count), 1)
        await cluster.open(cluster.store)
        await cluster.describe()
        nodes = cluster.fleet.registry.alive.nonzero()[0]
        done = await cluster.fleet.edits.set_desires(nodes, {}, list(READY), "test")
        await cluster.fleet.settled(done.revision)
        await cluster.open_config()
        await cluster.say(commit("a", "v1", more=""))
        await cluster.watch(lambda: cluster.fleet.controller.counts()["ready"] == count, LONG)
        cluster.change = {"image": ("v2",)}
        try:
            await story(cluster)
        finally:
            await cluster.close_config()
            await cluster.close()
            await cluster.store.close()

    timewarp.run(told())


def test_a_commit_reaches_a_canary_first_then_the_others_and_is_applied_when_all_have_it() -> None:
    async def story(cluster: GitCluster) -> None:
        second = commit("b", "v2")
        planned = await cluster.config.plan(LOCAL_ADMIN, second)
        (part,) = planned.rollouts
        assert (part.nodes, part.set, part.waves) == (12, {"image": ("v2",)}, (1, 11))
        assert planned.disrupted == 12
        assert planned.places == 1 and planned.all_seconds == 12 * planned.seconds > 0, "a tenth of them at a time"
        done = await cluster.say(second)
        assert done.rollouts == (part.name,)
        await cluster.watch(lambda: cluster.rollouts.find(part.name) is not None, LONG)
        with pytest.raises(Conflict, match="bbbbbbbbbbbb is being rolled out"):
            await cluster.say(commit("c", "v3"))
        await cluster.watch(lambda: cluster.images() == {"v1": 11, "v2": 1}, LONG)
        assert cluster.config.applied.commit == "a" * 40, "until all have it, nothing but the nodes says it"
        await cluster.over()
        assert cluster.images() == {"v2": 12}
        assert cluster.config.applied.commit == "b" * 40
        assert await cluster.rolling() is None
        assert cluster.said_by_nodes() == 0, "the document says it now"
        assert (await cluster.say(second)).changes == ()

        back = await cluster.say(commit("c", "v1"))
        assert len(back.rollouts) == 1, "a revert goes in waves, too"
        await cluster.over()
        assert (cluster.images(), cluster.config.applied.commit) == ({"v1": 12}, "c" * 40)

    on(12, story)


def test_a_commit_that_breaks_its_canary_goes_back_and_is_not_applied() -> None:
    async def story(cluster: GitCluster) -> None:
        cluster.bad = frozenset(cluster.names)
        done = await cluster.say(commit("b", "v2"))
        await cluster.over()
        found = await cluster.rolling()
        assert found is not None and done.rollouts[0] in found.failed
        await cluster.watch(lambda: cluster.images() == {"v1": 12}, LONG)
        assert cluster.said_by_nodes() == 0
        assert cluster.config.applied.commit == "a" * 40, "the last good configuration stays"
        cluster.bad = frozenset()
        again = await cluster.say(commit("b", "v2"))
        assert again.rollouts != done.rollouts, "the first one's story is kept"
        await cluster.over()
        assert (cluster.images(), cluster.config.applied.commit) == ({"v2": 12}, "b" * 40)

    on(12, story)


def test_parts_of_a_commit_are_rolled_out_side_by_side_and_go_back_together() -> None:
    async def story(cluster: GitCluster) -> None:
        cluster.change = {"image": ("v3",)}
        cluster.bad = frozenset(("n00003",))
        done = await cluster.say(commit("b", "v2", n00003="v3"))
        assert len(done.rollouts) == 2
        await cluster.over()
        found = await cluster.rolling()
        assert found is not None and found.failed
        await cluster.watch(lambda: cluster.images() == {"v1": 8}, LONG)
        assert cluster.said_by_nodes() == 0

    on(8, story)


def test_a_commit_on_its_way_survives_its_controller_at_any_point() -> None:
    async def story(cluster: GitCluster) -> None:
        await cluster.say(commit("b", "v2"))
        for seconds in (0.5, 20.0, 90.0, 200.0):
            until = asyncio.get_running_loop().time() + seconds
            await cluster.watch(lambda until=until: asyncio.get_running_loop().time() >= until, LONG)  # type: ignore[misc]
            await cluster.close_config()
            await cluster.crash()
            await cluster.open(cluster.store)
            await cluster.open_config()
        await cluster.over()
        await cluster.watch(lambda: cluster.images() == {"v2": 10}, LONG)
        assert cluster.config.applied.commit == "b" * 40
        assert cluster.said_by_nodes() == 0

    on(10, story)


def test_a_personality_that_is_changed_under_its_own_name_is_refused_where_waves_are_wanted() -> None:
    async def story(cluster: GitCluster) -> None:
        config, second = cluster.config, commit("b", "v2")
        found, prepared = await config._prepared(second, "ann")
        outlook = await config._outlook(second, found, prepared)
        changed = outlook._replace(switched={"web": "n00001"})
        refused = config._rolling.outline(second, found, changed, "policy").refused
        assert refused.startswith("the personality web would be another on all its nodes")
        assert config._rolling.outline(second, found, changed, "at-once").refused == ""

    on(2, story)


def test_what_disrupts_nobody_and_what_is_told_so_goes_at_once() -> None:
    async def story(cluster: GitCluster) -> None:
        same = await cluster.say(commit("b", "v1"))
        assert (same.rollouts, cluster.config.applied.commit) == ((), "b" * 40), "only the policy is new"
        done = await cluster.config.apply(LOCAL_ADMIN, commit("c", "v2"), way="at-once")
        assert (done.rollouts, cluster.config.applied.commit) == ((), "c" * 40)
        forced = await cluster.config.plan(LOCAL_ADMIN, commit("d", "v1", more=""), way="rollout")
        assert [part.nodes for part in forced.rollouts] == [4]
        assert (await cluster.config.plan(LOCAL_ADMIN, commit("d", "v1", more=""))).rollouts == ()

    on(4, story)


async def test_a_followed_branch_says_what_its_commit_waits_for_and_tries_no_bad_one_twice(tmp_path: Path) -> None:
    site = small_site(tmp_path / "site")
    site.commit({"site/policy.yaml": "kind: rollout-policy\ncommits: all\nwaves: [1, 100%]\nsoak: 0s\n"})
    nodes = [Node(name=f"n{number}", uid=0, nid=number) for number in range(1, 5)]
    async with platform_fleet(tmp_path, nodes, RolloutService) as fleet:
        config = fleet.of(ConfigService)
        watched = WatchSpec(url=str(site.directory), policy="auto", every=86_400)
        await config.watch(LOCAL_ADMIN, watched)
        first = await config.look(LOCAL_ADMIN)
        assert first.rolling is not None
        (name,) = first.rolling.rollouts
        seen = await config.look(LOCAL_ADMIN)
        assert seen.waits_for == f"the rollouts {name}"
        await ended(fleet, name)
        again = await config.look(LOCAL_ADMIN)
        assert again.waits_for == f"approval: rolled back by {name}: not today"
        assert again.commit == "", "nothing of it is applied"
        approved = await config.approve(LOCAL_ADMIN, Approval(commit=again.seen))
        assert approved.rolling is not None and approved.rolling.rollouts != (name,)
        await ended(fleet, *approved.rolling.rollouts)
        assert (await config.look(LOCAL_ADMIN)).waits_for.startswith("approval: rolled back by")


async def ended(fleet: Fleet, name: str) -> None:
    """No simulated node has the names of this site, so a rollout goes back; and is ended by a person."""
    rollouts, rolling = fleet.of(RolloutService), fleet.of(ConfigService)._rolling
    await until(lambda: (one := rollouts.find(name)) is not None and one.state == "rolling-back")
    await rollouts.abort(LOCAL_ADMIN, name, AbortRequest(reason="not today"))
    await until(lambda: (view := rolling.shown()) is not None and bool(view.failed))
