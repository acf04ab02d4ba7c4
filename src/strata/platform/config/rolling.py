"""Commits that reach nodes in waves: rollouts set on nodes what the commit would want of them, and when all are through
the commit is applied and says it itself.

Until then nothing but the nodes themselves says it. So the way back is the rollout's own, to what the commit before it
wants; and whoever carries it on needs nothing but what is kept. Only one controller does.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from strata.core.errors import BadRequest, Conflict, NotFound, Refused
from strata.core.nodeset import fold
from strata.core.printable import shortened
from strata.fleet.access.principal import Principal
from strata.fleet.alarm import Alarm, AlarmSeverity
from strata.fleet.columns import Indices
from strata.fleet.desires.documents import ValueSet
from strata.fleet.fleet import Fleet
from strata.fleet.plans.records import PlanReport
from strata.fleet.recurring import Recurring
from strata.platform.config.difference import Difference
from strata.platform.config.records import (
    CommitRollout,
    Configuration,
    ConfigurationPart,
    RollingCommit,
    RollingView,
    Way,
)
from strata.platform.delivery.records import VARIABLE as CONFIG
from strata.platform.duty import PLATFORM
from strata.platform.rollouts.observation import sight
from strata.platform.rollouts.records import ENDED, AbortRequest, Rollout, RolloutManner, RolloutPolicy, RolloutSpec
from strata.platform.rollouts.service import RolloutService
from strata.platform.rollouts.waves import waves

if TYPE_CHECKING:
    from strata.platform.config.service import ConfigService

log = logging.getLogger(__name__)

NAME = "current"
MOST = 16
"""Rollouts of one commit: nodes that are to become the same are one."""
_PAUSE, _IDLE = 2.0, 60.0
_PART = 512 << 10
_SHOWN = 1000
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Configuration).decode


class Outlook(NamedTuple):
    """What would be wanted of nodes after an apply, and what would be done to them for it."""

    nodes: Indices
    """Those of which something else would be wanted."""
    goals: Mapping[str, Sequence[ValueSet]]
    report: PlanReport
    switched: Mapping[str, str]
    """Personality that would be another, by the same name → nodes that want it."""
    disrupted: Sequence[str]
    warnings: tuple[str, ...]
    """What somebody may not have meant."""
    configured: frozenset[str]
    """Nodes for which another revision of the configuration comes to the same."""


class Rolled(NamedTuple):
    """How a commit would reach nodes in waves."""

    specs: Mapping[str, RolloutSpec] = {}
    shown: tuple[CommitRollout, ...] = ()
    refused: str = ""
    """Why it cannot, though it should."""


class RollingCommits:
    """The commit that is on its way, if one is. ``load``, ``start``, then ``stop``."""

    def __init__(self, fleet: Fleet, service: ConfigService) -> None:
        self._fleet = fleet
        self._duty = fleet.controller.leadership.duty(PLATFORM)
        self._service = service
        self._records = fleet.records(
            RollingCommit, kind="config-rolling", prefix="config/rolling/", changed=lambda *_: self._round.soon()
        )
        self._parts = fleet.records(ConfigurationPart, kind="config-part", prefix="config/part/")
        self._round = Recurring("rolling commits", self._go_on, self._pause, trouble="a commit cannot be rolled out")
        self.start = self._round.start

    async def load(self) -> None:
        """Find out which commit is on its way."""
        await self._parts.start()
        await self._records.start()

    async def stop(self) -> None:
        """Leave it as it is. Its rollouts go on."""
        await self._round.stop()
        await self._records.stop()
        await self._parts.stop()

    def shown(self) -> RollingView | None:
        """What the status says of it."""
        found = self._records.find(NAME)
        if found is None:
            return None
        waits = ""
        if not found.failed:
            under_way = [name for name, rollout in self._rollouts(found) if rollout is None or rollout.state != "done"]
            waits = f"the rollouts {', '.join(under_way)}" if under_way else "being applied"
            waits += f"; {self._round.error}" if self._round.error else ""
        return RollingView(commit=found.commit, rollouts=tuple(found.rollouts), waits_for=waits, failed=found.failed)

    # before it begins

    def concerns(self, configuration: Configuration, way: Way) -> bool:
        """Whether it may have to go in waves."""
        return way == "rollout" or (way == "policy" and bool(configuration.rollout_policies))

    def outline(self, configuration: Configuration, found: Difference, outlook: Outlook, way: Way) -> Rolled:
        """How it would reach nodes; nothing: at once."""
        if not self.concerns(configuration, way):
            return Rolled()
        policy = next(iter(configuration.rollout_policies), RolloutPolicy())
        # Of nodes that nobody has seen yet it is not known what would be taken away.
        unseen = any(one.status == "observe" for one in outlook.report.classes)
        if way == "policy" and policy.commits == "disruptive" and not outlook.disrupted and not unseen:
            return Rolled()
        if changed := [name for name, nodes in outlook.switched.items() if nodes]:
            return Rolled(
                refused=f"the personality {changed[0]} would be another on all its nodes at the same moment: give the"
                " new one a name of its own, and want that"
            )
        classes = self._classes(outlook)
        if len(classes) > MOST:
            return Rolled(
                refused=f"nodes would become {len(classes)} different things; at most {MOST} rollouts: split it"
            )
        specs, shown = {}, []
        manner = {field: getattr(policy, field) for field in RolloutManner.__struct_fields__}
        for number, (nodes, wanted) in enumerate(classes):
            name = self._name(configuration.commit, number)
            nodeset = fold(self._fleet.view.names(nodes))
            specs[name] = RolloutSpec(select=nodeset, set=wanted, note=f"commit {configuration.commit[:12]}", **manner)
            shown.append(
                CommitRollout(
                    name=name,
                    nodes=len(nodes),
                    nodeset=shortened(nodeset, _SHOWN),
                    set=wanted,
                    waves=tuple(len(wave.nodes) for wave in waves(0, nodes, policy.waves)),
                )
            )
        return Rolled(specs, tuple(shown))

    def _classes(self, outlook: Outlook) -> list[tuple[Indices, dict[str, ValueSet]]]:
        """Nodes that are to become the same, and what. Where nothing is wanted any more, nobody changes."""
        nodes, registry = outlook.nodes, self._fleet.registry
        if not len(nodes):
            return []
        same = np.array([registry.names[index] in outlook.configured for index in nodes.tolist()], dtype=np.bool_)
        words: list[ValueSet] = [()]
        ids: dict[ValueSet, int] = {(): 0}
        rows = []
        for variable, values in outlook.goals.items():
            column = registry.desires.goals(variable)
            now = [column.table[code] for code in column.codes[nodes].tolist()]
            codes = np.zeros(len(nodes), dtype=np.int64)
            for at, (before, after) in enumerate(zip(now, values, strict=True)):
                if before != after and after:
                    if after not in ids:
                        ids[after] = len(words)
                        words.append(after)
                    codes[at] = ids[after]
            rows.append(np.where(same, 0, codes) if variable == CONFIG else codes)
        alike, number = np.unique(np.stack(rows), axis=1, return_inverse=True)
        found = []
        for at, column_codes in enumerate(alike.T.tolist()):
            wanted = {name: words[code] for name, code in zip(outlook.goals, column_codes, strict=True) if code}
            if wanted:
                found.append((nodes[number.ravel() == at], wanted))
        return found

    def _name(self, commit: str, number: int) -> str:
        """A name that no rollout has yet."""
        base = f"config-{commit[:12] or 'files'}" + (f"-{number + 1}" if number else "")
        for again in range(1, 1000):
            name = base if again == 1 else f"{base}.{again}"
            if self._fleet.of(RolloutService).find(name) is None:
                return name
        raise Conflict("it was rolled out a thousand times already", where=base, hint="strata rollout list")

    async def free(self, who: Principal, configuration: Configuration) -> None:
        """Raise ``Conflict`` while another commit is on its way. One that failed is forgotten now."""
        found = await self._records.fetch(NAME)
        if found is None:
            return
        if not found.failed:
            raise Conflict(
                f"commit {found.commit[:12] or 'files'} is being rolled out: {', '.join(found.rollouts)}",
                where=f"commit {configuration.commit[:12] or 'none'}",
                hint="wait for its end, or end it: strata rollout abort NAME --rollback --reason WHY",
            )
        await self._forget(who.name, found)

    async def begin(
        self,
        who: Principal,
        configuration: Configuration,
        found: Difference,
        specs: Mapping[str, RolloutSpec],
        *,
        remove_most: bool,
    ) -> None:
        """Keep that it is on its way; from then on it goes on by itself."""
        await self._service.add_personalities(who, found)
        data = zlib.compress(_encode(configuration))
        parts = [data[at : at + _PART] for at in range(0, len(data), _PART)]
        for number, part in enumerate(parts):
            await self._parts.put(who.name, str(number), ConfigurationPart(data=part))
        record = RollingCommit(
            commit=configuration.commit,
            system=configuration.system,
            author=who.name,
            time=self._fleet.controller.clock.wall(),
            remove_most=remove_most,
            rollouts=specs,
            parts=len(parts),
        )
        detail = {"commit": configuration.commit, "rollouts": list(specs)}
        await self._records.put(who.name, NAME, record, expected=0, action="begin", detail=detail)

    # while it is on its way

    def _pause(self) -> float:
        found = self._records.find(NAME)
        return _PAUSE if found is not None and not found.failed else _IDLE

    def _rollouts(self, record: RollingCommit) -> list[tuple[str, Rollout | None]]:
        rollouts = self._fleet.services.find(RolloutService)
        return [(name, rollouts.find(name) if rollouts is not None else None) for name in record.rollouts]

    async def _go_on(self) -> None:
        record = self._records.find(NAME)
        if record is None or record.failed or not self._duty.here:
            return
        record = await self._records.fetch(NAME)
        if record is None or record.failed:
            return
        who = Principal(name=record.author, role="admin")
        rollouts, states = self._fleet.of(RolloutService), dict(self._rollouts(record))
        back = [name for name, one in states.items() if one is not None and one.state in ("rolled-back", "aborted")]
        going_back = [name for name, one in states.items() if one is not None and one.state == "rolling-back"]
        if back or going_back:
            for name, one in states.items():
                if one is not None and one.state in ("running", "paused", "stopped"):
                    why = f"{(back + going_back)[0]}, of the same commit, goes back"
                    await rollouts.abort(who, name, AbortRequest(reason=why, rollback=True))
            if all(one is None or one.state in ENDED for one in states.values()):
                await self._give_up(record, states, back)
            return
        for name, spec in record.rollouts.items():
            if states[name] is None:
                try:
                    await rollouts.begin(who, name, spec)
                except (BadRequest, NotFound) as error:  # its nodes went, or want it already
                    log.warning("a rollout of a commit has nothing to do", extra={"name": name, "reason": str(error)})
                    left = {one: spec for one, spec in record.rollouts.items() if one != name}
                    await self._replace(record, msgspec.structs.replace(record, rollouts=left), "narrow")
                    return
        if all(one is not None and one.state == "done" for one in states.values()):
            await self._apply(record, who)

    async def _apply(self, record: RollingCommit, who: Principal) -> None:
        """All nodes have it: have the commit say it, and the nodes no more."""
        try:
            parts = b"".join([self._parts.get(str(number)).data for number in range(record.parts)])
            configuration = _decode(zlib.decompress(parts))
            await self._service.say(who, configuration, remove_most=record.remove_most)
        except (BadRequest, Refused, NotFound) as error:
            # The nodes have it, and it cannot be said: a person decides. It is tried again meanwhile.
            self._alarm(record, f"all nodes have it, but it cannot be applied: {error}", ok=False)
            raise
        rollouts = self._fleet.of(RolloutService)
        for name, rollout in self._rollouts(record):
            if rollout is not None:
                members = rollouts.conductor.members(name, rollout)
                seen = sight(self._fleet, rollout, members)
                await rollouts.conductor.restore(name, rollout, seen.wanted, seen.uids)
        self._alarm(record, "applied: all nodes have it", ok=True)
        await self._forget(record.author, record)

    async def _give_up(self, record: RollingCommit, states: Mapping[str, Rollout | None], back: Sequence[str]) -> None:
        reasons = [one.reason for name in back if (one := states[name]) is not None and one.reason]
        why = f"rolled back by {', '.join(back)}: {reasons[0] if reasons else 'aborted'}"
        await self._replace(record, msgspec.structs.replace(record, failed=why), "fail")
        self._alarm(record, why, ok=False)

    async def _replace(self, old: RollingCommit, new: RollingCommit, action: str) -> None:
        expected = self._records.revision(NAME)
        await self._records.put(old.author, NAME, new, expected=expected, action=action)

    async def _forget(self, author: str, record: RollingCommit) -> None:
        await self._records.delete(author, NAME, expected=self._records.revision(NAME), action="end")
        for number in range(record.parts):
            if self._parts.find(str(number)) is not None:
                await self._parts.delete(author, str(number))

    def _alarm(self, record: RollingCommit, words: str, *, ok: bool) -> None:
        commit = record.commit[:12] or "files"
        about = f"commit {commit}"
        severity: AlarmSeverity = "ok" if ok else "critical"
        self._fleet.alarm(Alarm(kind="rollout", severity=severity, message=f"{about}: {words}", about=about))
        log.info("a commit that is rolled out: %s", words, extra={"commit": commit})
