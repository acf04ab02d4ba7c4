"""What runs jobs: this machine, and every workload manager that is connected. Each is asked once for everybody."""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

import msgspec

from strata.core.errors import BadRequest, DeviceError, StrataError, Unavailable
from strata.fleet.drivers.subprocesses import run_command
from strata.jobs.accounts import Account
from strata.jobs.submission.records import JobDocument, Kind
from strata.schedulers.jobs import JobScheduler, JobSeen, Queue

RECENT = 30.0
"""Seconds for which what a scheduler said of its queues is as good as a new answer."""
LOG_MOST = 1 << 20
"""Bytes of a log that are read at once."""
_LIMIT = 30.0
_OVERLAP = 300.0
"""Seconds before the last look of which ends are asked for again: clocks differ."""

Run = Callable[..., Awaitable[str]]
"""(account, *command) → what the command prints, run as that account where the target's commands are run."""

# Bytes through a channel that carries text; and a file that is not there yet is empty.
_READ = '[ -e "$2" ] || exit 0; tail -c "+$1" -- "$2" | head -c "$3" | base64 -w0'
_ENDS = 'for f; do [ -r "$f" ] && printf "%s %s\\n" "$(head -c 100 -- "$f" | head -n 1)" "$f"; done; true'


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """All jobs of a target."""

    began: float
    """On the wall clock: it saw the world no earlier than this."""
    jobs: Sequence[JobSeen]


class Target:
    """``scheduler`` under a name, with what it last said."""

    def __init__(
        self,
        name: str,
        kind: Kind,
        scheduler: JobScheduler,
        run: Run,
        *,
        local: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self.kind = kind
        self.scheduler = scheduler
        self.local = local
        """Whether it is this machine: then it is no other controller's business."""
        self.last: Look | None = None
        self.trouble = ""
        self.looks = 0
        """How often it was asked."""
        self._run = run
        self._clock = clock
        self._since = 0.0
        self._queues: tuple[float, Sequence[Queue]] = (float("-inf"), ())
        self._turn = asyncio.Lock()

    async def look(self) -> Look:
        """Ask about all jobs. Raises what the adapter raises."""
        began = self._clock()
        self.looks += 1
        try:
            found = Look(began=began, jobs=await self.scheduler.jobs(self._since))
        except StrataError as error:
            self.trouble = str(error)
            raise
        self.last, self.trouble, self._since = found, "", began - _OVERLAP
        return found

    async def queues(self) -> Sequence[Queue]:
        """Its queues, as it told of them within the last seconds."""
        async with self._turn:
            at, found = self._queues
            if self._clock() - at > RECENT or self.local:
                found = await self.scheduler.queues()
                self._queues = (self._clock(), found)
            return found

    async def prepare(self, account: Account, folder: str) -> None:
        """See that the job's folder is there, the account's own. This machine's supervisors do that themselves."""
        if not self.local:
            await self._run(account, "mkdir", "-p", "-m", "700", "--", folder)

    async def read(self, account: Account, path: str, offset: int, most: int) -> bytes:
        """A piece of a file, read as the account: what it may not read is not read."""
        said = await self._run(account, "sh", "-c", _READ, "strata", str(offset + 1), path, str(min(most, LOG_MOST)))
        try:
            return base64.b64decode(said, validate=True)
        except binascii.Error:
            raise DeviceError(f"no file came back: {said[:80]!r}", node=path) from None

    async def ends(self, account: Account, paths: Sequence[str]) -> Mapping[str, tuple[int, float, float]]:
        """Path → status, beginning and end that jobs wrote down themselves, of those that did."""
        found = {}
        for line in (await self._run(account, "sh", "-c", _ENDS, "strata", *paths)).splitlines():
            words = line.split(" ", 3)
            if len(words) == 4 and all(word.isdigit() and len(word) < 12 for word in words[:3]):
                found[words[3]] = (int(words[0]), float(words[1]), float(words[2]))
        return found


def plain_run(prefix: Callable[[Account], Sequence[str]]) -> Run:
    """Runs commands on this machine, behind what makes them the account's."""

    async def run(account: Account, *command: str) -> str:
        ended = await run_command((*prefix(account), *command), b"", _LIMIT, 4 * LOG_MOST, {})
        if isinstance(ended, str):
            raise Unavailable(ended, where=command[0])
        if ended.status != 0:
            raise DeviceError(ended.errors[-300:] or f"{command[0]} ended with {ended.status}", node=account.name)
        return ended.output.decode(errors="replace")

    return run


def refusals(target: Target, document: JobDocument) -> Iterator[tuple[str, str]]:
    """What the document asks for and this kind of scheduler cannot do: field and reason."""
    can, wanted = target.scheduler.ability, document.resources
    accelerators = wanted.accelerators
    asked = (
        ("resources.nodes", wanted.nodes > 1 and not can.nodes, "runs jobs on one node"),
        ("array", document.array is not None and not can.array, "has no arrays"),
        (
            "array.at_once",
            document.array is not None and document.array.at_once is not None and not can.array_at_once,
            "cannot limit how many of an array run at the same time",
        ),
        ("resources.memory", wanted.memory is not None and not can.memory, "does not know of memory"),
        ("resources.accelerators", accelerators is not None and not can.accelerators, "does not know of accelerators"),
        (
            "resources.accelerators.type",
            accelerators is not None and accelerators.type is not None and not can.accelerator_type,
            "does not tell types of accelerators apart",
        ),
        (
            "resources.accelerators.memory",
            accelerators is not None and accelerators.memory is not None and not can.accelerator_memory,
            "does not know how much memory an accelerator has",
        ),
        ("resources.time", wanted.time is not None and not can.time, "has no time limits"),
        ("resources.licences", bool(wanted.licences) and not can.licences, "does not know of licences"),
        ("resources.power", wanted.power is not None and not can.power, "cannot cap the power of a job's nodes"),
        ("project", document.project is not None and not can.project, "does not know of projects"),
        ("reservation", document.reservation is not None and not can.reservation, "has no reservations"),
        ("held", document.held and not can.hold, "cannot hold jobs"),
        ("stdin", document.stdin is not None and not can.stdin, "gives jobs no standard input"),
        ("queue", document.queue is not None and not can.queues, "has no queues"),
    )
    yield from ((field, f"{target.kind} {reason}") for field, lacking, reason in asked if lacking)
    for number, dependency in enumerate(document.after):
        if dependency.what not in can.after:
            yield f"after[{number}].what", f"{target.kind} cannot wait until another job has {dependency.what}"


def cannot(target: Target) -> Iterator[str]:
    """The same of all that a document can ask for, as words."""
    can = target.scheduler.ability
    words = {"nodes": "several nodes", "array_at_once": "array.at_once", "accelerator_type": "accelerator types"}
    for name in can.__struct_fields__:
        if getattr(can, name) is False:
            yield words.get(name, name.replace("_", " "))


def unfit(queue: Queue, document: JobDocument, account: Account) -> str:
    """Why a queue is not for this job; empty: it is."""
    wanted = document.resources
    cores = -(-wanted.tasks // wanted.nodes) * wanted.cores
    accelerators = wanted.accelerators
    there = sum(queue.accelerators.values())
    if accelerators is not None and accelerators.type is not None:
        there = next((count for kind, count in queue.accelerators.items() if kind == accelerators.type), 0)
    for why, bad in (
        ("it is closed", not queue.open),
        (f"not for {account.name}", queue.accounts is not None and account.name not in queue.accounts),
        (
            f"not for the project {document.project}",
            queue.projects is not None and document.project is not None and document.project not in queue.projects,
        ),
        (f"{queue.most_time} s at most", _above(wanted.time, queue.most_time)),
        (f"{queue.most_nodes} nodes at most", _above(wanted.nodes, queue.most_nodes)),
        (f"{queue.node_cores} cores on a node", _above(cores, queue.node_cores)),
        (f"{queue.node_memory} MiB on a node", _above(wanted.memory, queue.node_memory)),
        (f"{there} such accelerators on a node", accelerators is not None and accelerators.count > there),
    ):
        if bad:
            return why
    return ""


def _above(wanted: int | None, most: int | None) -> bool:
    return wanted is not None and most is not None and wanted > most


def check(document: JobDocument, array_most: int) -> None:
    """What is wrong with a document wherever it goes. Raises ``BadRequest``."""
    if (document.command is None) == (document.script is None):
        raise BadRequest("give one of command and script", where="command")
    if document.command is not None and not document.command.strip():
        raise BadRequest("is the name or the path of a program", where="command")
    if document.array is not None:
        count = len(document.array.indices)
        if not 1 <= count <= array_most:
            raise BadRequest(f"has {count} tasks; it may have 1 to {array_most}", where="array")
    for field in ("workdir", "stdin", "stdout", "stderr"):
        path = getattr(document, field)
        if path is not None and "/../" in f"{path}/":
            raise BadRequest("has no ..", where=field)
    if document.resources.tasks < document.resources.nodes:
        raise BadRequest("there is a task for each node at least", where="resources.tasks")
