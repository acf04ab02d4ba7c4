"""How the nodes of a rollout are: read from what is wanted of them and from what the engine knows, by columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from strata.core.intset import contains, count, unpack
from strata.core.nodeset import fold
from strata.engine.decisions import Kind
from strata.engine.progress import Phase, Wait
from strata.fleet.columns import Indices, Mask
from strata.fleet.desires.documents import ValueSet
from strata.fleet.fleet import Fleet
from strata.platform.rollouts.next_step import Sight, excused
from strata.platform.rollouts.records import Before, BucketUse, Rollout, RolloutCounts

Uids = np.ndarray[tuple[int], np.dtype[np.int64]]


class _Codes:
    """Numbers for value sets, from 1 on, as they are met."""

    def __init__(self) -> None:
        self.known: dict[ValueSet, int] = {}

    def __call__(self, values: ValueSet) -> int:
        return self.known.setdefault(values, len(self.known) + 1)


class Members:
    """The nodes of one rollout by uid, and what was set on each before. Made once: neither ever changes."""

    def __init__(self, rollout: Rollout) -> None:
        waves = [unpack(wave) for wave in rollout.waves]
        uids = np.concatenate((np.empty(0, dtype=np.int64), *waves))
        number = np.repeat(np.arange(len(waves)), [len(wave) for wave in waves])
        order = np.argsort(uids)
        self.uids: Uids = uids[order]
        self.wave: Uids = number[order]
        self.before = np.full(len(uids), -1, dtype=np.int64)
        """Which of ``Rollout.before`` is about each."""
        for at, before in enumerate(rollout.before):
            self.before[np.isin(self.uids, unpack(before.uids))] = at


def before_of(fleet: Fleet, nodes: Indices, variables: Sequence[str]) -> list[tuple[Indices, dict[str, ValueSet]]]:
    """What is set on the nodes themselves, by classes of nodes that are alike."""
    uids = fleet.registry.uids[nodes]
    intern = _Codes()
    overrides = fleet.registry.desires.overrides
    codes = np.stack([overrides.codes(variable, uids, intern) for variable in variables])
    words = [(), *intern.known]
    alike, number = np.unique(codes, axis=1, return_inverse=True)
    found = []
    for at, column in enumerate(alike.T.tolist()):
        values = {variable: words[code] for variable, code in zip(variables, column, strict=True) if code}
        found.append((nodes[number.ravel() == at], values))
    return found


def sight(fleet: Fleet, rollout: Rollout, members: Members) -> Sight:
    """The nodes that have had their turn, up to the wave that is under way."""
    here = members.wave <= rollout.wave
    uids, before = members.uids[here], members.before[here]
    indices = fleet.registry.indices_of(uids)
    there = indices >= 0
    wanted, left = _desires(fleet, rollout, uids, before)
    wanted &= there
    left |= ~there
    engine = fleet.controller.engine
    progress = engine.progress
    nodes = np.where(there, indices, 0)
    idle = (progress.phase[nodes] == Phase.IDLE) & ~progress.dirty[nodes]
    ready = there & idle & (progress.kind[nodes] == Kind.READY)
    off = to_be_off(fleet, rollout, nodes)
    for variable, value in rollout.spec.require.items():
        ready &= off | fleet.view.fact_mask(variable, value)[nodes]
    failed = there & idle & ~ready & (progress.fault[nodes] | (progress.kind[nodes] == Kind.STUCK))
    out = np.zeros(progress.size, dtype=np.bool_)
    out[engine.places.out()] = True
    for one in engine.in_flight.foreign.values():
        out[one.nodes] = True
    begun = there & (ready | failed | out[nodes] | ~(progress.phase[nodes] == Phase.IDLE))
    begun |= there & (progress.failures[nodes] > 0)
    held = there & progress.held[nodes]
    return Sight(uids, wanted, left, ready, failed, begun, held, _stuck(fleet, rollout, uids))


def uses(fleet: Fleet, rollout: Rollout) -> list[BucketUse]:
    """Its limits, and how many nodes are out of service in each."""
    out = fleet.registry.uids[fleet.controller.engine.places.out()]
    found = []
    for bucket in rollout.buckets:
        inside = int(contains(bucket.members, out).sum())
        found.append(BucketUse(name=bucket.name, nodes=count(bucket.members), most=bucket.most, out=inside))
    return found


def to_be_off(fleet: Fleet, rollout: Rollout, nodes: Indices) -> Mask:
    """Which of the nodes somebody wants switched off: the change waits until they are wanted on again."""
    registry = fleet.registry
    if "power" not in registry.model.variables or "power" in rollout.set:
        return np.zeros(len(nodes), dtype=np.bool_)
    off: Mask = (registry.wanted("power", "off") & ~registry.wanted("power", "on"))[nodes]
    return off


def counts(fleet: Fleet, rollout: Rollout, members: Members) -> RolloutCounts:
    """How far it is."""
    if rollout.final is not None:
        return rollout.final
    seen = sight(fleet, rollout, members)
    spare = excused(rollout, seen)
    failed = seen.failed & seen.wanted & ~spare
    indices = fleet.registry.indices_of(seen.uids)
    ready = seen.ready & seen.wanted & ~to_be_off(fleet, rollout, indices)
    names = fleet.view.names(indices[failed])
    return RolloutCounts(
        nodes=len(members.uids),
        begun=len(seen.uids),
        ready=int(ready.sum()),
        failed=int(failed.sum()),
        left=int(seen.left.sum()),
        excused=int((spare & ~seen.left).sum()),
        failed_nodes=fold(names),
    )


def _desires(fleet: Fleet, rollout: Rollout, uids: Uids, before: Uids) -> tuple[Mask, Mask]:
    """On which of the nodes the change is set, and which of them somebody else has spoken for."""
    overrides = fleet.registry.desires.overrides
    wanted = np.ones(len(uids), dtype=np.bool_)
    left = np.zeros(len(uids), dtype=np.bool_)
    for variable, values in rollout.set.items():
        intern = _Codes()
        ours = intern(values)
        was = np.array([_code(intern, one, variable) for one in rollout.before] + [0])[before]
        cells = overrides.codes(variable, uids, intern)
        # While it stands still or goes back, what is set on the nodes is set by ourselves.
        late = (overrides.revisions(variable, uids) > rollout.seen) & (rollout.state == "running")
        wanted &= cells == ours
        left |= (cells != ours) & (late | (cells != was))
    return wanted, left & ~wanted


def _code(intern: Callable[[ValueSet], int], before: Before, variable: str) -> int:
    values = before.set.get(variable)
    return 0 if values is None else intern(values)


def _stuck(fleet: Fleet, rollout: Rollout, uids: Uids) -> Mask:
    """Who is in a limit of which everybody who is out has failed, and is not out himself; and who waits for a canary
    that has failed."""
    engine = fleet.controller.engine
    nodes = engine.places.out()
    failed = engine.progress.fault[nodes] & (engine.progress.phase[nodes] == Phase.IDLE)
    out = fleet.registry.uids[nodes]
    found = np.zeros(len(uids), dtype=np.bool_)
    for bucket in rollout.buckets:
        inside = contains(bucket.members, out)
        if int(inside.sum()) >= bucket.most and failed[inside].all():
            found |= contains(bucket.members, uids)
    found &= ~np.isin(uids, out)
    nodes = fleet.registry.indices_of(uids)
    progress = engine.progress
    canary = progress.canary[nodes]
    waits = (progress.wait[nodes] == Wait.CANARY) & (progress.phase[nodes] == Phase.IDLE) & (canary >= 0)
    found |= (nodes >= 0) & waits & progress.fault[canary]
    return found
