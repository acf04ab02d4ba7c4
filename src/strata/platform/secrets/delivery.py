"""The way of secrets to nodes: agents ask and get what is theirs; who is behind is told to ask. Knows no people."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from strata.core.errors import BadRequest, StrataError, Unavailable
from strata.core.input.decoding import UNREADABLE
from strata.fleet.alarm import Alarm, AlarmSeverity
from strata.fleet.columns import Mask
from strata.fleet.fleet import Fleet
from strata.fleet.peers.door import PeerDoor, each
from strata.fleet.peers.leaders import LeaderClient
from strata.fleet.recurring import Recurring
from strata.platform.scopes import Scopes
from strata.platform.secrets.records import Secret
from strata.platform.secrets.values import Values
from strata.provisioning.agents.door import AgentDoor
from strata.provisioning.agents.hub import Hub
from strata.store.records import Records

log = logging.getLogger(__name__)

ROUTE = "secrets"
"""Of agents' questions, of the command that has them ask, and of other controllers' questions."""
EVERY = 60.0
"""Seconds between two looks at who is behind; a change makes one at once."""
_SOON = 30.0  # seconds after which an agent asks again for what could not be had
_MOST_REPLY = 4 << 20
MOST_OF_A_NODE = 500
"""Secrets that one node gets, the first by name: what it reports of them has limits."""
_AT_ONCE, _PAUSE = 200, 0.5  # agents that are told to ask, and seconds until the next are: they all come at once


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent holds: name → stamp."""

    have: Annotated[dict[str, str], Meta(max_length=1000)] = {}


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """One secret for a node."""

    stamp: str
    value: str
    """In base64."""
    uid: int
    gid: int

    def __repr__(self) -> str:
        return f"Given({self.stamp})"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What is the node's. What is named in neither is not, and goes."""

    secrets: dict[str, Given]
    keep: tuple[str, ...]
    """The node has it already, or it cannot be had now."""
    again: float
    """Seconds after which to ask again though nobody says so; 0: some time."""


class _Held(msgspec.Struct, frozen=True):
    """As much of an agent's report."""

    secrets: dict[str, str] = {}


_ask = msgspec.json.Decoder(Asked).decode
_held = msgspec.json.Decoder(_Held).decode
_encode = msgspec.json.Encoder().encode


class SecretDelivery:
    """Gives nodes their secrets. ``start``, then ``stop``."""

    def __init__(self, fleet: Fleet, records: Records[Secret], values: Values, scopes: Scopes) -> None:
        self._fleet = fleet
        self._records = records
        self._values = values
        self._scopes = scopes
        self._hub = fleet.services.find(Hub)
        self._elsewhere = fleet.services.find(LeaderClient)
        self._turn = Recurring("secrets", self._round, lambda: EVERY, trouble="nodes were not told of their secrets")
        self._told: dict[str, str] = {}
        self.stop = self._turn.stop
        self.soon = self._turn.soon

    async def start(self) -> None:
        """Answer agents, and look at who is behind."""
        if (door := self._fleet.services.find(AgentDoor)) is not None:
            door.more[ROUTE] = self.answer
        if (peers := self._fleet.services.find(PeerDoor)) is not None:
            peers.routes[ROUTE] = each(str, self.held_here)
        await self._turn.start()

    # what agents ask

    async def answer(self, node: str, body: bytes) -> bytes:
        """What is the node's, and it does not have: ``node`` is who its certificate says it is."""
        try:
            have = _ask(body).have
        except UNREADABLE:
            raise BadRequest(
                "the body is not JSON of the expected form", where="body", hint='such as {"have": {}}'
            ) from None
        index = self._fleet.registry.find(node)
        if index < 0:
            raise Unavailable("no such node is known yet", where=node)
        given: dict[str, Given] = {}
        keep: list[str] = []
        again, size = 0.0, 0
        for name, secret in self._records.sorted:
            if not self._scopes.has(secret.spec.select, index):
                continue
            if len(given) + len(keep) >= MOST_OF_A_NODE:
                log.warning("a node has more secrets than it gets", extra={"node": node, "most": MOST_OF_A_NODE})
                break
            try:
                opened = await self._values.get(secret)
            except StrataError:
                keep.append(name)  # the round tells a person; the node goes on with what it has
                again = _SOON
                continue
            if have.get(name) == opened.stamp or size + len(opened.value) > _MOST_REPLY:
                keep.append(name)
                again = again if have.get(name) == opened.stamp else 1.0
                continue
            size += len(opened.value)
            value = base64.b64encode(opened.value).decode()
            given[name] = Given(stamp=opened.stamp, value=value, uid=secret.spec.uid, gid=secret.spec.gid)
        return _encode(Answer(secrets=given, keep=tuple(keep), again=again))

    # who holds what

    async def held(self, name: str) -> dict[str, str]:
        """Of nodes whose agents are heard, by whichever controller: node → the stamp that it holds (empty: none)."""
        found = await self.held_here(name)
        if self._elsewhere is not None:
            elsewhere = self._elsewhere
            asked = (elsewhere.ask(peer, ROUTE, name, dict[str, str]) for peer in elsewhere.peers.others())
            for answer in await asyncio.gather(*asked, return_exceptions=True):
                if isinstance(answer, StrataError):
                    log.warning("a controller was not heard", extra={"about": ROUTE, "reason": str(answer)})
                elif isinstance(answer, BaseException):
                    raise answer
                else:
                    found = {**answer, **found}
        return found

    async def held_here(self, name: str) -> dict[str, str]:
        """The same of the nodes whose agents speak to this controller."""
        reports = self._reports()
        return await asyncio.to_thread(lambda: {node: _held(raw).secrets.get(name, "") for node, raw in reports})

    def _reports(self) -> list[tuple[str, bytes]]:
        if self._hub is None:
            return []
        hub = self._hub
        return [(agent.name, agent.state) for agent in hub.agents() if agent.state and hub.attached(agent.name)]

    # who is behind

    async def _round(self) -> None:
        for name, secret in self._records.sorted:
            if secret.spec.vault is not None:
                try:
                    await self._values.get(secret, anew=True)
                except StrataError as error:
                    self._alarm(name, str(error))
                    continue
            self._alarm(name, self._values.troubles.get(name, ""))
        for name in set(self._told) - set(self._records.all):
            self._alarm(name, "")
        registry, reports = self._fleet.registry, self._reports()
        wanted = [
            (name, self._values.stamp(secret), self._scopes.mask(secret.spec.select).copy())
            for name, secret in self._records.sorted
        ]
        indices = [registry.find(name) for name, _ in reports]
        behind = await asyncio.to_thread(_behind, reports, indices, wanted)
        for at, node in enumerate(behind):
            if at and at % _AT_ONCE == 0:
                await asyncio.sleep(_PAUSE)
            self._tell(node)

    def _tell(self, node: str) -> None:
        """Have the node's agent ask, unless it was told and has not answered yet."""
        agent = self._hub.get(node) if self._hub is not None else None
        if self._hub is None or agent is None or any(one.kind == ROUTE for one in agent.outbox.values()):
            return
        try:
            self._hub.send(node, ROUTE)
        except Unavailable:
            return  # it asks when it comes

    def _alarm(self, name: str, trouble: str) -> None:
        if self._told.get(name, "") == trouble:
            return
        if trouble:
            self._told[name] = trouble
            message = f"nodes that lack the secret {name} do not get it: {trouble}"
        else:
            self._told.pop(name, None)
            message = f"the secret {name} can be given out"
        severity: AlarmSeverity = "warning" if trouble else "ok"
        self._fleet.alarm(Alarm(kind="secret", severity=severity, message=message, about=name))


def _behind(
    reports: Sequence[tuple[str, bytes]], indices: Sequence[int], wanted: Sequence[tuple[str, str, Mask]]
) -> list[str]:
    """Nodes that hold something else than they should. What is not known of a source is no reason."""
    unsure = {name for name, stamp, _ in wanted if not stamp}
    found = []
    for (node, raw), index in zip(reports, indices, strict=True):
        held: Mapping[str, str] = {name: of for name, of in _held(raw).secrets.items() if name not in unsure}
        should = {name: stamp for name, stamp, mask in wanted if stamp and 0 <= index < len(mask) and mask[index]}
        if held != should:
            found.append(node)
    return found
