"""Requests about rollouts: what one would do, beginning it, following it, having it pause, go on or end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from strata.core.errors import BadRequest, Conflict, NotFound
from strata.core.intset import contains, count, pack, unpack
from strata.core.node import Limit, LimitBucket
from strata.core.nodeset import fold
from strata.fleet.access.principal import Principal, Right
from strata.fleet.columns import Indices, Mask
from strata.fleet.desires.documents import ValueSet
from strata.fleet.fleet import Fleet
from strata.fleet.plans.records import StepView
from strata.fleet.plans.service import PlanService
from strata.fleet.recurring import Recurring
from strata.fleet.registry.editor import encode
from strata.platform.rollouts import next_step as course
from strata.platform.rollouts.conductor import Conductor, limit_key
from strata.platform.rollouts.learnt import Lessons
from strata.platform.rollouts.likeness import Twin, likeness
from strata.platform.rollouts.observation import before_of, counts, sight, uses
from strata.platform.rollouts.records import (
    ENDED,
    AbortRequest,
    Before,
    BucketUse,
    Rollout,
    RolloutEvent,
    RolloutPlan,
    RolloutPolicy,
    RolloutSpec,
    RolloutView,
    State,
    WaveView,
    amount,
)
from strata.platform.rollouts.waves import Wave, spread, stages, waves
from strata.platform.settings import PlatformSettings
from strata.store.protocol import Put

REST = "the rest"
ALL = "the rollout"
_ATTEMPTS = 5
_SAVE = 60.0
"""Seconds of learning that a crash may cost."""


class Prepared(NamedTuple):
    """A rollout that could begin."""

    nodes: Indices
    set: Mapping[str, ValueSet]
    waves: Sequence[Wave]
    buckets: tuple[LimitBucket, ...]
    unchanged: int


class RolloutService:
    """The rollouts of this fleet. ``start``, then ``stop``."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._records = fleet.records(
            Rollout, kind="rollout", listed_by="strata rollout list", changed=lambda *_: self.conductor.soon()
        )
        self.policies = fleet.records(RolloutPolicy, kind="rollout-policy")
        """How commits reach nodes: what the configuration that was last applied says of it."""
        self.conductor = Conductor(fleet, self._records)
        self._lessons = Lessons(fleet.controller, fleet.settings.state_dir / "learnt.json")
        self._learning = Recurring("lessons", self._lessons.save, lambda: _SAVE, trouble="what was learnt is not kept")
        self.find, self.kept = self._records.find, self._records.get
        """One as it is kept; ``find``: or None."""

    async def start(self) -> None:
        """Load them; carry them on once the fleet runs."""
        await self._records.start()
        await self.policies.start()
        self._lessons.load()
        self._fleet.begin(self.conductor.start)
        self._fleet.begin(self._learning.start)
        self._fleet.forgets.append(self._forget)

    async def stop(self) -> None:
        """Carry on no more. The nodes go on to what is wanted of them."""
        await self.conductor.stop()
        await self._learning.stop()
        await self._lessons.save()
        await self.policies.stop()
        await self._records.stop()

    # asking

    async def all(self, who: Principal) -> Sequence[RolloutView]:
        """Every rollout that is the caller's business, those that have ended too, the newest first."""
        mine = [(name, one) for name, one in self._records.all.items() if self._sees(who, one)]
        return [self._view(name, one) for name, one in sorted(mine, key=lambda item: -item[1].started)]

    async def one(self, who: Principal, name: str) -> RolloutView:
        """One of them: how far it is, what it waits for, what happened."""
        return self._view(name, self._get(who, name))

    async def policy(self, who: Principal) -> RolloutPolicy:
        """How commits of the configuration reach nodes in waves: what the repository says of it."""
        found = next(iter(self.policies.all.values()), None)
        if found is None:
            hint = "a document 'kind: rollout-policy' in the repository says how commits reach nodes in waves"
            raise NotFound("commits reach all nodes at once", where="rollout-policy", hint=hint)
        return found

    async def plan(self, who: Principal, spec: RolloutSpec) -> RolloutPlan:
        """What a rollout would do: its waves, its limits, its mutations, the time that it takes at the least."""
        found = self.prepare(who, spec)
        preview = self._fleet.registry.desires.preview(found.nodes, found.set)
        report = self._fleet.of(PlanService).report(found.nodes, preview)
        names = self._fleet.view.names
        cost = max((sum(map(self._seconds, one.steps)) for one in report.classes), default=0.0)
        folded = await asyncio.to_thread(lambda: [fold(names(wave.nodes)) for wave in found.waves])
        return RolloutPlan(
            nodes=len(found.nodes),
            unchanged=found.unchanged,
            waves=tuple(
                WaveView(count=len(wave.nodes), nodeset=nodeset, stage=wave.stage + 1)
                for wave, nodeset in zip(found.waves, folded, strict=True)
            ),
            buckets=tuple(
                BucketUse(name=one.name, nodes=count(one.members), most=one.most, out=0) for one in found.buckets
            ),
            classes=report.classes,
            disrupted=sum(one.count for one in report.classes if any(step.destructive for step in one.steps)),
            seconds=self._estimate(found, cost, spec.soak),
            warnings=tuple(self._warnings(found, spec)),
        )

    async def twin(self, who: Principal, spec: RolloutSpec) -> Twin:
        """This cluster, as far as the caller sees it and a simulation of the rollout needs it: what ``strata rollout
        simulate`` runs on."""
        chosen = self.prepare(who, spec).nodes
        return likeness(self._fleet, self._fleet.seen(who, ""), chosen, spec, self._lessons)

    # doing

    async def begin(self, who: Principal, name: str, spec: RolloutSpec) -> RolloutView:
        """Start a rollout. It goes on by itself, whichever controller dies."""
        if self._records.find(name) is not None:
            raise Conflict("there is a rollout of that name", where=f"rollout {name}", hint="give it another one")
        found = self.prepare(who, spec)
        self._no_rival(name, found)
        fleet, registry = self._fleet, self._fleet.registry
        before = before_of(fleet, found.nodes, list(found.set))
        wall = fleet.controller.clock.wall()
        rollout = Rollout(
            spec=spec,
            set=found.set,
            author=who.name,
            started=wall,
            waves=tuple(pack(registry.uids[wave.nodes]) for wave in found.waves),
            stages=tuple(wave.stage for wave in found.waves),
            buckets=found.buckets,
            before=tuple(Before(uids=pack(registry.uids[nodes]), set=values) for nodes, values in before),
            seen=registry.revision,
            events=(RolloutEvent(time=wall, author=who.name, text="started; wave 1 begins"),),
        )
        rollout = self.conductor.broken(rollout)
        limit = Put(limit_key(name), encode(Limit(buckets=found.buckets)))
        detail = {"set": found.set, "nodes": len(found.nodes), "waves": len(found.waves), "when": spec.when}
        await self._records.put(who.name, name, rollout, expected=0, action="start", detail=detail, also=[limit])
        await fleet.settled(self._records.revision(name))
        return self._view(name, rollout)

    async def pause(self, who: Principal, name: str, reason: str) -> RolloutView:
        """Start no further nodes. Those that have begun are finished."""
        return await self._change(
            who, name, "pause", ("running",), lambda rollout: replace(rollout, state="paused", reason=reason)
        )

    async def resume(self, who: Principal, name: str) -> RolloutView:
        """Go on with one that is paused or stopped. Nodes that have failed go back, and do not count any more: a node
        that failed is nobody's canary."""
        rollout = self._get(who, name)
        self._may_change(who, rollout)
        members = self.conductor.members(name, rollout)
        failed = rollout
        if rollout.state == "stopped":
            seen = sight(self._fleet, rollout, members)
            failed = course.forgiven(rollout, seen)
            await self.conductor.restore(name, rollout, course.unforgiven(seen), seen.uids)

        def go_on(rollout: Rollout) -> Rollout:
            # What was taken back while it stood still was our own doing.
            fresh = replace(
                rollout, forgiven=failed.forgiven, seen=self._fleet.registry.revision, soaking=None, checked=()
            )
            return replace(fresh, state="running", reason="")

        return await self._change(who, name, "resume", ("paused", "stopped"), go_on)

    async def abort(self, who: Principal, name: str, request: AbortRequest) -> RolloutView:
        """End one. Nodes that have not begun want what they wanted before; with ``rollback`` all do."""
        to: State = "rolling-back" if request.rollback else "aborting"
        of: list[State] = ["running", "paused", "stopped"]
        if not request.rollback:
            of.append("rolling-back")
        reason = request.reason
        return await self._change(who, name, "abort", of, lambda rollout: replace(rollout, state=to, reason=reason))

    # parts

    def prepare(self, who: Principal, spec: RolloutSpec) -> Prepared:
        """Check it, and put its nodes in order."""
        fleet, registry = self._fleet, self._fleet.registry
        nodes = self._selected(who, spec)
        wanted = fleet.edits.checked_wish(spec.set)
        if not wanted:
            raise BadRequest("nothing to change", where="set", hint="like image=v2")
        if any(not int(size.rstrip("%")) for size in spec.waves):
            raise BadRequest("a wave must have at least one node", where="waves", hint="like 1,10%,100%")
        for variable, value in spec.require.items():
            fleet.controller.model.check_value(variable, value)
        known = fleet.section(PlatformSettings).rollout_checks
        for check in spec.checks:
            if check not in known:
                hint = f"known are {', '.join(sorted(known)) or 'none'}: rollout_checks in the configuration file"
                raise BadRequest(f"no such check: {check}", where="checks", hint=hint)
        for group in {*spec.groups, *(one for chain in spec.order for one in chain)}:
            self._mask(who, group)
        new = np.zeros(len(nodes), dtype=np.bool_)
        for variable, values in wanted.items():
            goals = registry.desires.goals(variable)
            codes = [code for code, known_values in enumerate(goals.table) if known_values == values]
            new |= ~np.isin(goals.codes[nodes], codes)
        unchanged = int((~new).sum())
        nodes = nodes[new]
        if not len(nodes):
            raise BadRequest(f"nothing to do: {unchanged} nodes want that already", where="select")
        masks = {group: self._mask(who, group) for group in spec.groups}
        fit = fleet.view.state_mask("ready")
        turns = [
            wave
            for number, stage in enumerate(stages(nodes, spec.order, lambda group: self._mask(who, group)))
            for wave in waves(number, spread(stage, masks, fit), spec.waves)
        ]
        return Prepared(nodes, wanted, turns, self._buckets(nodes, masks, spec), unchanged)

    def _selected(self, who: Principal, spec: RolloutSpec) -> Indices:
        if spec.document is None:
            if spec.select is None:
                raise BadRequest("say which nodes", where="select", hint="'*' is every node")
            return self._fleet.owned(who, spec.select)
        who.require(Right("change", "document"))
        standing = self._fleet.registry.desires.documents.get(spec.document)
        if standing is None:
            raise NotFound(f"no such document: {spec.document}", where="document", hint="strata document list")
        chosen = np.flatnonzero(standing.mask & self._fleet.registry.alive)
        return chosen if spec.select is None else chosen[np.isin(chosen, self._fleet.owned(who, spec.select))]

    def _mask(self, who: Principal, group: str) -> Mask:
        mask = self._fleet.registry.groups.mask(group)
        own = self._fleet.scope(who)
        return mask if own is None else mask & own

    def _buckets(self, nodes: Indices, masks: Mapping[str, Mask], spec: RolloutSpec) -> tuple[LimitBucket, ...]:
        uids, alive = self._fleet.registry.uids, self._fleet.registry.alive
        rest = np.zeros(self._fleet.registry.size, dtype=np.bool_)
        rest[nodes] = True
        found = []
        for name, mask in masks.items():
            members = np.flatnonzero(mask & alive)
            rest &= ~mask
            if len(members):
                found.append(self._bucket(name, uids[members], spec))
        if rest.any():
            found.append(self._bucket(REST if found else ALL, uids[np.flatnonzero(rest)], spec))
        return tuple(found)

    def _bucket(self, name: str, uids: Indices, spec: RolloutSpec) -> LimitBucket:
        most = amount(spec.max_unavailable, len(uids))
        if most < 1 and not spec.max_unavailable.endswith("%"):
            raise BadRequest("at least one node must be out of service to be changed", where="max_unavailable")
        return LimitBucket(name=name, members=pack(uids), most=max(1, most))

    def _no_rival(self, name: str, found: Prepared) -> None:
        """Raise where another rollout is at the same variables of the same nodes."""
        uids = self._fleet.registry.uids[found.nodes]
        for other, rollout in self._records.sorted:
            if rollout.state in ENDED or other == name or not rollout.set.keys() & found.set.keys():
                continue
            if any(contains(wave, uids).any() for wave in rollout.waves):
                both = ", ".join(sorted(rollout.set.keys() & found.set.keys()))
                told = f"the rollout {other} is changing {both} of some of these nodes"
                raise Conflict(told, where=f"rollout {name}", hint="wait for its end, or abort it")

    def _seconds(self, step: StepView) -> float:
        """What a mutation takes on a node."""
        learnt = self._lessons.all.get(step.mutation)
        return learnt.seconds if learnt is not None and learnt.succeeded else step.cost

    def _estimate(self, found: Prepared, cost: float, soak: float) -> float:
        """Seconds that it takes when every place is always used, and each node takes ``cost``."""
        total = 0.0
        for wave in found.waves:
            uids = self._fleet.registry.uids[wave.nodes]
            rounds = [-(-int(contains(bucket.members, uids).sum()) // bucket.most) for bucket in found.buckets]
            total += max(rounds, default=1) * cost + soak
        return total

    def _warnings(self, found: Prepared, spec: RolloutSpec) -> list[str]:
        said = []
        allowed = amount(spec.max_failures, len(found.nodes))
        tight = [bucket.name for bucket in found.buckets if bucket.most <= allowed]
        if tight:
            said.append(
                f"nodes that fail stay out of service: {allowed} may, which can use up the limit of {', '.join(tight)}"
            )
        if not spec.soak and not spec.checks:
            said.append("nothing is waited for after a wave is ready: what breaks a minute later breaks everywhere")
        states = {state: self._fleet.view.state_mask(state)[found.nodes].sum() for state in ("held", "faulted")}
        said += [f"{count} nodes are {state}: they are not waited for" for state, count in states.items() if count]
        return said

    async def _change(
        self,
        who: Principal,
        name: str,
        action: str,
        states: Sequence[State],
        make: Callable[[Rollout], Rollout],
    ) -> RolloutView:
        for _ in range(_ATTEMPTS):
            await self._records.fetch(name)
            rollout = self._get(who, name)
            self._may_change(who, rollout)
            if rollout.state not in states:
                hint = f"this is for one that is {' or '.join(states)}"
                raise Conflict(f"it is {rollout.state}", where=f"rollout {name}", hint=hint)
            new = make(rollout)
            text = f"{action}: {new.reason}" if new.reason else action
            try:
                new = await self.conductor.become(name, rollout, new, text, author=who.name, action=action)
            except Conflict:
                continue  # it went on meanwhile
            return self._view(name, new)
        raise Conflict("it changed each time that this was tried", where=f"rollout {name}", hint="try again")

    def _view(self, name: str, rollout: Rollout) -> RolloutView:
        ended = rollout.state in ENDED
        return RolloutView.of(
            rollout,
            name=name,
            wave=rollout.wave + 1,
            waves=len(rollout.waves),
            counts=counts(self._fleet, rollout, self.conductor.members(name, rollout)),
            waits_for="" if ended else self._waits_for(name),
            buckets=tuple(uses(self._fleet, rollout)) if not ended else (),
        )

    def _waits_for(self, name: str) -> str:
        duty = self.conductor.duty
        if duty.here:
            return self.conductor.waits.get(name, "its turn with this controller")
        return f"something that controller {duty.by} knows" if duty.by else "a controller that takes it over"

    def _get(self, who: Principal, name: str) -> Rollout:
        rollout = self._records.get(name)
        if not self._sees(who, rollout):
            raise NotFound(f"no rollout named {name}", where="rollout", hint="list them with: strata rollout list")
        return rollout

    def _sees(self, who: Principal, rollout: Rollout) -> bool:
        """Whether all of its nodes are the caller's."""
        own = self._fleet.scope(who)
        if own is None:
            return True
        uids = self._fleet.registry.uids[np.flatnonzero(own)]
        return all(contains(pack(uids), unpack(wave)).all() for wave in rollout.waves)

    def _may_change(self, who: Principal, rollout: Rollout) -> None:
        if rollout.spec.document is not None:
            who.require(Right("change", "document"))

    async def _forget(self, before: float) -> int:
        """Drop rollouts that ended before a time."""
        old = [name for name, one in self._records.sorted if one.ended is not None and one.ended < before]
        for name in old:
            await self._records.delete("retention", name, action="forget")
        return len(old)
