"""The ten promises of the design, each as one check over a run. Named as they are numbered there."""

from __future__ import annotations

import asyncio
import itertools

import msgspec
import numpy as np

from simulation.network import CANARY
from simulation.world import DESTRUCTIVE, WATTS, World
from strata.core.errors import StrataError
from strata.core.model import Mutation
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.desires.records import DesireChange
from strata.fleet.registry.registry import Registry
from strata.store.audit import Ledger, verify


def promise_2_at_most_one_effect_per_node_and_generation(world: World) -> None:
    """Nothing is carried out twice, and nothing by one who no longer leads."""
    for node, epoch, generation in world.sim.effects.twice():
        world.broken(2, f"{world.sim.names[node]} took generation {generation} of epoch {epoch} twice")
    rows = world.sim.effects.rows
    for node in range(world.plot.nodes):
        mine = rows[rows["node"] == node]
        fences = list(zip(mine["epoch"].tolist(), mine["generation"].tolist(), strict=True))
        if fences != sorted(fences):
            world.broken(2, f"{world.sim.names[node]} took an older fence after a newer one")
    if not (world.plot.faults.power_null or world.plot.faults.agent_silent):  # nobody can act well on lies
        for node in range(world.plot.nodes):
            _check_repeats(world, node)


def _check_repeats(world: World, node: int) -> None:
    """The same step, twice in a row, on a node that has it already (or is at it): it was not looked at."""
    rows = world.sim.effects.rows
    mine = rows[rows["node"] == node]
    for before, row in itertools.pairwise(mine):
        mutation = world.model.mutations[world.sim.effects.mutations[row["mutation"]]]
        # A step that is right whatever the value was may be told to a node that cannot be seen.
        harmless = mutation.idempotent or "unknown" in mutation.start
        if row["idle"] and row["mutation"] == before["mutation"] and not harmless:
            name = world.sim.names[node]
            world.broken(2, f"{name} was told to {mutation.name} again at {row['time']:.1f} s")


def promise_3_a_failure_of_strata_never_hurts_a_running_job(world: World) -> None:
    """No job loses its node through anything that we did."""
    lost = np.flatnonzero(world.sim.jobs.lost)
    if len(lost):
        world.broken(3, f"{len(lost)} nodes lost a job, {world.sim.names[lost[0]]} first")


def promise_4_nothing_destructive_is_done_on_unknown(world: World) -> None:
    """Watched at every act: the one who acts knows all that the step depends on."""

    def check(mutation: Mutation, name: str) -> None:
        original = DESTRUCTIVE.get(mutation.name)
        if original is None:
            return
        for member in world.members:
            if member.service is None:
                continue
            controller = member.service.controller
            index = controller.registry.find(name)
            if index < 0 or controller.engine.progress.epoch[index] == 0:
                continue
            column = controller.engine.table.columns[original.variable]
            if column.fact[index] == 0 and controller.engine.progress.start_fact[index] == 0:
                world.broken(4, f"{mutation.name} was sent to {name} while {original.variable} was unknown")

    world.at_every_act.append(check)


def promise_5_destructive_work_is_braked(world: World) -> None:
    """A held node is left alone; never more than a tenth of the fleet (at least one) is being taken down."""

    def not_held(mutation: Mutation, name: str) -> None:
        if name in world.held:
            world.broken(5, f"{mutation.name} was sent to {name}, which a person holds")

    def within_budget() -> None:
        """What the devices are really doing counts, whoever told them."""
        under_way = world.sim.under_way(asyncio.get_running_loop().time())
        down = [name for name, mutation in under_way.items() if mutation in DESTRUCTIVE]
        most = max(1, world.plot.nodes // 10)
        if len(down) > most:
            world.broken(5, f"{', '.join(down)} were being taken down at once, {most} may")

    world.at_every_act.append(not_held)
    world.every_second.append(within_budget)


def promise_6_the_site_power_limit_is_never_exceeded(world: World) -> None:
    """What is switched on never sums to more than the site carries."""

    def check() -> None:
        now = asyncio.get_running_loop().time()
        on = sum(value == "on" for value in world.sim.truth("power", world.sim.all, now).values())
        if on > world.plot.site_nodes:
            world.broken(6, f"{on * WATTS:.0f} W are switched on, the site carries {world.plot.site_nodes * WATTS:.0f}")

    world.every_second.append(check)


async def promise_1_an_acknowledged_desire_is_never_lost(world: World) -> None:
    """What was acknowledged last is what stands."""
    registry = Registry(world.store, world.model)
    await registry.load()
    for name, image in world.wanted.items():
        stands = {d.variable: d.values for d in registry.desires.of(registry.index_of(name))}.get("image")
        if stands != (image,):
            world.broken(1, f"{name} should have image {image}; the store says {stands}")


async def promise_7_no_secret_ever_appears(world: World) -> None:
    """The canary that drivers were given is in no log line, no row of the store, no explanation."""
    if CANARY in world.log.getvalue():
        world.broken(7, "a secret is in the log")
    page = await world.store.range("")
    for entry in page.entries:
        if CANARY.encode() in entry.value:
            world.broken(7, f"a secret is in the store, under {entry.key}")
            return


async def promise_8_bad_input_changes_nothing(world: World) -> None:
    """Nonsense gets an error that says where, and the store stays as it was."""
    service = next(m.service for m in world.members if m.service is not None)
    for wanted in ({"power": ["sideways"]}, {"colour": ["red"]}, {"power": ["unknown"]}, {"image": [""]}):
        before = (await world.store.range("desire/")).entries
        try:
            change = msgspec.convert({"select": "*", "set": wanted}, DesireChange)
            await service.set_desires(LOCAL_ADMIN, change, False)
            world.broken(8, f"{wanted} was accepted")
        except (StrataError, msgspec.ValidationError):
            pass
        after = (await world.store.range("desire/")).entries
        if before != after:
            world.broken(8, f"{wanted} changed something")


async def promise_9_every_write_has_an_author_in_the_audit_log(world: World) -> None:
    """Each revision that changed what people say has its record, and the chain holds."""
    report = await verify(world.store)
    if not report.ok:
        world.broken(9, f"the chain breaks at {report.first_bad}: {report.reason}")
    recorded = {entry.modified for entry in (await world.store.range("audit/")).entries}
    for prefix in ("node/", "desire/", "hold/", "freeze/", "group/"):
        for entry in (await world.store.range(prefix)).entries:
            if entry.modified not in recorded:
                world.broken(9, f"{entry.key} was written without a record")
                return
    if any(not entry.author for entry in await Ledger(world.store).entries(0, 10_000)):
        world.broken(9, "a record has no author")


async def promise_10_a_whole_machine_request_is_tracked(world: World) -> None:
    """A job that its controller left unfinished is taken up by another, and ends."""
    service = next(m.service for m in world.members if m.service is not None)
    arguments = {"uids": ((1, world.plot.nodes),), "set": {"config": ["r1"]}, "unset": [], "author": "operator"}
    arguments["if_match"] = None  # type: ignore[assignment]
    job = await service.operations.start("set-desires", "operator", world.plot.nodes, arguments)
    member = next(m for m in world.members if m.service is service)
    await member.crash()
    await member.start()
    heir = member.service
    assert heir is not None
    for _ in range(120):
        if world.mechanisms.job_recovery:
            await heir.operations.recover()
        await asyncio.sleep(1.0)
        ended = await heir.operations.show(job.id)
        if ended.over:
            break
    if ended.state != "done" or ended.done != world.plot.nodes:
        world.broken(10, f"the job ended as {ended.state} with {ended.done} of {world.plot.nodes} nodes")


def liveness(world: World) -> None:
    """After all has healed every node is at its goal (or waits for the site's power)."""
    if world.at_goal():
        return
    stories = []
    for member in world.members:
        if member.service is None:
            continue
        view, registry, work = member.service.view, member.service.registry, member.service.controller.engine.progress
        for name in world.sim.names:
            index = registry.find(name)
            if work.epoch[index] and view.state(index) != "ready":
                why = view.why(index)
                stories.append(f"{member.name} {name}: {why.summary} {why.lines} {why.blocked_by}")
    world.broken(0, f"not at the goal: {stories[:2] or 'nobody leads'}")


BEFORE = (
    promise_4_nothing_destructive_is_done_on_unknown,
    promise_5_destructive_work_is_braked,
    promise_6_the_site_power_limit_is_never_exceeded,
)
"""Watch during the run."""

AFTER = (
    promise_2_at_most_one_effect_per_node_and_generation,
    promise_3_a_failure_of_strata_never_hurts_a_running_job,
    liveness,
)
AFTER_IN_THE_WORLD = (
    promise_1_an_acknowledged_desire_is_never_lost,
    promise_7_no_secret_ever_appears,
    promise_8_bad_input_changes_nothing,
    promise_9_every_write_has_an_author_in_the_audit_log,
    promise_10_a_whole_machine_request_is_tracked,
)
"""Look at what the run left behind."""
