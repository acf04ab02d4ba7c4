"""What runs jobs: this machine, and every workload manager that is connected. Each is asked once for everybody."""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from strata.core.errors import BadRequest, DeviceError, StrataError
from strata.jobs.submission.patterns import check_patterns
from strata.jobs.submission.records import JobDocument, Kind
from strata.schedulers.jobs import JobScheduler, JobSeen, Queue, RunsApart
from strata.schedulers.kinds import open_reservations
from strata.schedulers.reservations import Reservations
from strata.schedulers.runner import Account, Runner

RECENT = 30.0
"""Seconds for which what a scheduler said of its queues is as good as a new answer."""
LOG_MOST = 1 << 20
"""Bytes of a log that are read at once."""
_OVERLAP = 300.0
"""Seconds before the last look of which ends are asked for again: clocks differ."""

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
        runner: Runner,
        *,
        local: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self.kind = kind
        self.scheduler = scheduler
        self.local = local
        """Whether it is this machine: then it is no other controller's business."""
        self.apart = scheduler if isinstance(scheduler, RunsApart) else None
        """Its scheduler, where that starts jobs in containers of its own: the accounts' folders are not there."""
        self.last: Look | None = None
        self.trouble = ""
        self.looks = 0
        """How often it was asked."""
        self._runner = runner
        self._clock = clock
        self._since = 0.0
        self._queues: tuple[float, Sequence[Queue]] = (float("-inf"), ())
        self._turn = asyncio.Lock()

    async def look(self, oldest: float = 0.0) -> Look:
        """Ask about all jobs. ``oldest``: nobody asks about ends before then. Raises what the adapter raises."""
        began = self._clock()
        self.looks += 1
        try:
            found = Look(began=began, jobs=await self.scheduler.jobs(max(self._since, oldest)))
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
        """See that the job's folder is there, the account's own. This machine's supervisors do that themselves.

        ``BadRequest``: it cannot be made; whatever else is raised may pass."""
        if self.local or self.apart is not None:
            return
        try:
            await self._runner.run("mkdir", "-p", "-m", "700", "--", folder, account=account.name)
        except DeviceError as error:
            # Its own words: it was reached and run, so that the next time would be as this one.
            if error.reply.startswith("mkdir: "):
                why = error.reply.removeprefix("mkdir: ")
                what = f"{account.name} cannot make the folder where the job writes down its end: {why}"
                raise BadRequest(what, where="account", hint="give the account a home on that host") from None
            raise

    async def read(self, account: Account, path: str, offset: int, most: int) -> bytes:
        """A piece of a file, read as the account: what it may not read is not read."""
        words = ("sh", "-c", _READ, "strata", str(offset + 1), path, str(min(most, LOG_MOST)))
        said = await self._runner.run(*words, account=account.name)
        try:
            return base64.b64decode(said, validate=True)
        except binascii.Error:
            raise DeviceError(f"no file came back: {said[:80]!r}", node=path) from None

    def reservations(self) -> Reservations:
        """What makes reservations there. ``BadRequest``: it has none."""
        return open_reservations(self.kind, self._runner)

    async def close(self) -> None:
        """Ask it no more."""
        if self.apart is not None:
            await self.apart.close()

    async def ends(self, account: Account, paths: Sequence[str]) -> Mapping[str, tuple[int, float, float]]:
        """Path → status, beginning and end that jobs wrote down themselves, of those that did."""
        if self.apart is not None:
            return {}
        found = {}
        said = await self._runner.run("sh", "-c", _ENDS, "strata", *paths, account=account.name)
        for line in said.splitlines():
            words = line.split(" ", 3)
            if len(words) == 4 and all(word.isdigit() and len(word) < 12 for word in words[:3]):
                found[words[3]] = (int(words[0]), float(words[1]), float(words[2]))
        return found


def cannot(target: Target) -> Iterator[str]:
    """What documents can ask for and this kind of scheduler cannot do, as words."""
    can = target.scheduler.ability
    words = {
        "nodes": "several nodes",
        "array_at_once": "array.at_once",
        "accelerator_type": "accelerator types",
        "output": "files for its output",
        "native": "options of its own",
    }
    for name in can.__struct_fields__:
        if getattr(can, name) is False:
            yield words.get(name, name.replace("_", " "))


def check(document: JobDocument, array_most: int) -> None:
    """What is wrong with a document wherever it goes. Raises ``BadRequest``."""
    if (document.command is None) == (document.script is None):
        raise BadRequest("give one of command and script", where="command")
    if document.command is not None and not document.command.strip():
        raise BadRequest("is the name or the path of a program", where="command")
    if document.environment and document.container is not None:
        raise BadRequest("give an environment or a container", where="environment", hint="an environment has its own")
    if document.array is not None:
        count = len(document.array.indices)
        if not 1 <= count <= array_most:
            raise BadRequest(f"has {count} tasks; it may have 1 to {array_most}", where="array")
    for field in ("workdir", "stdin", "stdout", "stderr"):
        path = getattr(document, field)
        if path is not None and "/../" in f"{path}/":
            raise BadRequest("has no ..", where=field)
    check_patterns(document)
    needs = document.needs
    if needs.tasks < needs.nodes:
        raise BadRequest("tasks must be at least as many as nodes", where="resources.tasks")
