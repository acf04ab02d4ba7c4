"""Requests about health; what nodes say of their checks, weighed and told to the engine; and repairs by policy.

Each controller hears the agents that are attached to it, and tells them which checks to run: what one node runs
depends only on which checks select it, so that alike nodes cost one encoding.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from strata.core.driver import Batch, Outcomes
from strata.core.errors import BadRequest
from strata.core.node import Node
from strata.core.nodeset import expand, fold
from strata.core.printable import clean
from strata.core.state import Outcome
from strata.fleet.access.principal import Principal
from strata.fleet.alarm import Alarm
from strata.fleet.columns import Indices, Mask
from strata.fleet.fleet import Fleet
from strata.fleet.recurring import Recurring
from strata.fleet.selectors.language import parse
from strata.hardware.events.hub import EventHub
from strata.platform.config.service import ConfigService
from strata.platform.health.driver import NAME, HealthDriver
from strata.platform.health.judge import Judge
from strata.platform.health.keepers import checks_keeper, policy_keeper
from strata.platform.health.nodes import AgentNodes, Nodes, SimulatedNodes
from strata.platform.health.others import OtherShares
from strata.platform.health.records import (
    MOST_CHECKS,
    CheckDetail,
    Checked,
    CheckSpec,
    CheckView,
    Failing,
    HealthCheck,
    HealthPolicy,
    NodeHealth,
    Repair,
    Repaired,
    check,
)
from strata.platform.workload.service import WorkloadService
from strata.provisioning.agents.hub import Hub
from strata.provisioning.agents.wire import Checks

log = logging.getLogger(__name__)

DAY = 86_400.0
WATCHED = 3600.0
"""Seconds after a repair in which a node must be well for a while before it counts as well."""
SETTLES = 120.0
"""Seconds after which a failure counts at the latest, however seldom the check is run."""
EVERY = 2.0
"""Seconds between two weighings."""
MOST_AT_ONCE = 1000
"""Nodes whose checks are run by one request."""
POLICY = "policy"
_REASON = 200


class HealthService:
    """Checks, the policy, and how nodes are."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._clock = fleet.controller.clock
        self._checks = fleet.records(
            HealthCheck, kind="health-check", listed_by="strata health list", changed=lambda *_: self._said()
        )
        self._policies = fleet.records(HealthPolicy, kind="health-policy")
        self._log = fleet.records(Repaired, kind="health-repair", changed=self._logged)
        self._repairs: dict[str, dict[str, Repaired]] = {}
        """Node → what was done about it lately, by the key of the record."""
        self._others = OtherShares(fleet)
        self._judge = Judge(self._clock.now, lambda: self.policy.most, self._settles, self._others.of)
        self._reports: dict[str, Checks] = {}
        self._well: dict[str, float] = {}
        """Node → since when nothing that counts fails there (Unix seconds)."""
        self._words: dict[str, str] = {}
        """Node → what was last said of it."""
        self._alarmed: dict[str, set[str]] = {}
        """Node → the checks of which it was told that it fails them."""
        self._given_up: set[str] = set()
        """Nodes of which it was told that they were repaired often enough."""
        self._doubted: set[str] = set()
        self._edition = (-1, -1)
        self._count = 0
        self._names: list[str] = []
        self._bits = np.zeros((0, 0), dtype=np.bool_)
        """Node, check → whether the check is for it."""
        self._encoded: dict[tuple[str, ...], tuple[str, list[dict[str, object]]]] = {}
        hub, simulated = fleet.services.find(Hub), fleet.driver(NAME)
        self._agents = AgentNodes(hub, self._heard, self._tell, self._tell_agent) if hub is not None else None
        nodes: Nodes | None = self._agents
        if nodes is None and simulated is not None:
            nodes = SimulatedNodes(simulated, self._heard)
        self._nodes = nodes
        self.driver = (
            HealthDriver(nodes, self.judged, self._next, self._note, self._do, self._clock.now) if nodes else None
        )
        self._weighing = Recurring("health", self._weigh, lambda: EVERY, trouble="health was not weighed")

    async def start(self) -> None:
        """Load the checks and what was done; weigh once the fleet runs."""
        for records in (self._policies, self._log, self._checks):
            await records.start()
        await self._others.start()
        if (config := self._fleet.services.find(ConfigService)) is not None:
            config.keepers["health-check"] = checks_keeper(self._checks)
            config.keepers["health-policy"] = policy_keeper(self._policies)
        if self.driver is None:
            return
        self._fleet.drive(self.driver)
        self._fleet.silences.elsewhere.add(NAME)  # a node without an agent is told of by the driver of nodes
        self._fleet.reasons.append(self.reasons)
        self._fleet.registry.departed.append(self._departed)
        self._fleet.forgets.append(self._forget)
        workload = self._fleet.services.find(WorkloadService)
        if workload is not None:
            workload.whys["repair"] = self._in_short
        self._fleet.begin(self._begin)

    async def _begin(self) -> None:
        self._doubted.update(self._told_of("", "health-check"))
        await self._weighing.start()

    async def stop(self) -> None:
        """Weigh no more. Agents go on with their checks."""
        await self._weighing.stop()
        await self._others.stop()
        for records in (self._checks, self._log, self._policies):
            await records.stop()

    @property
    def policy(self) -> HealthPolicy:
        """What is done about nodes that are not well."""
        return self._policies.find(POLICY) or HealthPolicy()

    # -- requests

    async def checks(self, who: Principal) -> Sequence[CheckView]:
        """All checks, and how many nodes fail each."""
        return [self._view(who, name) for name, _ in self._checks.sorted]

    async def one(self, who: Principal, name: str) -> CheckDetail:
        """One of them, and which nodes of the caller's fail it (the first 1000 of them)."""
        view = self._view(who, name)
        own = [node for node in self._judge.failing(name) if self._fleet.find(who, node) >= 0]
        items = tuple(self._health(node) for node in sorted(own)[:MOST_AT_ONCE])
        return CheckDetail.of(view, items=items)

    async def put(self, who: Principal, name: str, spec: CheckSpec, expected: int | None = None) -> CheckView:
        """Declare a check, or change it. The agents of the nodes that it selects run it from then on."""
        where = f"health-check {name}"
        self._fleet.need_whole_fleet(who, "a health check")
        check(spec, where)
        if name not in self._checks.all and len(self._checks.all) >= MOST_CHECKS:
            raise BadRequest(f"there are {MOST_CHECKS} checks already", where=where, hint="a script can check several")
        detail = {"kind": spec.kind, "select": spec.select[:200], "severity": spec.severity}
        record = HealthCheck(spec=spec, author=who.name)
        await self._checks.put(who.name, name, record, expected=expected, detail=detail)
        return self._view(who, name)

    async def delete(self, who: Principal, name: str, expected: int | None = None) -> None:
        """Delete a check."""
        self._fleet.need_whole_fleet(who, "a health check")
        await self._checks.delete(who.name, name, expected=expected)

    async def show_policy(self, who: Principal) -> HealthPolicy:
        """What is done about nodes with the desire health=ok that fail."""
        return self.policy

    async def set_policy(self, who: Principal, policy: HealthPolicy) -> HealthPolicy:
        """Have it done so from now on."""
        self._fleet.need_whole_fleet(who, "the health policy")
        return await self._policies.put(who.name, POLICY, policy, detail=msgspec.to_builtins(policy))

    async def nodes(self, who: Principal, select: str = "*") -> Sequence[NodeHealth]:
        """How nodes are, what each fails, and what was done about it within a day; as far as this controller hears
        them."""
        names = self._fleet.view.names(self._fleet.seen(who, select))
        return [self._health(name) for name in names]

    async def run(self, who: Principal, select: str) -> Sequence[Checked]:
        """Run the checks of up to 1000 nodes now, and wait for what comes of it."""
        nodes = self._fleet.owned(who, select)
        names = list(self._fleet.view.names(nodes))
        if not names:
            raise BadRequest("no node is selected", where="select")
        if len(names) > MOST_AT_ONCE:
            raise BadRequest(f"{len(names)} nodes are selected; at most {MOST_AT_ONCE} at once", where="select")
        if self._nodes is None:
            return [Checked(node=name, results={}, error="no agent is known here") for name in names]
        await self._fleet.ledger.commit(who.name, "health.check", fold(names)[:500], [], detail={"nodes": len(names)})
        found = await self._nodes.run(names)
        self._fleet.controller.look_soon(names)
        return found

    def reasons(self, who: Principal, node: Node) -> Sequence[str]:
        """For ``node why``: what the node fails."""
        found = self._health(node.name)
        lines = [
            f"check {one.check} ({one.severity}) fails: {one.reason}" + ("" if one.counts else " (does not count yet)")
            for one in found.failing
        ]
        return [*lines, *([f"health: {found.why}"] if found.why and not lines else [])]

    # -- what nodes say

    def _heard(self, node: str, said: Checks | None) -> bool:
        before = self._reports.get(node)
        if said is None:
            if before is not None:
                del self._reports[node]
                self._judge.gone(node)
                self._words.pop(node, None)
                self._well.pop(node, None)
            return before is not None
        self._reports[node] = said
        if said.ran and not any(self._severity(name) == "critical" for name in said.failing):
            self._well.setdefault(node, self._clock.wall())
        else:
            self._well.pop(node, None)
        if before is None:  # what was told before our time ends, too
            if told := self._told_of(node, "health-check"):
                self._alarmed[node] = told
            if self._told_of(node, "health-repair"):
                self._given_up.add(node)
        if before != said:
            self._weigh_in(node, said)
        return before != said

    def _weigh_in(self, node: str, said: Checks) -> None:
        """Have what a node says count, and tell its agent if it runs other checks than it should."""
        failing = [name for name in said.failing if self._severity(name)]
        self._judge.heard(node, (*self._runs(node), *failing), failing)
        self._tell_agent(node)
        self._alarm(node, said)

    def judged(self, node: str) -> tuple[str, str]:
        """How a node is, and why."""
        word, why = self._judged(node)
        self._words[node] = word
        return word, why

    def _judged(self, node: str) -> tuple[str, str]:
        said, done, now = self._reports.get(node), self._last_repair(node), self._clock.wall()
        if done is not None and now < done.at + self.policy.steady:
            return "repaired", f"{done.action}: its checks are waited for"
        if said is None:
            return "unknown", "no agent of it is connected here"
        if self._agents is not None and self._edition[0] < 0:
            return "unknown", "which checks it runs is not known yet"
        failing = {name: why for name, why in said.failing.items() if self._severity(name) == "critical"}
        counted = [f"{name}: {why}" for name, why in failing.items() if self._judge.counts(name, node)]
        if counted:
            return "failing", clean("; ".join(counted))[:_REASON]
        doubted = [name for name in failing if name in self._judge.distrusted]
        if doubted:
            return "unknown", f"too many nodes fail {doubted[0]}: the check is not trusted"
        if failing:  # the others have not been heard yet
            before = self._words.get(node, "unknown")
            return before if before in ("ok", "repaired") else "unknown", ""
        if not said.ran or said.digest != self._wanted(node)[0]:
            return "unknown", "its checks have not all run yet"
        left = self._well.get(node, now) + self.policy.steady - now
        if done is not None and now < done.at + WATCHED and left > 0:
            return "repaired", f"{done.action}: it has to be well for {left:.0f} s more"
        return "ok", ""

    def _tell(self, names: Sequence[str]) -> None:
        """Give the engine what is new of nodes that we lead."""
        controller = self._fleet.controller
        if self.driver is None or NAME not in controller.model.variables:
            return
        found = {name: index for name in names if (index := controller.registry.find(name)) >= 0}
        if not found:
            return
        column = self.driver.column(list(found))
        nodes: Indices = np.array(list(found.values()), dtype=np.int64)
        nodes_led = controller.engine.progress.epoch[nodes] > 0
        known = nodes_led & (column.codes > 0)
        if known.any():
            controller.tell(nodes[known], {NAME: column.take(known)}, "agent")
        if (lost := nodes_led & (column.codes == 0)).any():
            # Nobody is told that something is not known: it is looked at.
            controller.engine.facts.schedule_look(nodes[lost], (NAME,), self._clock.now())
            controller.wake()

    async def _weigh(self) -> None:
        """Deal out the checks where something changed, and let failures count that have settled."""
        self._deal()
        self._others.tell(self._judge.shares)
        changed = self._judge.decide()
        self._tell(sorted(changed))
        for node in changed:
            if (said := self._reports.get(node)) is not None:
                self._alarm(node, said)
        self._alarm_doubts()

    # -- which checks are whose

    def _said(self) -> None:
        self._count += 1

    def _deal(self) -> None:
        """Find out which nodes run what, and tell those agents for whom that has changed."""
        registry = self._fleet.registry
        edition = (self._count, registry.edition)
        if edition == self._edition:
            return
        everybody = edition[0] != self._edition[0]
        self._edition = edition
        names = [name for name, _ in self._checks.sorted]
        bits = np.array([self._mask(name) for name in names], dtype=np.bool_).reshape(len(names), registry.size).T
        before, self._bits, self._names = self._bits, bits, names
        if everybody:
            self._encoded = {}
            changed = list(self._reports)
        else:
            same = min(len(before), len(bits))
            others = np.flatnonzero((before[:same] != bits[:same]).any(axis=1)).tolist()
            others += range(same, len(bits))
            changed = [name for index in others if (name := registry.names[index]) in self._reports]
        for node in changed:
            self._weigh_in(node, self._reports[node])
        self._tell(changed)

    def _mask(self, name: str) -> Mask:
        return parse(self._checks.all[name].spec.select).mask(self._fleet.registry, strict=False)

    def _runs(self, node: str) -> tuple[str, ...]:
        index = self._fleet.registry.find(node)
        if not 0 <= index < len(self._bits):
            return ()
        return tuple(self._names[at] for at in np.flatnonzero(self._bits[index]).tolist())

    def _wanted(self, node: str) -> tuple[str, list[dict[str, object]]]:
        """The checks that a node should run, and their digest."""
        runs = self._runs(node)
        if self._agents is None or not runs:
            return "", []
        if runs not in self._encoded:
            checks = [self._checks.all[name].spec.wire(name) for name in runs if name in self._checks.all]
            digest = hashlib.blake2b(msgspec.json.encode(checks), digest_size=8).hexdigest()
            self._encoded[runs] = digest, checks
        return self._encoded[runs]

    def _tell_agent(self, node: str) -> None:
        if self._agents is not None and self._edition[0] >= 0 and self._fleet.controller.leads(node):
            self._agents.tell(node, *self._wanted(node))

    def _severity(self, name: str) -> str:
        if name == SimulatedNodes.CHECK and self._agents is None:
            return "critical"
        found = self._checks.find(name)
        return found.spec.severity if found is not None else ""

    def _settles(self, name: str) -> float:
        found = self._checks.find(name)
        return min(SETTLES, found.spec.every) if found is not None else 0.0

    # -- repairs

    def _next(self, node: str) -> tuple[Repair | None, str]:
        """What the policy has for a node that fails."""
        policy, done = self.policy, self._recent(node)
        if not policy.repairs:
            return None, "the health policy repairs nothing: a person has to repair it"
        if len(done) >= policy.per_day:
            told = f"repaired {len(done)} times within a day ({', '.join(one.action for one in done)}): a person "
            "has to repair it"
            self._given_up.add(node)
            self._fleet.alarm(Alarm(kind="health-repair", message=told, node=node))
            return None, told
        return policy.repairs[min(len(done), len(policy.repairs) - 1)], ""

    async def _note(self, wanted: Mapping[Repair, Sequence[str]]) -> None:
        """Write down what is about to be done; from then on the nodes are ``repaired``."""
        author = f"controller:{self._fleet.controller.name}"
        for action, names in wanted.items():
            now, nodes = self._clock.wall(), fold(names)
            why = {name: self._in_short(name)[:100] for name in names[:20]}
            key = f"{int(now * 1000):011x}{secrets.token_hex(3)}"
            detail = {"action": action, "nodes": nodes[:500], "why": why}
            await self._log.put(author, key, Repaired(at=now, action=action, nodes=nodes), action="do", detail=detail)

    async def _do(self, action: Repair, batch: Batch) -> Outcomes:
        """Take away what is to come anew; that it does is the engine's business."""
        fleet = self._fleet
        indices = np.array([fleet.registry.find(name) for name in batch.names], dtype=np.int64)
        fleet.controller.record_event(indices[indices >= 0], f"repair: {action}", NAME)
        if action == "reboot" and self._agents is not None:
            return await self._agents.reboot(batch)
        driver, step = ("node", "stop-personality") if action == "restart" else ("bmc", "power-off")
        for told in fleet.controller.switched if driver == "bmc" else ():
            told(indices[indices >= 0])  # that its power goes off is no loss
        carries_out = fleet.driver(driver)
        if carries_out is None:
            return Outcomes.all(Outcome.UNTRIED, len(batch), f"nobody here can {step}")
        done = await carries_out.act(fleet.controller.model.mutations[step], batch)
        fleet.controller.look_at(indices[indices >= 0])
        return done

    def _recent(self, node: str) -> list[Repaired]:
        since = self._clock.wall() - DAY
        return sorted((one for one in self._repairs.get(node, {}).values() if one.at > since), key=lambda one: one.at)

    def _last_repair(self, node: str) -> Repaired | None:
        return max(self._repairs.get(node, {}).values(), key=lambda one: one.at, default=None)

    def _logged(self, key: str, record: Repaired | None) -> None:
        if record is None:
            for node in [node for node, done in self._repairs.items() if done.pop(key, None) and not done]:
                del self._repairs[node]
            return
        for node in expand(record.nodes):
            self._repairs.setdefault(node, {})[key] = record

    async def _forget(self, before: float) -> None:
        """Repairs of more than a day ago count no more."""
        for key, record in self._log.sorted:
            if record.at < min(before, self._clock.wall() - DAY):
                await self._log.delete(f"controller:{self._fleet.controller.name}", key, action="prune")

    # -- words

    def _in_short(self, node: str) -> str:
        return f"health: {self.judged(node)[1]}"[:_REASON]

    def _health(self, node: str) -> NodeHealth:
        said, (word, why) = self._reports.get(node), self.judged(node)
        away = self._clock.wall() - self._clock.now()
        failing = tuple(
            Failing(
                check=name,
                severity="critical" if self._severity(name) == "critical" else "warning",
                reason=clean(reason),
                since=round(self._judge.failing(name).get(node, self._clock.now()) + away, 3),
                counts=self._judge.counts(name, node),
            )
            for name, reason in sorted(said.failing.items() if said else ())
            if self._severity(name)
        )
        told = why if word != "failing" else ""
        repairs = tuple(one.action for one in self._recent(node))
        return NodeHealth(node=node, health=word, why=told, failing=failing, repairs=repairs)  # type: ignore[arg-type]

    def _view(self, who: Principal, name: str) -> CheckView:
        record = self._checks.get(name)
        own = [node for node in self._judge.failing(name) if not who.scope or self._fleet.find(who, node) >= 0]
        return CheckView(
            name=name,
            spec=record.spec,
            author=record.author,
            revision=self._checks.revision(name),
            nodes=self._fleet.count(who, self._mask(name)),
            failing=len(own),
            trusted=name not in self._judge.distrusted,
        )

    # -- alarms

    def _alarm(self, node: str, said: Checks) -> None:
        """Tell of checks that began to fail, and of those that pass again; not of those that are not trusted."""
        now = {name: clean(reason) for name, reason in said.failing.items() if self._judge.counts(name, node)}
        told = self._alarmed.pop(node, set())
        if now:
            self._alarmed[node] = set(now)
        for name in sorted(told - now.keys()):
            passes = f"check {name} passes"
            self._fleet.alarm(Alarm(kind="health-check", message=passes, node=node, about=name, severity="ok"))
            self._event(node, passes)
        for name in sorted(now.keys() - told):
            severity = "critical" if self._severity(name) == "critical" else "warning"
            message = f"check {name} fails: {now[name]}"
            self._fleet.alarm(
                Alarm(kind="health-check", message=message, node=node, about=name, severity=severity)  # type: ignore[arg-type]
            )
            self._event(node, message)
        if not now and node in self._given_up:
            self._given_up.discard(node)
            self._fleet.alarm(Alarm(kind="health-repair", message="it is well", node=node, severity="ok"))

    def _alarm_doubts(self) -> None:
        doubted = self._judge.distrusted
        for name in doubted.keys() - self._doubted:
            many = doubted[name]
            message = (
                f"check {name} fails on {many.failing} of {many.of} nodes: it is not trusted, and no further node "
                "counts as failing it"
            )
            log.warning("a health check is not trusted", extra={"check": name, "failing": many.failing, "of": many.of})
            self._fleet.alarm(Alarm(kind="health-check", message=message, about=name))
        for name in self._doubted - doubted.keys():
            message = f"few enough nodes fail check {name}: it is trusted again"
            self._fleet.alarm(Alarm(kind="health-check", message=message, about=name, severity="ok"))
        self._doubted = set(doubted)

    def _told_of(self, node: str, kind: str) -> set[str]:
        """What alerts of a kind are open on a node, or on none: what each is about."""
        hub = self._fleet.services.find(EventHub)
        found = hub.alerts.open_on(node) if hub is not None else ()
        return {about for alert in found if (about := alert.key.removeprefix(f"{kind}/")) != alert.key}

    def _event(self, node: str, what: str) -> None:
        index = self._fleet.registry.find(node)
        if index >= 0:
            self._fleet.controller.record_event(np.array([index], dtype=np.int64), what, "agent")

    def _departed(self, node: str) -> None:
        self._heard(node, None)
        self._alarmed.pop(node, None)
        self._given_up.discard(node)
