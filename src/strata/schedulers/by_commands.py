"""Jobs of a scheduler that is spoken to by commands alone: one adapter, whose texts are a module of pure functions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from strata.core.errors import BadRequest, Denied, DeviceError, StrataError, Unavailable
from strata.schedulers import abilities
from strata.schedulers.jobs import MOST_PAST, Ability, JobSeen, Queue, Work
from strata.schedulers.meanings import refused
from strata.schedulers.members import members
from strata.schedulers.runner import Runner

AT_ONCE = 1000
"""Ids in one command."""


class Judgement(Protocol):
    """What the words of a command that failed mean."""

    def is_away(self, said: str, /) -> bool:
        """Whether a command says that the scheduler could not be asked, or did not answer."""
        ...

    def is_denied(self, said: str, /) -> bool:
        """Whether it says that the job is somebody else's."""
        ...


class Texts(Judgement, Protocol):
    """What a kind of scheduler is asked, and what it answers. All of it is pure."""

    NAME: str
    ABILITY: Ability
    ENV: Mapping[str, str]
    """In which it is asked: times are to be in UTC."""
    QUEUES: Sequence[tuple[str, ...]]
    """Asks for its queues; none: it has no queues."""
    CANCEL: tuple[str, ...]
    HOLD: tuple[str, ...]
    RELEASE: tuple[str, ...]
    """Commands that end jobs, hold them and let them go; their ids follow."""

    def build(self, work: Work) -> tuple[tuple[str, ...], str]:
        """The command that submits it, and what it reads."""
        ...

    def submitted(self, said: str, /) -> str:
        """The id, from the answer to that."""
        ...

    def job_id(self, text: str, /) -> str:
        """An id, and no more than that; ``BadRequest``: it is none."""
        ...

    def look(self, ended_since: float) -> Sequence[tuple[str, ...]]:
        """Asks for all jobs."""
        ...

    def jobs(self, replies: Sequence[str]) -> list[JobSeen]:
        """From the answers to that."""
        ...

    def groups(self, replies: Sequence[str]) -> list[str]:
        """Groups of accounts that are named in the answers to ``QUEUES``."""
        ...

    def queues(self, replies: Sequence[str], members: Mapping[str, frozenset[str]]) -> list[Queue]:
        """From the answers to ``QUEUES``."""
        ...

    def is_gone(self, said: str, /) -> bool:
        """Whether it says that there is no such job any more, or none at all."""
        ...


class ByCommands:
    """Implements ``strata.schedulers.jobs.JobScheduler``."""

    def __init__(self, runner: Runner, texts: Texts) -> None:
        self.ability = texts.ABILITY
        self._runner = runner
        self._texts = texts

    async def submit(self, work: Work) -> str:
        """One command."""
        abilities.check(self.ability, work, self._texts.NAME)
        command, script = self._texts.build(work)
        try:
            said = await self._runner.run(*command, stdin=script, account=work.account)
        except DeviceError as error:
            raise refused(self._texts.NAME, command[0], error.reply, self._texts.is_away) from None
        return self._texts.submitted(said)

    async def jobs(self, ended_since: float) -> Sequence[JobSeen]:
        """A fixed number of questions."""
        ended_since = max(ended_since, time.time() - MOST_PAST)
        replies = [await self._ask(question) for question in self._texts.look(ended_since)]
        seen = await asyncio.to_thread(self._texts.jobs, replies)
        return [job for job in seen if job.state != "ended" or job.ended is None or job.ended >= ended_since]

    async def cancel(self, account: str, ids: Sequence[str]) -> None:
        """Those that have ended are no error."""
        for some in parts(ids, self._texts.job_id):
            try:
                await self._runner.run(*self._texts.CANCEL, *some, account=account)
            except DeviceError as error:
                if not self._texts.is_gone(error.reply) or self._texts.is_denied(error.reply):
                    raise unchanged(self._texts, error) from None

    async def hold(self, account: str, ids: Sequence[str]) -> None:
        """One command for a thousand of them."""
        for some in parts(ids, self._texts.job_id):
            await change(self._runner, self._texts, *self._texts.HOLD, *some, account=account)

    async def release(self, account: str, ids: Sequence[str]) -> None:
        """One command for a thousand of them."""
        for some in parts(ids, self._texts.job_id):
            await change(self._runner, self._texts, *self._texts.RELEASE, *some, account=account)

    async def queues(self) -> Sequence[Queue]:
        """A fixed number of questions, and whatever knows the groups."""
        replies = [await self._ask(question) for question in self._texts.QUEUES]
        allowed = await members(self._runner, self._texts.groups(replies))
        return await asyncio.to_thread(self._texts.queues, replies, allowed)

    async def expected(self, work: Work) -> float | None:
        """It cannot tell."""
        abilities.check(self.ability, work, self._texts.NAME)
        self._texts.build(work)
        return None

    async def _ask(self, question: tuple[str, ...]) -> str:
        try:
            return await self._runner.run(*question, env=self._texts.ENV)
        except DeviceError as error:
            # Some say by an error that there is no job.
            if self._texts.is_gone(error.reply) and not self._texts.is_away(error.reply):
                return ""
            raise


def parts(ids: Sequence[str], job_id: Callable[[str], str]) -> Iterator[list[str]]:
    """As many of them as go into one command. ``job_id``: refuses what is none."""
    for at in range(0, len(ids), AT_ONCE):
        yield [job_id(one) for one in ids[at : at + AT_ONCE]]


async def change(runner: Runner, texts: Judgement, *command: str, account: str) -> None:
    """Have a command change jobs, as whose they are."""
    try:
        await runner.run(*command, account=account)
    except DeviceError as error:
        raise unchanged(texts, error) from None


def unchanged(texts: Judgement, error: DeviceError) -> StrataError:
    """What is raised where a job was not changed."""
    if texts.is_denied(error.reply):
        return Denied(error.detail, where=error.where, hint="only whose job it is, and administrators, may do that")
    if texts.is_away(error.reply):
        return Unavailable(error.detail, where=error.where)
    return BadRequest(error.detail, where=error.where)
