"""Which controller has the agent of which node, and how it is asked.

An agent is attached to whoever leads its node. What is asked of the same controller at the same time goes to it in one
request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from strata.core.distinct import distinct
from strata.core.errors import NotFound, OutcomeUnknown, StrataError, Unavailable
from strata.core.input.decoding import UNREADABLE
from strata.fleet.controller.controller import Controller
from strata.fleet.peers.client import PeerClient
from strata.fleet.peers.peers import Peer, Peers
from strata.fleet.tasks import all_cancelled, beside

_GATHER = 0.01  # seconds in which questions to one controller are gathered
_MOST_AT_ONCE = 5000
_OURS, _NOWHERE = -1, -2  # in place of the number of a shard: led here; no such node
_NO_NODE = "no such node"

_encode = msgspec.json.Encoder().encode


_Batch = tuple[Peer, str, float]
_Waiting = tuple[Any, asyncio.Future[msgspec.Raw]]


class ByLeader(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes by who leads them, and so has their agents."""

    here: list[str]
    there: dict[Peer, list[str]]
    nowhere: dict[str, str]
    """Nodes that nobody can ask now, and why."""


class PeerAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What one question was answered: a value, or why there is none."""

    value: msgspec.Raw = msgspec.Raw(b"null")
    error: str = ""


class LeaderClient:
    """Finds the controller that leads a node, and asks it. ``close`` ends what is under way."""

    def __init__(self, controller: Controller, peers: Peers, client: PeerClient) -> None:
        self._controller = controller
        self.peers = peers
        self.client = client
        self._waiting: dict[_Batch, list[_Waiting]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """End what is under way; who waits for it is told."""
        waiting = [answer for questions in self._waiting.values() for _, answer in questions]
        await all_cancelled(self._tasks)
        for answer in waiting:
            answer.cancel()

    def leader(self, name: str) -> Peer | None:
        """The other controller that leads the node; None: this one does. ``Unavailable`` where it cannot be asked."""
        controller = self._controller
        index = controller.registry.find(name)
        if index < 0:
            raise NotFound(_NO_NODE, where=name)
        if controller.engine.progress.epoch[index] > 0:
            return None
        return self._holder(int(controller.registry.uids[index]) % controller.settings.shards, name)

    def _holder(self, shard: int, name: str) -> Peer | None:
        """The other controller that leads a shard, which ``name`` is in."""
        controller = self._controller
        holder, _ = controller.leadership.holders.get(shard, ("", 0))
        if holder == controller.name:
            return None
        if not holder:
            raise Unavailable(
                "no controller leads this node at the moment", where=name, hint="try again in a few seconds"
            )
        peer = self.peers.get(holder)
        if peer is None:
            raise Unavailable(
                f"controller {holder} leads it, and cannot be reached from here",
                where=name,
                hint="see whether it runs, with TLS and with the same ca/ as the others",
            )
        return peer

    def sort(self, names: Sequence[str]) -> ByLeader:
        """Whom to ask for which nodes."""
        controller, registry = self._controller, self._controller.registry
        indices = np.array([registry.find(name) for name in names], dtype=np.int64)
        shards = np.full(len(names), _NOWHERE, dtype=np.int64)
        known = np.flatnonzero(indices >= 0)
        led = controller.engine.progress.epoch[indices[known]] > 0
        shards[known] = np.where(led, _OURS, registry.uids[indices[known]] % controller.settings.shards)
        found = ByLeader(here=[], there={}, nowhere={})
        for shard in distinct(shards).tolist():
            part = [names[place] for place in np.flatnonzero(shards == shard).tolist()]
            try:
                if shard == _NOWHERE:
                    raise NotFound(_NO_NODE)
                peer = self._holder(shard, part[0]) if shard != _OURS else None
                (found.here if peer is None else found.there.setdefault(peer, [])).extend(part)
            except StrataError as error:
                found.nowhere.update(dict.fromkeys(part, error.detail))
        return found

    async def ask(self, peer: Peer, route: str, question: Any, kind: Any, *, patience: float = 10.0) -> Any:
        """What the other controller answers to one of many questions on ``route``: a ``kind``. An error of ours where
        it has no answer, or none within ``patience`` seconds, or one that makes no sense: it may be of another
        version."""
        answer: asyncio.Future[msgspec.Raw] = asyncio.get_running_loop().create_future()
        key = (peer, route, patience)
        if key not in self._waiting:
            self._waiting[key] = []
            beside(self._tasks, self._flush(key), name=f"questions to {peer.controller}")
        self._waiting[key].append((question, answer))
        value = await answer
        try:
            return msgspec.json.decode(value, type=kind)
        except UNREADABLE:
            raise _nonsense(peer) from None

    async def _flush(self, key: _Batch) -> None:
        try:
            await asyncio.sleep(_GATHER)
        finally:
            waiting = self._waiting.pop(key)
        try:
            for first in range(0, len(waiting), _MOST_AT_ONCE):
                await self._send(*key, waiting[first : first + _MOST_AT_ONCE])
        finally:
            for _, answer in waiting:
                if not answer.done():
                    answer.set_exception(Unavailable("this controller is stopping"))

    async def _send(self, peer: Peer, route: str, patience: float, waiting: Sequence[_Waiting]) -> None:
        fault: StrataError | None = None
        answers: list[PeerAnswer] = []
        try:
            questions = _encode([question for question, _ in waiting])
            body = await self.client.call(peer, route, questions, timeout=patience)
            answers = msgspec.json.decode(body, type=list[PeerAnswer])
            fault = None if len(answers) == len(waiting) else _nonsense(peer)
        except StrataError as error:
            fault = error
        except UNREADABLE:
            fault = _nonsense(peer)
        for place, (_, answer) in enumerate(waiting):
            if answer.done():
                continue  # nobody waits for it any more
            if fault is not None:
                answer.set_exception(fault)
            elif answers[place].error:
                answer.set_exception(Unavailable(f"{answers[place].error} (controller {peer.controller})"))
            else:
                answer.set_result(answers[place].value)


def _nonsense(peer: Peer) -> OutcomeUnknown:
    return OutcomeUnknown(f"the answer of controller {peer.controller} cannot be read", where=peer.url)
