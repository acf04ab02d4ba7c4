"""Requests about configuration: what one would change, changing it, and what was applied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Network
from typing import Any

import msgspec
import numpy as np

from strata.core.errors import Conflict, NotFound, Refused, Unavailable
from strata.core.nodeset import expand, fold
from strata.fleet.access.principal import Principal
from strata.fleet.budgets.service import BudgetService
from strata.fleet.columns import Indices
from strata.fleet.desires.documents import ValueSet, checked
from strata.fleet.fleet import Fleet
from strata.fleet.plans.service import PlanService
from strata.fleet.registry.registry import Registry
from strata.fleet.registry.whole_edits import Prepared
from strata.fleet.selectors.language import parse
from strata.platform.config.difference import Difference, both, difference
from strata.platform.config.foresight import foreseen
from strata.platform.config.keeper import Keeper
from strata.platform.config.lower_layers import power_policies_keeper, profiles_keeper
from strata.platform.config.records import (
    Applied,
    Approval,
    ConfigChange,
    ConfigDone,
    ConfigPlan,
    ConfigStatus,
    Configuration,
    HeldDocuments,
    KeptKind,
    Pause,
    RollingView,
    WatchSpec,
    Way,
)
from strata.platform.config.rolling import Outlook, RollingCommits
from strata.platform.config.watcher import Watcher
from strata.platform.delivery.records import VARIABLE as CONFIG
from strata.platform.delivery.records import revision_of
from strata.platform.delivery.service import DeliveryService
from strata.platform.rollouts.service import RolloutService
from strata.platform.written import placed
from strata.power.policies.records import PolicyRecords
from strata.provisioning.boot.profiles import Profiles
from strata.provisioning.bootnets.service import BootNetworks
from strata.provisioning.images.repository import Images
from strata.provisioning.personalities.records import Personality
from strata.provisioning.personalities.resolve import Personalities
from strata.provisioning.personalities.service import VARIABLE
from strata.store.protocol import Op
from strata.store.records import Records

NAME = "current"
MOST_GONE = 0.1
"""The part of the nodes that came from the configuration which one apply removes without being told twice."""
_ATTEMPTS = 5
_SHOWN_HERE: tuple[KeptKind, ...] = ("secret", "image")
"""Kinds that no list of their room shows whole."""


class ConfigService:
    """The configuration of this fleet."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._applied = fleet.records(
            Applied, kind="config", prefix="config/applied/", listed_by="strata config status"
        )
        self.keepers: dict[KeptKind, Keeper] = {}
        """Rooms by the kind of document that they keep."""
        self._watcher = Watcher(fleet, self)
        self._rolling = RollingCommits(fleet, self)

    async def start(self) -> None:
        """Load what was applied; follow the branch once the fleet runs."""
        await self._applied.start()
        await self._watcher.load()
        await self._rolling.load()
        self._fleet.begin(self._watcher.start)
        self._fleet.begin(self._rolling.start)

    async def stop(self) -> None:
        """Follow no more."""
        await self._rolling.stop()
        await self._watcher.stop()
        await self._applied.stop()

    @property
    def applied(self) -> Applied:
        """What was last applied."""
        return self._applied.find(NAME) or Applied()

    # asking

    async def status(self, who: Principal) -> ConfigStatus:
        """What was applied, which branch is followed, and what waits."""
        applied = self.applied
        return ConfigStatus(
            commit=applied.commit,
            system=applied.system,
            author=applied.author,
            time=applied.time or None,
            nodes=sum(len(expand(names)) for names in applied.nodes.values()),
            rolling=self._rolling.shown(),
            **self._watcher.shown(),
        )

    async def held(self, who: Principal) -> HeldDocuments:
        """Overlays, encrypted secrets and what images are made of, as they are in force: for writing a repository anew.
        For those who may apply one."""
        self._fleet.need_whole_fleet(who, "a configuration")
        self._meet()
        revision, delivery = self.applied.overlays, self._delivery()
        said: dict[str, tuple[Any, ...]] = {
            kind: tuple(self.keepers[kind].said(name, record) for name, record in self.keepers[kind].records.sorted)
            for kind in _SHOWN_HERE
            if kind in self.keepers
        }
        return HeldDocuments(
            overlays=delivery.overlays(revision) if delivery is not None else (),
            revision=revision,
            secrets=said.get("secret", ()),
            images=said.get("image", ()),
        )

    async def plan(self, who: Principal, configuration: Configuration, way: Way = "policy") -> ConfigPlan:
        """What applying a configuration would change, what would then be done to nodes, and whether in waves. Changes
        nothing."""
        self._fleet.need_whole_fleet(who, "a configuration")
        found, prepared = await self._prepared(configuration, who.name)
        outlook = await self._outlook(configuration, found, prepared)
        rolled = self._rolling.outline(configuration, found, outlook, way)
        seconds = max((one.cost for one in outlook.report.classes), default=0.0)
        budgets = self._fleet.services.find(BudgetService)
        places = budgets.places(len(self._fleet.registry)) if budgets is not None else None
        rounds = -(-len(outlook.disrupted) // places) if places else 1
        return ConfigPlan(
            commit=configuration.commit,
            system=configuration.system,
            changes=tuple(_counted(change, outlook.switched) for change in found.changes),
            unchanged=found.unchanged,
            nodes=len(outlook.nodes),
            classes=outlook.report.classes,
            totals=outlook.report.totals,
            disrupts=fold(outlook.disrupted),
            disrupted=len(outlook.disrupted),
            seconds=seconds,
            all_seconds=seconds * max(1, rounds),
            places=places,
            removes=len(found.edit.no_nodes),
            refused=self._brake(found),
            rollouts=rolled.shown,
            rollout_refused=rolled.refused,
            warnings=outlook.warnings,
        )

    @property
    def followed_url(self) -> str:
        """The address of the repository whose branch is followed; empty: none is."""
        followed = self._watcher.followed
        return followed.spec.url if followed is not None else ""

    def on_its_way(self, commit: str) -> RollingView | None:
        """How a commit fares that reaches its nodes in waves; None: it does not."""
        found = self._rolling.shown()
        return found if found is not None and found.commit == commit else None

    async def pending(self, who: Principal) -> ConfigPlan:
        """What the commit of the branch that waits would change."""
        return await self.plan(who, self._watcher.pending())

    # doing

    async def apply(
        self, who: Principal, configuration: Configuration, *, remove_most: bool = False, way: Way = "policy"
    ) -> ConfigDone:
        """Make the fleet's description be what a configuration says; or begin to, where nodes are to get there in
        waves."""
        self._fleet.need_whole_fleet(who, "a configuration")
        await self._rolling.free(who, configuration)
        return await self._apply(who, configuration, remove_most=remove_most, way=way)

    async def say(self, who: Principal, configuration: Configuration, *, remove_most: bool) -> ConfigDone:
        """Apply what all nodes have got in waves."""
        return await self._apply(who, configuration, remove_most=remove_most, way="at-once")

    async def _apply(self, who: Principal, configuration: Configuration, *, remove_most: bool, way: Way) -> ConfigDone:
        for _ in range(_ATTEMPTS):
            found, prepared = await self._prepared(configuration, who.name)
            await self._need_images(who, configuration, found)
            if (no := self._brake(found)) and not remove_most:
                raise Refused(no, by="remove-most", where=f"commit {configuration.commit[:12] or 'none'}", hint=_REALLY)
            if self._rolling.concerns(configuration, way):
                outlook = await self._outlook(configuration, found, prepared)
                rolled = self._rolling.outline(configuration, found, outlook, way)
                if rolled.refused:
                    where = f"commit {configuration.commit[:12] or 'none'}"
                    raise Refused(rolled.refused, by="rollout-policy", where=where, hint=_AT_ONCE)
                if rolled.specs:
                    await self._keep_overlays(who, configuration)
                    await self._rolling.begin(who, configuration, found, rolled.specs, remove_most=remove_most)
                    begun, at = tuple(rolled.specs), self._applied.revision(NAME)
                    return ConfigDone.of(configuration, found, revision=at, rollouts=begun)
            applied = self.applied
            gone = bool(self._gone(found))
            moved = found.applied.overlays != applied.overlays
            if gone or moved or (configuration.overlays and found.changes):
                after = await self._after(prepared, whole=gone or moved)
                self._check_unwanted(found, after)
                await self._trial_overlays(configuration, after)
            now = msgspec.structs.replace(
                found.applied, author=applied.author if not found.changes else who.name, time=applied.time
            )
            if not found.changes and now == applied:
                return ConfigDone.of(configuration, found, revision=self._applied.revision(NAME), rollouts=())
            try:
                revision = await self._write(who, configuration, found, prepared)
            except Conflict:
                continue  # somebody was faster: compare again
            await self._settled(found, revision)
            return ConfigDone.of(configuration, found, revision=revision, rollouts=())
        raise Conflict(
            f"others kept changing the same things ({_ATTEMPTS} attempts)", where="configuration", hint="try again"
        )

    # the branch

    async def watch(self, who: Principal, spec: WatchSpec) -> ConfigStatus:
        """Follow a branch."""
        await self._watcher.follow(who, spec)
        return await self.status(who)

    async def unwatch(self, who: Principal) -> None:
        """Follow no branch any more. What was applied stays."""
        await self._watcher.forget(who)

    async def pause(self, who: Principal, pause: Pause) -> ConfigStatus:
        """Apply nothing of the branch until further notice; with an empty reason: go on."""
        await self._watcher.pause(who, pause.reason)
        return await self.status(who)

    async def approve(self, who: Principal, approval: Approval) -> ConfigStatus:
        """Let the commit that waits be applied, at once."""
        await self._watcher.approve(who, approval)
        return await self.status(who)

    async def look(self, who: Principal) -> ConfigStatus:
        """Look at the branch now: for a hook of the repository."""
        await self._watcher.look()
        return await self.status(who)

    # parts

    def _meet(self) -> None:
        """Take in the rooms that know nothing of repositories, whichever are open here."""
        if (budgets := self._fleet.services.find(BudgetService)) is not None:
            self.keepers["budget"] = Keeper(budgets.records, budgets.made, budgets.said)
        if (profiles := self._fleet.services.find(Profiles)) is not None:
            self.keepers["boot-profile"] = profiles_keeper(profiles)
        if (networks := self._fleet.services.find(BootNetworks)) is not None:
            self.keepers["network"] = Keeper(networks.records, together=networks.together)
        if (policies := self._fleet.services.find(PolicyRecords)) is not None:
            self.keepers["power-policy"] = power_policies_keeper(policies, self._fleet.controller.clock.wall)
        if (rollouts := self._fleet.services.find(RolloutService)) is not None:
            self.keepers["rollout-policy"] = Keeper(rollouts.policies)

    async def _prepared(self, configuration: Configuration, who: str) -> tuple[Difference, Prepared]:
        """What differs, checked, and what would be written for it."""
        author = f"git:{configuration.commit[:12]}" if configuration.commit else who
        self._meet()
        for attempt in range(_ATTEMPTS):
            await self._applied.fetch(NAME)
            delivery = self._delivery()
            overlays = delivery.overlays(self.applied.overlays) if delivery is not None else ()
            kept = {
                kind: {name: keeper.said(name, record) for name, record in keeper.records.all.items()}
                for kind, keeper in self.keepers.items()
            }
            found = await difference(
                self._fleet.registry, self._personalities(), overlays, kept, configuration, self.applied, author
            )
            self._check_desires(found, configuration)
            self._made(found, configuration, author)
            coming = self._coming(configuration)
            for name, personality in found.personalities.items():
                if personality is not None and not any(member.release in coming for member in personality.members):
                    with placed(configuration.place("personality", name)):
                        await self._sets().trial(personality)
            try:
                networks = [IPv4Network(one.network) for one in configuration.networks]
                edit = msgspec.structs.replace(found.edit, networks=networks)
                return found, await self._fleet.edits.prepare(edit, author)
            except Conflict:
                if attempt == _ATTEMPTS - 1 or self._fleet.registry.revision == found.edit.seen:
                    raise  # that is how it is, and not somebody who was faster
        raise AssertionError("unreachable")

    async def _after(self, prepared: Prepared, *, whole: bool) -> Registry:
        return await foreseen(self._fleet.store, self._fleet.controller.model, prepared.ops, whole=whole)

    async def _write(self, who: Principal, configuration: Configuration, found: Difference, prepared: Prepared) -> int:
        edits, ledger = self._fleet.edits, self._fleet.ledger
        detail = {
            "commit": configuration.commit,
            "system": configuration.system,
            "changes": [f"{change.kind} {change.action} {change.name[:200]}" for change in found.changes[:100]],
        }
        target = configuration.commit or "files"
        await self._keep_overlays(who, configuration)
        rows = [self._sets().records.prepared(name, one) for name, one in found.personalities.items()]
        for kind, made in self._made(found, configuration, who.name).items():
            rows += [self._keeper(kind).records.prepared(name, record) for name, record in made.items()]
        ops, expect = _at_once(rows)
        if not edits.is_one_transaction(prepared.with_(ops, expect)):
            # Part of it may be there when we die: what that is must be known, so that it can be taken away again.
            op, revision = self._applied.prepared(NAME, both(self.applied, found.applied))
            await ledger.commit(who.name, "config.begin", target, [op], revision, detail)
            await self._applied.fetch(NAME)
        last = msgspec.structs.replace(found.applied, author=who.name, time=self._fleet.controller.clock.wall())
        op, revision = self._applied.prepared(NAME, last)
        whole = prepared.with_([*ops, op], {**expect, **revision})
        return await edits.commit_prepared(whole, who.name, "config.apply", target, detail)

    async def _keep_overlays(self, who: Principal, configuration: Configuration) -> None:
        """Before anything wants them. Where we die in between, nobody does, and they are forgotten some time."""
        revision = revision_of(configuration.overlays)
        if configuration.overlays or any(revision in one.set.get(CONFIG, ()) for one in configuration.desires):
            await self._fleet.of(DeliveryService).keep(who.name, configuration.overlays, configuration.commit)

    async def add_personalities(self, who: Principal, found: Difference) -> None:
        """Write the personalities that are new, and that they came from the repository: nobody wants them yet."""
        new = {
            name: one
            for name, one in found.personalities.items()
            if one is not None and name not in self._personalities()
        }
        if new:
            names = tuple(dict.fromkeys((*self.applied.personalities, *new)))
            await self._add(who, self._sets().records, new, new, personalities=names)
            await self._sets().settled()

    async def _add(
        self, who: Principal, records: Records[Any], new: Mapping[str, Any], about: Iterable[str], **applied: Any
    ) -> None:
        """Write records that are new, and that they are there because of the configuration."""
        rows = [records.prepared(name, one) for name, one in new.items()]
        rows.append(self._applied.prepared(NAME, msgspec.structs.replace(self.applied, **applied)))
        ops, expect = _at_once(rows)
        await self._fleet.ledger.commit(who.name, "config.begin", ", ".join(about)[:500], ops, expect)
        await self._applied.fetch(NAME)
        for name in new:
            await records.fetch(name)

    def _coming(self, configuration: Configuration) -> frozenset[str]:
        """Images that the configuration itself says what to make of, and that are not there yet."""
        images = self._fleet.services.find(Images)
        if images is None:
            return frozenset()
        names = images.catalogue.names
        there = {f"{name}:{tag}" for name, one in names.items() for tag in one.tags}
        return frozenset(one.image for one in configuration.images) - there

    async def _need_images(self, who: Principal, configuration: Configuration, found: Difference) -> None:
        """Raise ``Refused`` while an image is made that a personality of the same commit is to have. The making begins
        now: an image that nobody wants yet changes nothing."""
        coming = self._coming(configuration)
        new = [one for one in found.personalities.values() if one is not None]
        missing = sorted({member.release for one in new for member in one.members} & coming)
        if not missing:
            return
        names = tuple(one.name for one in configuration.images if one.image in missing)
        made = self._made(found, configuration, who.name).get("image", {})
        if sources := {name: one for name, one in made.items() if name in names and one is not None}:
            kept = {**self.applied.kept, "image": tuple(dict.fromkeys((*self.applied.kept.get("image", ()), *names)))}
            await self._add(who, self._keeper("image").records, sources, missing, kept=kept)
        raise Refused(
            f"{', '.join(missing)[:200]} is being made",
            by="image",
            where=f"commit {configuration.commit[:12] or 'none'}",
            hint="apply again when 'strata image-source list' shows that it is made; a followed branch is applied "
            "by itself",
        )

    async def _outlook(self, configuration: Configuration, found: Difference, prepared: Prepared) -> Outlook:
        """What would be wanted of nodes after an apply, and what would be done to them for it."""
        moved = found.applied.overlays != self.applied.overlays
        selects = _selects(found, configuration, moved=moved)
        whole = bool(found.personalities) or bool(self._gone(found)) or moved or bool(selects)
        after = await self._after(prepared, whole=whole)
        self._check_unwanted(found, after)
        configured = await self._trial_overlays(configuration, after)
        nodes, goals = _moved(self._fleet.registry, after, configured)
        report = self._fleet.of(PlanService).report(nodes, goals)
        switched = self._switched(found, after)
        lost = [one.nodeset for one in report.classes if any(step.destructive for step in one.steps)]
        disrupted = sorted({name for names in (*lost, *switched.values()) for name in expand(names)})
        return Outlook(nodes, goals, report, switched, disrupted, _about_nobody(selects, after), configured)

    async def _settled(self, found: Difference, revision: int) -> None:
        await self._applied.fetch(NAME)
        if found.personalities:
            for name in found.personalities:
                await self._sets().records.fetch(name)
            await self._sets().settled()
        for kind, edits in found.kept.items():
            for name in edits:
                await self._keeper(kind).records.fetch(name)
        await self._fleet.settled(revision)
        if (delivery := self._delivery()) is not None:
            await delivery.tidy("strata")

    def _made(self, found: Difference, configuration: Configuration, author: str) -> dict[KeptKind, dict[str, Any]]:
        """What rooms are to keep: kind → name → record (None: it goes)."""
        made: dict[KeptKind, dict[str, Any]] = {}
        for kind, edits in found.kept.items():
            if edits:
                self._keeper(kind).together(edits)
            for name, spec in edits.items():
                with placed(configuration.place(kind, name)):
                    made.setdefault(kind, {})[name] = None if spec is None else self._keeper(kind).made(spec, author)
        return made

    def _keeper(self, kind: KeptKind) -> Keeper:
        keeper = self.keepers.get(kind)
        if keeper is None:
            raise Unavailable(
                f"this service keeps no documents of the kind {kind}",
                where="config",
                hint="the layer that does is not started here; strata serve starts all, strata serve --help lists them",
            )
        return keeper

    def _brake(self, found: Difference) -> str:
        """Why this is not done without being told twice; empty: it is."""
        came = sum(len(expand(names)) for names in self.applied.nodes.values())
        gone = len(found.edit.no_nodes)
        if gone > max(1, MOST_GONE * came):
            return f"it would forget {gone} of the {came} nodes that came from the configuration"
        kept = (name for names in self.applied.kept.values() for name in names)
        others = [*self.applied.groups, *self.applied.desires, *self.applied.personalities, *kept]
        removed = sum(change.action == "removed" and change.kind != "node" for change in found.changes)
        if removed > max(1, len(others) / 2):
            return (
                f"it would remove {removed} of the {len(others)} groups, desires and other documents that came from it"
            )
        return ""

    def _check_desires(self, found: Difference, configuration: Configuration) -> None:
        """That every desire is one that this fleet can have."""
        edits = self._fleet.edits
        ours = {(VARIABLE, personality.name) for personality in configuration.personalities}
        for kind, keeper in self._wanted_keepers():
            ours |= {(keeper.variable, name) for name in configuration.kept[kind]}
        ours.add((CONFIG, revision_of(configuration.overlays)))
        for name, document in found.edit.documents.items():
            if document is None:
                continue
            with placed(configuration.place("desire", name)):
                checked(self._fleet.controller.model, document, document.author)
                for variable, values in document.set.items():
                    for value in values if variable in edits.known else ():
                        if (variable, value) not in ours:
                            edits.known[variable](value)

    def _check_unwanted(self, found: Difference, after: Registry) -> None:
        """That nothing goes which a node is then still wanted to have."""
        for kind, variable, name in self._gone(found):
            if names := _wanting(after, variable, name):
                raise Refused(
                    f"{len(names)} nodes are still wanted to have it: {fold(names)[:200]}",
                    by="desires",
                    where=f"{kind} {name}",
                    hint="take the desire away in the same commit, or before",
                )

    def _gone(self, found: Difference) -> list[tuple[str, str, str]]:
        """What goes of what nodes can be wanted to have: kind, variable and name."""
        gone = [("personality", VARIABLE, name) for name, one in found.personalities.items() if one is None]
        for kind, keeper in self._wanted_keepers():
            edits = found.kept.get(kind, {})
            gone += [(kind, keeper.variable, name) for name, one in edits.items() if one is None]
        return gone

    def _wanted_keepers(self) -> list[tuple[KeptKind, Keeper]]:
        return [(kind, keeper) for kind, keeper in self.keepers.items() if keeper.variable]

    def _switched(self, found: Difference, after: Registry) -> Mapping[str, str]:
        """Personality that is another now → the nodes that are wanted to have it."""
        there = self._personalities()
        return {
            name: fold(_wanting(after, VARIABLE, name))
            for name, personality in found.personalities.items()
            if personality is not None and name in there
        }

    async def _trial_overlays(self, configuration: Configuration, after: Registry) -> frozenset[str]:
        """That all nodes can have what the overlays say; those that are to have the same already."""
        if not configuration.overlays:
            return frozenset()
        delivery = self._fleet.of(DeliveryService)
        delivery.check(configuration.overlays)
        return await delivery.trial(configuration.overlays, after, f"commit {configuration.commit[:12] or 'none'}")

    def _delivery(self) -> DeliveryService | None:
        return self._fleet.services.find(DeliveryService)

    def _personalities(self) -> Mapping[str, Personality]:
        found = self._fleet.services.find(Personalities)
        return found.records.all if found is not None else {}

    def _sets(self) -> Personalities:
        return self._fleet.of(Personalities)


_AT_ONCE = "look at it with 'strata config plan'; --at-once applies it to all nodes at the same time"
_REALLY = "look at it with 'strata config plan'; if it is meant, apply with --remove-most"


def _at_once(rows: Sequence[tuple[Op, Mapping[str, int]]]) -> tuple[list[Op], dict[str, int]]:
    """What puts several records in place, and the revisions that this goes by."""
    return [op for op, _ in rows], {key: revision for _, known in rows for key, revision in known.items()}


def _selects(found: Difference, configuration: Configuration, *, moved: bool) -> list[tuple[str, str]]:
    """What the change says of nodes: where it is written, and the selection."""
    said = [("desire", name, one.select) for name, one in found.edit.documents.items() if one is not None]
    said += [("overlay", one.name, one.select) for one in configuration.overlays if moved]
    for kind, edits in found.kept.items():
        said += [(kind, name, getattr(one, "select", "")) for name, one in edits.items() if one is not None]
    return [
        (f"{kind} {name} ({configuration.place(kind, name)})", select)
        for kind, name, select in dict.fromkeys(said)
        if select
    ]


def _about_nobody(selects: Sequence[tuple[str, str]], after: Registry) -> tuple[str, ...]:
    """Which of them are about no node, and why: a group that is not there is a slip more often than a plan."""
    warnings = []
    for what, select in selects:
        try:
            if not parse(select).mask(after, strict=True).any():
                warnings.append(f"{what} is about no node: {select}")
        except NotFound as error:
            warnings.append(f"{what} is about no node: {error.detail}")
    return tuple(warnings)


def _counted(change: ConfigChange, switched: Mapping[str, str]) -> ConfigChange:
    if change.kind != "personality" or change.name not in switched:
        return change
    return msgspec.structs.replace(change, count=len(expand(switched[change.name])))


def _wanting(registry: Registry, variable: str, name: str) -> list[str]:
    if variable not in registry.model.variables:
        return []
    return [registry.names[index] for index in np.flatnonzero(registry.wanted(variable, name)).tolist()]


def _moved(now: Registry, after: Registry, configured: frozenset[str]) -> tuple[Indices, dict[str, list[ValueSet]]]:
    """The nodes of now of which something else would be wanted, and all that would be. ``configured``: nodes for which
    another revision of the configuration comes to the same."""
    there = np.flatnonzero(now.alive)
    then = after.indices_of(now.uids[there])
    there, then = there[then >= 0], then[then >= 0]
    differs = np.zeros(len(there), dtype=np.bool_)
    for variable in now.model.variables:
        before, later = now.desires.goals(variable), after.desires.goals(variable)
        ids: dict[ValueSet, int] = {}
        codes = [
            np.array([ids.setdefault(values, len(ids)) for values in column.table])[column.codes[nodes]]
            for column, nodes in ((before, there), (later, then))
        ]
        other = codes[0] != codes[1]
        if variable == CONFIG and configured:
            other &= np.array([now.names[index] not in configured for index in there.tolist()], dtype=np.bool_)
        differs |= other
    there, then = there[differs], then[differs]
    goals = {}
    for variable in now.model.variables:
        column = after.desires.goals(variable)
        goals[variable] = [column.table[code] for code in column.codes[then].tolist()]
    return there, goals
