"""Agents that behave, in memory: every node's is attached, and says hello to whatever it is told to run."""

from __future__ import annotations

import itertools
from typing import Any

from strata.core.errors import BadRequest, Conflict, NotFound
from strata.fleet.access.principal import Principal
from strata.fleet.nodes.records import NodeSpec, NodeView
from strata.provisioning.agents import records as a
from strata.provisioning.agents.door import AgentDoor
from strata.provisioning.agents.hub import Hub
from strata.provisioning.agents.service import AgentService
from strata.provisioning.agents.unknown import UnknownMachines
from strata.provisioning.exec.records import ExecRequest, ExecResult, ExecView
from strata.provisioning.exec.service import ExecService
from strata.provisioning.personalities.records import (
    Member,
    Personality,
    PersonalityList,
    PersonalitySpec,
    PersonalityView,
    check,
)
from strata.provisioning.personalities.service import PersonalityService
from support.agent_site import FakeIdentity

SET = "compute"
MAC = "52:54:00:00:00:09"
_DIGEST = f"sha256:{'0' * 64}"


class FakeAgentService:
    """Stands in for ``AgentService``."""

    def __init__(self, facade: Any) -> None:
        self._facade = facade
        self._macs = {MAC}

    async def agent(self, who: Principal, name: str) -> a.AgentView:
        await self._facade.node(who, name)
        member = a.MemberState(name="system", state="active", ready=True, restarts=0, since=1.0, reason="")
        return a.AgentView(
            node=name, attached=True, contact=1.0, since=1.0, generation=1, version="1", profile="default@abc",
            uptime=5.0, cpu_s=0.1, set=SET, set_digest=_DIGEST, state="active", reason="", members=(member,),
            loaded=(_DIGEST,), healthy=True, problems=(), metrics={"load1": 0.5}, failure="", pending=0,
        )  # fmt: skip

    async def inventory(self, who: Principal, name: str) -> a.InventoryView:
        await self._facade.node(who, name)
        return a.InventoryView(node=name, time=1.0, inventory={"cpus": 4})

    async def unknown(self, who: Principal) -> a.UnknownMachines:
        items = (
            a.UnknownMachine(
                mac=mac, macs=(mac,), uuid="", serial="S9", peer="10.0.0.9", first=1.0, last=2.0, inventory={}
            )
            for mac in sorted(self._macs)
        )  # fmt: skip
        return a.UnknownMachines(items=tuple(items))

    async def adopt(self, who: Principal, mac: str, wanted: a.AdoptMachine) -> NodeView:
        self._check(mac)
        result = (await self._facade.create_nodes(who, [NodeSpec(name=wanted.name)]))[0]
        if not result.ok:
            raise (Conflict if result.status == 409 else BadRequest)(result.error, where=wanted.name)
        return await self._facade.node(who, wanted.name)

    async def forget(self, who: Principal, mac: str) -> None:
        self._check(mac)

    def _check(self, mac: str) -> None:
        if mac not in self._macs:
            raise NotFound("no such machine has said hello", where=mac)


class FakeExec:
    """Stands in for ``ExecService``: a run is over at once."""

    def __init__(self, facade: Any) -> None:
        self._facade = facade
        self._runs: dict[str, ExecView] = {}
        self._ids = itertools.count(1)

    async def begin(self, who: Principal, request: ExecRequest) -> ExecView:
        names = list(await self._facade.node_names(who, request.select))
        if not names:
            raise BadRequest("no node is selected", where="select")
        ident = f"{next(self._ids):016x}"
        items = (ExecResult(node=name, exit=0, output="hello\n", truncated=False, error="") for name in names)
        self._runs[ident] = ExecView(
            id=ident, argv=request.argv, author=who.name, created=1.0, state="done", total=len(names),
            done=len(names), failed=0, items=tuple(items), next=len(names),
        )  # fmt: skip
        return self._runs[ident]

    async def show(self, who: Principal, ident: str, after: int, wait: float) -> ExecView:
        return self._find(ident)

    async def cancel(self, who: Principal, ident: str) -> None:
        self._find(ident)

    def _find(self, ident: str) -> ExecView:
        if ident not in self._runs:
            raise NotFound("no such run", where=ident)
        return self._runs[ident]


class FakePersonalities:
    """Stands in for ``PersonalityService``: every image is there."""

    def __init__(self) -> None:
        self._sets = {SET: (Personality(name=SET, members=(Member(name="system", release="debian:12"),)), 1)}

    async def all(self, who: Principal) -> PersonalityList:
        return PersonalityList(items=tuple([await self.show(who, name) for name in sorted(self._sets)]))

    async def show(self, who: Principal, name: str) -> PersonalityView:
        if name not in self._sets:
            raise NotFound("no such personality", where=name)
        found, revision = self._sets[name]
        return PersonalityView(
            name=name, description=found.description, members=found.members, digest=_DIGEST, problem="",
            releases={member.name: _DIGEST for member in found.members}, wanted=2, running=1, revision=revision,
        )  # fmt: skip

    async def put(self, who: Principal, name: str, spec: PersonalitySpec, expected: int | None) -> PersonalityView:
        made = Personality(name=name, members=spec.members, description=spec.description)
        check(made)
        revision = self._sets[name][1] if name in self._sets else 0
        if expected is not None and expected != revision:
            raise Conflict("it is at another revision", revision=revision, where=name)
        self._sets[name] = (made, revision + 1)
        return await self.show(who, name)

    async def delete(self, who: Principal, name: str, expected: int | None) -> None:
        if (await self.show(who, name)).revision != (expected or self._sets[name][1]):
            raise Conflict("it is at another revision", where=name)
        del self._sets[name]


def fake_agent_layer(facade: Any) -> dict[type[Any], Any]:
    """All of it, over one facade."""

    async def inventoried(node: str, body: bytes) -> None: ...

    door = AgentDoor(
        hub=Hub(known=lambda name: name.startswith("n")),
        identity=FakeIdentity(),  # type: ignore[arg-type]
        unknown=UnknownMachines(lambda mac: None),
        inventoried=inventoried,
        logged=lambda node, lines: None,
    )
    return {
        AgentDoor: door,
        AgentService: FakeAgentService(facade),
        ExecService: FakeExec(facade),
        PersonalityService: FakePersonalities(),
    }
