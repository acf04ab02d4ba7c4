"""Jobs of this machine as they are known in memory, and as they are kept in their folders. Knows no processes."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from strata.core.host.private_file import write_private
from strata.core.host.process import Process, load
from strata.jobs.local.slots import Given
from strata.schedulers.jobs import JobSeen, Outcome, State, Work
from strata.schedulers.runner import Account

ONE = "job"
"""The name of the only task of a job that is no array."""
_HELD, _CANCELLED, _WORK = "held", "cancelled", "work.json"


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """``work.json``: for the supervisor what to run, and for the executor what it was asked for."""

    work: Work
    submitted: float
    uid: int
    gid: int
    groups: tuple[int, ...]
    script: str
    env: dict[str, str]
    workdir: str
    stdin: str | None
    stdout: str
    stderr: str | None
    time: int | None
    memory: int | None
    array: bool
    grace: float

    @classmethod
    def of(cls, work: Work, account: Account, submitted: float, grace: float) -> Kept:
        """What ``work`` comes to for ``account``. May ask a directory for its groups: not for the event loop."""
        return cls(
            work=msgspec.structs.replace(work, script=""),
            submitted=submitted,
            uid=account.uid,
            gid=account.gid,
            groups=tuple(os.getgrouplist(account.name, account.gid)),
            script=work.script,
            env={**account.env, "STRATA_JOB_ID": work.key, **work.env},
            workdir=work.workdir,
            stdin=work.stdin,
            stdout=work.stdout,
            stderr=work.stderr,
            time=work.resources.time,
            memory=work.resources.memory,
            array=work.array is not None,
            grace=grace,
        )


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """``NAME.end``."""

    outcome: Outcome
    status: int | None = None
    signal: int | None = None
    reason: str = ""
    began: float | None = None
    ended: float


class Claim(Given, frozen=True, kw_only=True):
    """``NAME.pid``, beside which process it is: what the task has, and since when it runs."""

    began: float | None = None


class Task(msgspec.Struct, kw_only=True):
    """One task, now."""

    name: str
    state: State = "waiting"
    began: float | None = None
    process: Process | None = None
    given: Given = Given()
    ended: Ended | None = None
    ending: bool = False
    """Whether it was told to end before it had begun to run."""


class Batch(msgspec.Struct, kw_only=True):
    """A job: its tasks in their order, and which of them are next."""

    work: Work
    submitted: float
    tasks: dict[str, Task]
    held: bool = False
    why: str = ""
    """What it waits for."""
    next: int = 0
    """How many of its tasks have been looked at to be started."""
    under_way: int = 0
    left: int = 0
    """Tasks that have not ended."""
    unbegun: int = 0
    last: float = 0.0
    """When the last of its tasks ended."""
    order: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return self.work.key

    @property
    def began(self) -> bool:
        """Whether all of it has."""
        return self.unbegun == 0

    @property
    def done(self) -> bool:
        """Whether all of it ended well. Asked of one that has ended."""
        return all(task.ended is not None and task.ended.outcome == "done" for task in self.tasks.values())

    def seen(self, ended_since: float, begins: float | None = None) -> Iterator[JobSeen]:
        """Its tasks for whoever looks. ``begins``: when the next of them does."""
        array = self.work.array is not None
        for task in self.tasks.values():
            end = task.ended
            if end is not None and end.ended < ended_since:
                continue
            waiting = task.state == "waiting"
            yield JobSeen(
                id=f"{self.id}_{task.name}" if array else self.id,
                key=self.id,
                account=self.work.account,
                index=int(task.name) if array else None,
                state="held" if waiting and self.held else task.state,
                said=task.state,
                outcome=end.outcome if end else None,
                status=end.status if end else None,
                signal=end.signal if end else None,
                reason=end.reason if end else self.why if waiting else "",
                queue="local",
                nodes=(os.uname().nodename,) if task.began or (end and end.began) else (),
                submitted=self.submitted,
                began=end.began if end else task.began,
                ended=end.ended if end else None,
                expected=begins if waiting and not self.held else None,
            )


def fresh(work: Work, submitted: float) -> Batch:
    """A batch of which nothing has begun."""
    order = tuple(str(index) for index in work.array.indices) if work.array else (ONE,)
    return Batch(
        work=msgspec.structs.replace(work, script=""),
        submitted=submitted,
        tasks={name: Task(name=name) for name in order},
        held=work.held,
        left=len(order),
        unbegun=len(order),
        order=order,
    )


class Folders:
    """The jobs' folders, in one that nobody else enters. Its methods block: they are for threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, ident: str) -> Path:
        return self.folder / ident

    def create(self, work: Work, account: Account, now: float, grace: float) -> None:
        """Keep a job: whole, or not at all."""
        kept = Kept.of(work, account, now, grace)
        scratch = self.folder / f".{kept.work.key}.new"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(mode=0o700, parents=True)
        (scratch / _WORK).write_bytes(msgspec.json.encode(kept))
        if kept.work.held:
            (scratch / _HELD).touch()
        with contextlib.suppress(OSError):  # it is there already: this is the same job again
            scratch.rename(self.path(kept.work.key))
        shutil.rmtree(scratch, ignore_errors=True)

    def hold(self, ident: str, held: bool) -> None:
        if held:
            (self.path(ident) / _HELD).touch()
        else:
            (self.path(ident) / _HELD).unlink(missing_ok=True)

    def cancel(self, ident: str) -> None:
        """Nothing more of it is begun."""
        (self.path(ident) / _CANCELLED).touch()

    def end(self, ident: str, name: str, ended: Ended) -> None:
        """Write down how a task ended that no supervisor saw the end of."""
        write_private(self.path(ident) / f"{name}.end", msgspec.json.encode(ended))

    def ended(self, ident: str, name: str) -> Ended | None:
        """How a task ended, as its supervisor wrote it; None: it did not."""
        try:
            return _read_end((self.path(ident) / f"{name}.end").read_bytes())
        except (OSError, msgspec.MsgspecError):
            return None

    def supervisor(self, ident: str, name: str) -> Process | None:
        """Who looks after a task; None: nobody yet."""
        return load(self.path(ident) / f"{name}.pid")

    def claim(self, ident: str, name: str) -> Claim:
        """What a task has and since when, as its supervisor wrote it."""
        try:
            return _read_claim((self.path(ident) / f"{name}.pid").read_bytes())
        except (OSError, msgspec.MsgspecError):
            return Claim()

    def remove(self, idents: list[str]) -> None:
        for ident in idents:
            shutil.rmtree(self.path(ident), ignore_errors=True)

    def load(self, now: float) -> list[Batch]:
        """Every job that is kept, oldest first."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = [batch for path in self.folder.iterdir() if (batch := self._batch(path, now)) is not None]
        return sorted(found, key=lambda batch: (batch.submitted, batch.id))

    def _batch(self, path: Path, now: float) -> Batch | None:
        try:
            kept = _read_kept((path / _WORK).read_bytes())
        except (OSError, msgspec.MsgspecError):
            return None
        names = {entry.name for entry in path.iterdir()}
        batch = fresh(kept.work, kept.submitted)
        batch.held = _HELD in names
        for name, task in batch.tasks.items():
            if f"{name}.end" in names:
                task.ended = self.ended(path.name, name)
            elif f"{name}.pid" in names:
                task.process = self.supervisor(path.name, name)
                claim = self.claim(path.name, name)
                # Whoever waits is told when this one must have ended: not by when we came back.
                task.state, task.began = "running", now if claim.began is None else claim.began
                task.given = Given(cores=claim.cores, accelerators=claim.accelerators)
            elif _CANCELLED in names:
                task.ended = Ended(outcome="cancelled", ended=now)
            if task.ended is not None:
                task.state = "ended"
        batch.left = sum(task.ended is None for task in batch.tasks.values())
        batch.last = max((task.ended.ended for task in batch.tasks.values() if task.ended is not None), default=0.0)
        batch.unbegun = sum(task.state == "waiting" for task in batch.tasks.values())
        return batch


_read_kept = msgspec.json.Decoder(Kept).decode
_read_end = msgspec.json.Decoder(Ended).decode
_read_claim = msgspec.json.Decoder(Claim).decode
