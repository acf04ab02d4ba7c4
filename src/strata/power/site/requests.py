"""Asking the one controller that keeps the machine's power, from another: a question and an answer in the store.

A question is ``power/ask/CONTROLLER``, one at a time for each; its answer ``power/told/CONTROLLER`` names the question.
Only switching nodes on is asked so: how a batch of starts is decided is worth two writes. These are messages between
controllers, replaced every time, and neither named records nor anybody's decision: they are not in the audit log.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from enum import IntEnum

import msgspec
import numpy as np
import numpy.typing as npt

from strata.core import intset
from strata.core.distinct import distinct
from strata.core.intset import Runs
from strata.power.telemetry.columns import Uids
from strata.store.protocol import Put, Store

ASK, TOLD = "power/ask/", "power/told/"
PATIENCE = 6.0
"""Seconds to wait for an answer."""
_LOOK = 0.2


class Verdict(IntEnum):
    """Whether a node may be switched on."""

    GRANTED = 0
    NO_POWER = 1
    PACED = 2
    """Too many are starting behind its supply."""
    NOT_YET = 3
    """Nobody knows yet."""
    NO_ANSWER = 4


Verdicts = npt.NDArray[np.int8]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """May these be switched on?"""

    id: str
    uids: Runs


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The uids of each verdict."""

    id: str
    verdicts: dict[int, Runs]


class PowerRequests:
    """One side asks, the other answers."""

    def __init__(self, store: Store, me: str) -> None:
        self._store = store
        self._me = me
        self._turn = asyncio.Lock()
        self._answered: dict[str, str] = {}

    async def ask(self, uids: Uids) -> Verdicts:
        """Which may be switched on."""
        found: Verdicts = np.full(len(uids), Verdict.NO_ANSWER, np.int8)
        async with self._turn:
            question = Question(id=secrets.token_hex(8), uids=intset.pack(uids))
            await self._store.txn([Put(ASK + self._me, msgspec.msgpack.encode(question))])
            loop = asyncio.get_running_loop()
            deadline = loop.time() + PATIENCE
            while loop.time() < deadline:
                await asyncio.sleep(_LOOK)
                entry = await self._store.get(TOLD + self._me)
                if entry is not None:
                    answer = msgspec.msgpack.decode(entry.value, type=Answer)
                    if answer.id == question.id:
                        for verdict, runs in answer.verdicts.items():
                            found[np.isin(uids, intset.unpack(runs))] = verdict
                        break
        return found

    async def answer(self, decide: Callable[[Uids], Awaitable[Verdicts]]) -> None:
        """Answer what has been asked since the last time. A question is answered once."""
        for entry in (await self._store.range(ASK)).entries:
            who = entry.key.removeprefix(ASK)
            question = msgspec.msgpack.decode(entry.value, type=Question)
            if who == self._me or self._answered.get(who) == question.id:
                continue
            uids = intset.unpack(question.uids)
            verdicts = await decide(uids)
            self._answered[who] = question.id
            told = Answer(
                id=question.id, verdicts={int(one): intset.pack(uids[verdicts == one]) for one in distinct(verdicts)}
            )
            await self._store.txn([Put(TOLD + who, msgspec.msgpack.encode(told))])
