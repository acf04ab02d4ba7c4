"""Jobs of one Slurm cluster, by commands that a ``Runner`` runs."""

from __future__ import annotations

import asyncio
import secrets
import string
import time
from collections.abc import Sequence

from strata.core.errors import DeviceError
from strata.schedulers import abilities
from strata.schedulers.by_commands import change, parts
from strata.schedulers.jobs import MOST_PAST, JobSeen, Queue, Work
from strata.schedulers.members import members
from strata.schedulers.runner import Runner
from strata.schedulers.slurm import job_replies, partitions, submission

_MARK = 12


class SlurmJobs:
    """Implements ``strata.schedulers.jobs.JobScheduler``."""

    ability = submission.ABILITY

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._memory: job_replies.Memory | None = None

    async def submit(self, work: Work) -> str:
        """By ``sbatch``."""
        abilities.check(self.ability, work, "Slurm")
        command, script = submission.build(work)
        try:
            env = submission.NO_IMAGE if work.own_image else None
            said = await self._runner.run(*command, stdin=script, account=work.account, env=env)
        except DeviceError as error:
            raise submission.refusal(error.reply) from None
        return submission.submitted(said)

    async def jobs(self, ended_since: float) -> Sequence[JobSeen]:
        """By ``squeue``; what it has forgotten by ``sacct``, where there is accounting."""
        if self._memory is None:
            self._memory = job_replies.memory(await self._runner.run(*job_replies.CONFIG))
        mark = "".join(secrets.choice(string.ascii_letters) for _ in range(_MARK))
        ago = min(time.time() - ended_since, MOST_PAST)
        past: Sequence[JobSeen] = ()
        if self._memory.accounting and ago > self._memory.seconds:
            # Before squeue: what ends in between is told by at least one of them.
            said = await self._runner.run(*job_replies.past(mark, ago), env=job_replies.TIMES)
            past = await asyncio.to_thread(job_replies.past_jobs, said, mark)
        said = await self._runner.run(*job_replies.live(mark), env=job_replies.TIMES)
        present = await asyncio.to_thread(job_replies.jobs, said, mark)
        seen = job_replies.together(present, past)
        return [job for job in seen if job.state != "ended" or job.ended is None or job.ended >= ended_since]

    async def cancel(self, account: str, ids: Sequence[str]) -> None:
        """By ``scancel``, which does not mind jobs that have ended."""
        for some in parts(ids, submission.job_id):
            await change(self._runner, submission, "scancel", "--", *some, account=account)

    async def hold(self, account: str, ids: Sequence[str]) -> None:
        """By ``scontrol hold``."""
        for some in parts(ids, submission.job_id):
            await change(self._runner, submission, "scontrol", "hold", ",".join(some), account=account)

    async def release(self, account: str, ids: Sequence[str]) -> None:
        """By ``scontrol release``."""
        for some in parts(ids, submission.job_id):
            await change(self._runner, submission, "scontrol", "release", ",".join(some), account=account)

    async def queues(self) -> Sequence[Queue]:
        """By ``scontrol``, ``sinfo``, ``squeue``, and whatever knows the groups."""
        told = await self._runner.run(*partitions.PARTITIONS)
        nodes = await self._runner.run(*partitions.NODES)
        waiting = await self._runner.run(*partitions.WAITING)
        allowed = await members(self._runner, partitions.groups(told))
        return await asyncio.to_thread(partitions.queues, told, nodes, waiting, allowed)

    async def expected(self, work: Work) -> float | None:
        """By ``sbatch --test-only``."""
        abilities.check(self.ability, work, "Slurm")
        (_, *options), script = submission.build(work)
        ended = await self._runner.finish(
            "sbatch",
            "--test-only",
            *options,
            stdin=script,
            account=work.account,
            env={**job_replies.TIMES, **(submission.NO_IMAGE if work.own_image else {})},
        )
        if ended.status != 0:
            raise submission.refusal(ended.errors)
        return submission.starts(ended.errors, time.time())
