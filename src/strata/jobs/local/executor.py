"""This machine as a scheduler of jobs: first come, first served, as far as cores, memory and accelerators go.

Each task runs under a supervisor of its own (``supervisor.py``), which goes on when this service is stopped, killed or
restarted, and is found again by pid and start time. What is known is in memory, and in a folder for each job.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from strata.core.errors import BadRequest, StrataError, Unavailable
from strata.core.host.process import Process, find
from strata.fleet.tasks import all_cancelled, beside, cancelled
from strata.jobs.accelerators.assignment import Assigned
from strata.jobs.accelerators.confinement import others, program
from strata.jobs.accelerators.detection import detect
from strata.jobs.accelerators.records import Found
from strata.jobs.accounts import LocalAccounts
from strata.jobs.local import supervisor
from strata.jobs.local.batches import Batch, Ended, Folders, Task, fresh
from strata.jobs.local.cgroups import Groups, open_groups
from strata.jobs.local.slots import Given, Slots, beginnings
from strata.schedulers.abilities import check
from strata.schedulers.jobs import Ability, After, JobSeen, Queue, Resources, Work
from strata.schedulers.scripts import checked

log = logging.getLogger(__name__)

QUEUE = "local"
GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL."""
_FORESEEN = 1000
"""Tasks that wait of which it is told when they begin, those behind them aside."""
REMEMBERED = 3600.0
"""Seconds that an ended job is remembered after somebody could have seen its end."""
_BATCH = 200
_PERIOD = 100_000
"""Microseconds in which a job may use as much of a core as it has cores."""
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "STRATA_ACCELERATORS")
_AFTER: frozenset[After] = frozenset(("started", "ended", "done", "failed"))


class LocalExecutor:
    """Implements ``strata.schedulers.jobs.JobScheduler``. ``start`` finds what runs; ``stop`` leaves it running."""

    ability = Ability(
        nodes=False,
        accelerator_type=False,
        licences=False,
        project=False,
        reservation=False,
        native=False,
        after=_AFTER,
    )

    def __init__(
        self,
        folder: Path,
        slots: Slots,
        accounts: LocalAccounts,
        *,
        grace: float = GRACE,
        clock: Callable[[], float] = time.time,
        groups: Callable[[Path], Groups] = open_groups,
        look: Callable[[], Found] = detect,
    ) -> None:
        self.changed: Callable[[], None] = lambda: None
        """Called whenever a job begins or ends."""
        self.groups = Groups()
        """How jobs are held to what they ask for."""
        self._open_groups = groups
        self._look = look
        self._found = Found()
        self._processors = sorted(os.sched_getaffinity(0))
        self._folders = Folders(folder)
        self._slots = slots
        self._all = msgspec.structs.replace(slots)
        self._accounts = accounts
        self._grace = grace
        self._clock = clock
        self._batches: dict[str, Batch] = {}
        self._ready: dict[str, Batch] = {}
        """Those that may begin, in their order."""
        self._waits_for: dict[str, set[str]] = {}
        """Job → those that wait for something of it."""
        self._fds: dict[int, tuple[Batch, Task]] = {}
        self._orders: deque[tuple[Batch, Task]] = deque()
        self._program: asyncio.subprocess.Process | None = None
        self._answers: asyncio.Task[None] | None = None
        self._work: set[asyncio.Task[None]] = set()
        self._submitting: dict[str, asyncio.Task[None]] = {}

    # -- life

    async def start(self) -> None:
        """Find what runs and what waits, and go on."""
        self.groups = await asyncio.to_thread(self._open_groups, self._folders.folder)
        if self._all.accelerators:
            await self._know_accelerators()
        log.info("jobs of this machine are held to what they ask for", extra={"by": self.groups.told})
        await self._start_program()
        for batch in await asyncio.to_thread(self._folders.load, self._clock()):
            self._batches[batch.id] = batch
            for task in batch.tasks.values():
                if task.state == "running":
                    batch.under_way += 1
                    task.given = self._slots.take(batch.work.resources, task.given)
                    self._attach(batch, task)
        for batch in list(self._batches.values()):
            if batch.left:
                self._queue(batch)
        self._begin_more()

    async def _know_accelerators(self) -> None:
        """Which there are, and whether the kernel keeps jobs to theirs. Where it does not, jobs are told by variables
        alone, and the target's limits say so."""
        try:
            self._found = await asyncio.to_thread(self._look)
        except StrataError as error:
            why = error.detail
        else:
            tried = await asyncio.to_thread(self.groups.try_devices, program([]))
            why = tried if self._found.accelerators else "no accelerator was found"
        self.groups = msgspec.structs.replace(self.groups, devices=not why, open_devices=why)

    def _denied(self, given: Given) -> str:
        """The kernel's program that keeps others' accelerators from a task; empty: nothing does."""
        if not self.groups.devices:
            return ""
        cards = tuple(card for card in self._found.accelerators if card.index in given.accelerators)
        return program(others(self._found, Assigned(cards))).hex()

    async def stop(self) -> None:
        """Start nothing more. What runs goes on."""
        await cancelled(self._answers)
        loop = asyncio.get_running_loop()
        for fd in self._fds:
            loop.remove_reader(fd)
            os.close(fd)
        self._fds.clear()
        await all_cancelled(self._work)
        if self._program is not None:
            assert self._program.stdin is not None
            self._program.stdin.close()
            await self._program.wait()
            self._program = None
        await asyncio.to_thread(self.groups.close)

    async def _start_program(self) -> None:
        self._program = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-I", "-S", str(Path(supervisor.__file__))),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
            cwd="/",
        )
        self._answers = asyncio.create_task(self._read_answers(self._program), name="local jobs")

    # -- the scheduler

    async def submit(self, work: Work) -> str:
        """Keep it, and begin it once there is room. The same key again is the same job."""
        if work.key in self._batches:
            return work.key
        check(self.ability, work, "local")
        checked(work.env)
        if not work.script.startswith("#!"):
            raise BadRequest(
                "does not begin with #! and an interpreter", where="script", hint="begin it with #!/bin/sh"
            )
        if work.queue not in (None, QUEUE):
            raise BadRequest(f"this machine has one queue, {QUEUE}", where="queue")
        if lack := self._all.lack(work.resources):
            raise BadRequest(f"this machine has less than the job needs: {lack}", where="resources")
        for _, other in work.after:
            if other not in self._batches:
                raise BadRequest(f"this machine knows nothing of job {other}", where="after")
        if work.key not in self._submitting:
            self._submitting[work.key] = asyncio.create_task(self._keep(work), name=f"keep {work.key}")
        try:
            await asyncio.shield(self._submitting[work.key])
        finally:
            self._submitting.pop(work.key, None)
        return work.key

    async def _keep(self, work: Work) -> None:
        account = await self._accounts.named(work.account)
        now = self._clock()
        try:
            await asyncio.to_thread(self._folders.create, work, account, now, self._grace)
        except OSError as error:
            raise Unavailable(f"the job cannot be kept: {error.strerror}", where=str(self._folders.folder)) from None
        batch = fresh(work, now)
        self._batches[batch.id] = batch
        self._queue(batch)
        self._begin_more()
        self.changed()

    async def jobs(self, ended_since: float) -> Sequence[JobSeen]:
        """All of them, from memory."""
        self._forget(ended_since - REMEMBERED)
        begins = self._begins()
        return [seen for batch in self._batches.values() for seen in batch.seen(ended_since, begins.get(batch.id))]

    async def cancel(self, account: str, ids: Sequence[str]) -> None:
        """End them: what waits at once, what runs by SIGTERM and then SIGKILL."""
        for batch, tasks in self._named(account, ids):
            if len(tasks) == len(batch.tasks):
                await asyncio.to_thread(self._folders.cancel, batch.id)
            for task in tasks:
                if task.state == "waiting":
                    ended = Ended(outcome="cancelled", ended=self._clock())
                    if len(tasks) != len(batch.tasks):
                        await asyncio.to_thread(self._folders.end, batch.id, task.name, ended)
                    self._finish(batch, task, ended)
                elif task.state in ("starting", "running"):
                    task.ending = True
                    _terminate(task.process)
        self._begin_more()

    async def hold(self, account: str, ids: Sequence[str]) -> None:
        """Begin nothing more of them."""
        await self._set_held(account, ids, True)

    async def release(self, account: str, ids: Sequence[str]) -> None:
        """Begin them once there is room."""
        await self._set_held(account, ids, False)

    async def queues(self) -> Sequence[Queue]:
        """The one that there is."""
        return [
            Queue(
                name=QUEUE,
                open=True,
                default=True,
                most_nodes=1,
                node_cores=self._all.cores,
                node_memory=self._all.memory,
                accelerators={"any": len(self._all.accelerators)} if self._all.accelerators else {},
                free_nodes=int(not self._ready and self._slots.cores > 0),
                nodes=1,
                waiting=len(self._ready),
            )
        ]

    async def expected(self, work: Work) -> float | None:
        """Now, where there is room; else when enough of what runs and waits must have ended, if all has a limit."""
        return self._begins(work).get(work.key)

    def _begins(self, more: Work | None = None) -> Mapping[str, float]:
        """When the next task of each that may begin does so at the latest, as far as that can be told; ``more``: one
        that comes behind them."""
        if not self._ready and more is None:
            return {}
        names: list[str] = []
        waiting: list[Resources] = []
        for batch in self._ready.values():
            left = len(batch.order) - batch.next
            if len(names) + left > _FORESEEN or (batch.work.array and batch.work.array.at_once):
                more = None  # what comes behind it is not foreseen
                break
            names += [batch.id] * left
            waiting += [batch.work.resources] * left
        if more is not None:
            names.append(more.key)
            waiting.append(more.resources)
        running: list[tuple[float | None, Resources]] = []
        for batch, task in (*self._fds.values(), *self._orders):
            needs = batch.work.resources
            running.append(((task.began or 0.0) + needs.time if needs.time else None, needs))
        found = beginnings(self._slots, self._clock(), running, waiting)
        return dict(zip(reversed(names[: len(found)]), reversed(found), strict=True))

    # -- what comes next

    def _queue(self, batch: Batch) -> None:
        """Put it where it belongs: among those that may begin, or among those that wait for others."""
        self._ready.pop(batch.id, None)
        if batch.held:
            batch.why = "it is held"
            return
        for what, other in batch.work.after:
            verdict = self._verdict(what, other)
            if verdict is None:
                batch.why = f"it waits until job {other} has {_in_words(what)}"
                self._waits_for.setdefault(other, set()).add(batch.id)
                return
            if verdict:
                self._give_up(batch, verdict)
                return
        batch.why = "it waits for its turn"
        self._ready[batch.id] = batch

    def _verdict(self, what: After, other: str) -> str | None:
        """Empty: it holds. None: not yet. Else why it never will."""
        found = self._batches.get(other)
        if found is None:
            return f"job {other} is not known any more"
        if what == "started":
            return "" if found.began else None
        if found.left:
            return None
        if what == "ended" or (what == "done") == found.done:
            return ""
        return f"job {other} {'failed' if what == 'done' else 'did not fail'}"

    def _give_up(self, batch: Batch, why: str) -> None:
        ended = Ended(outcome="cancelled", reason=why, ended=self._clock())
        self._later(asyncio.to_thread(self._folders.cancel, batch.id))
        for task in batch.tasks.values():
            if task.state == "waiting":
                self._finish(batch, task, ended)

    def _begin_more(self) -> None:
        """Start what there is room for, in order. Whoever does not fit is waited for, so that nobody starves."""
        program = self._program
        if program is None or program.returncode is not None:
            return
        for batch in list(self._ready.values()):
            most = batch.work.array.at_once if batch.work.array else None
            while batch.next < len(batch.order):
                task = batch.tasks[batch.order[batch.next]]
                if task.state != "waiting":
                    batch.next += 1
                    continue
                if most is not None and batch.under_way >= most:
                    batch.why = f"{most} of it run at the same time"
                    break
                if lack := self._slots.lack(batch.work.resources):
                    batch.why = f"it waits for {lack} that are free"
                    return
                batch.next += 1
                self._begin(batch, task)
            else:
                self._ready.pop(batch.id, None)

    def _begin(self, batch: Batch, task: Task) -> None:
        task.given = self._slots.take(batch.work.resources)
        task.state, task.began = "starting", self._clock()
        batch.under_way += 1
        self._order(batch, task)

    def _order(self, batch: Batch, task: Task) -> None:
        assert self._program is not None and self._program.stdin is not None
        self._orders.append((batch, task))
        numbers = ",".join(map(str, task.given.accelerators))
        # Also where it gets none: what it was not given it is not to find.
        env = dict.fromkeys(_VISIBLE, numbers) if self._all.accelerators else {}
        order = {
            "folder": str(self._folders.path(batch.id)),
            "name": task.name,
            "env": env,
            "given": msgspec.to_builtins(task.given),
            "bind": self._bound(task.given),
            "group": self.groups.of(batch.id, task.name),
            "limits": self._limits(batch.work.resources),
            "devices": self._denied(task.given),
        }
        self._program.stdin.write(json.dumps(order).encode() + b"\n")

    def _bound(self, given: Given) -> list[int]:
        """The processors that a task is bound to; none: the kernel counts, or there are fewer than slots."""
        if self.groups.cpu or self._all.cores > len(self._processors):
            return []
        return [self._processors[number] for number in given.cores]

    def _limits(self, wanted: Resources) -> dict[str, str]:
        """What its control group is told."""
        limits = {}
        if self.groups.memory and wanted.memory:
            limits["memory.max"] = str(wanted.memory * 2**20)
        if self.groups.cpu:
            limits["cpu.max"] = f"{wanted.tasks * wanted.cores * _PERIOD} {_PERIOD}"
        return limits

    async def _read_answers(self, program: asyncio.subprocess.Process) -> None:
        """A line for each order, in their order. A program that died is started again."""
        assert program.stdout is not None
        while line := await program.stdout.readline():
            batch, task = self._orders.popleft()
            answer = json.loads(line)
            task.process, task.began = find(int(answer["pid"])), float(answer["began"])
            if task.state == "starting":
                task.state = "running"
                batch.unbegun -= 1
            self._attach(batch, task)
            if batch.unbegun == 0:
                self._wake_waiters(batch)
            self._begin_more()  # it may have ended already, and then nobody else says that there is room
            self.changed()
        await program.wait()
        self._later(self._start_again())

    async def _start_again(self) -> None:
        orders, self._orders = list(self._orders), deque()
        await asyncio.sleep(0.5)
        await self._start_program()
        for batch, task in orders:
            self._order(batch, task)  # whoever has claimed the task already goes on with it
        self._begin_more()

    # -- ends

    def _attach(self, batch: Batch, task: Task) -> None:
        """Hear of the end of a task's supervisor."""
        process = task.process
        try:
            fd = os.pidfd_open(process.pid) if process is not None else -1
        except OSError:
            fd = -1
        if fd >= 0 and process is not None and not process.alive:
            os.close(fd)
            fd = -1
        if fd < 0:
            self._gone(batch, task)
            return
        self._fds[fd] = (batch, task)
        asyncio.get_running_loop().add_reader(fd, self._ended, fd)
        if task.ending:
            _terminate(process)

    def _ended(self, fd: int) -> None:
        asyncio.get_running_loop().remove_reader(fd)
        os.close(fd)
        batch, task = self._fds.pop(fd)
        self._gone(batch, task)
        self._begin_more()

    def _gone(self, batch: Batch, task: Task) -> None:
        """A supervisor is there no more: what it wrote down tells."""
        ended = self._folders.ended(batch.id, task.name)
        if ended is None:
            other = self._folders.supervisor(batch.id, task.name)
            if other is not None and other != task.process and other.alive:
                task.process = other  # the service was killed while it began this: somebody else runs it
                self._attach(batch, task)
                return
            same_boot = other is None or other.boot == _boot()
            ended = Ended(
                outcome="lost" if same_boot else "node-failed",
                reason="its supervisor was killed" if same_boot else "the machine was restarted",
                began=task.began,
                ended=self._clock(),
            )
            self._later(asyncio.to_thread(self._folders.end, batch.id, task.name, ended))
            self._later(asyncio.to_thread(self.groups.end, batch.id, task.name))
        self._finish(batch, task, ended)

    def _finish(self, batch: Batch, task: Task, ended: Ended) -> None:
        if task.ended is not None:
            return
        if task.state in ("starting", "running"):
            self._slots.give(batch.work.resources, task.given)
            batch.under_way -= 1
        if task.state in ("waiting", "starting"):
            batch.unbegun -= 1
        task.state, task.ended = "ended", ended
        batch.left -= 1
        batch.last = max(batch.last, ended.ended)
        if batch.left == 0:
            self._ready.pop(batch.id, None)
            self._wake_waiters(batch)
        self.changed()

    def _wake_waiters(self, batch: Batch) -> None:
        for ident in self._waits_for.pop(batch.id, ()):
            waiter = self._batches.get(ident)
            if waiter is not None and waiter.left:
                self._queue(waiter)

    # -- parts

    async def _set_held(self, account: str, ids: Sequence[str], held: bool) -> None:
        for batch, _ in self._named(account, ids):
            await asyncio.to_thread(self._folders.hold, batch.id, held)
            batch.held = held
            if batch.left:
                self._queue(batch)
        self._begin_more()
        self.changed()

    def _named(self, account: str, ids: Sequence[str]) -> list[tuple[Batch, list[Task]]]:
        """The jobs of an account by their ids, or the ids of their tasks. What is not known has ended long ago."""
        found = []
        for ident in ids:
            batch = self._batches.get(ident)
            tasks = list(batch.tasks.values()) if batch is not None else []
            if batch is None:
                whole, _, name = ident.rpartition("_")
                batch = self._batches.get(whole)
                tasks = [batch.tasks[name]] if batch is not None and name in batch.tasks else []
            if batch is not None and batch.work.account == account:
                found.append((batch, tasks))
        return found

    def _forget(self, before: float) -> None:
        """Forget some of those that ended before then, and that nobody waits for."""
        gone: list[str] = []
        for ident, batch in self._batches.items():
            if len(gone) >= _BATCH:
                break
            if not batch.left and batch.last < before:
                gone.append(ident)
        for ident in gone:
            del self._batches[ident]
        if gone:
            self._later(asyncio.to_thread(self._folders.remove, gone))

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        beside(self._work, work)


def _terminate(process: Process | None) -> None:
    if process is None:
        return
    with contextlib.suppress(OSError):
        fd = os.pidfd_open(process.pid)
        try:
            # The descriptor is of whoever has the pid now: only if that is ours may it be used.
            if process.alive:
                signal.pidfd_send_signal(fd, signal.SIGTERM)
        finally:
            os.close(fd)


def _boot() -> str:
    found = find(os.getpid())
    return found.boot if found is not None else ""


def _in_words(what: After) -> str:
    return {"started": "begun", "ended": "ended", "done": "ended well", "failed": "failed"}[what]
