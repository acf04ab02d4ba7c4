"""What Strata asks of whatever runs jobs (a workload manager, this machine, Kubernetes): submit, look at all, end.

Ids of jobs are opaque texts (``123_4``, ``12.3``). A state that the adapter does not know is unknown, and stays so.
What an adapter cannot do it refuses in words before anything is submitted; nothing that was asked for is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Protocol, runtime_checkable

import msgspec
from msgspec import Meta

from strata.core.texts import PLAIN, In

Count = Annotated[int, Meta(ge=1, le=10_000_000)]
Word = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.:@+-]{0,127}$(?!\n)", max_length=128)]
"""A name that a scheduler knows: a queue, a licence, a project. Never an option."""
Line = Annotated[str, Meta(pattern=PLAIN, max_length=4096)]

State = Literal["held", "waiting", "starting", "running", "suspended", "ending", "ended", "unknown"]
"""In this order, but for ``held`` and ``suspended`` (may come again) and ``unknown`` (nobody knows the scheduler's
word)."""
Outcome = Literal["done", "failed", "cancelled", "timed-out", "out-of-memory", "node-failed", "lost"]
"""How it ended. ``lost``: the scheduler knows nothing of it any more, and nobody saw its end."""
After = Literal["started", "ended", "done", "failed"]
"""What must have become of another job before this one begins."""


class Accelerators(In, frozen=True, kw_only=True):
    """Accelerators for each node of a job."""

    count: Annotated[int, Meta(ge=1, le=1024)]
    type: Word | None = None
    """``h200``, ``mi300x``; None: any."""
    memory: Count | None = None
    """MiB that each must have at least."""


class Resources(In, frozen=True, kw_only=True):
    """What a job needs. Of an array: each of its tasks."""

    nodes: Count = 1
    tasks: Count = 1
    """Processes that are started, over all nodes."""
    cores: Count = 1
    """Processor cores for each of them."""
    memory: Count | None = None
    """MiB on each node; None: what the queue gives."""
    accelerators: Accelerators | None = None
    time: Annotated[int, Meta(ge=1, le=366 * 86_400)] | None = None
    """Seconds after which it is ended; None: what the queue gives."""
    licences: Annotated[Mapping[Word, Count], Meta(max_length=16)] = {}
    power: Count | None = None
    """Watts that each node may draw at most."""


class Array(In, frozen=True, kw_only=True):
    """Many jobs alike, told apart by ``STRATA_ARRAY_INDEX``."""

    first: Annotated[int, Meta(ge=0, le=10_000_000)] = 0
    last: Annotated[int, Meta(ge=0, le=10_000_000)]
    step: Count = 1
    at_once: Count | None = None
    """How many may run at the same time; None: as many as fit."""

    @property
    def indices(self) -> range:
        return range(self.first, self.last + 1, self.step)


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """A job as a scheduler gets it: what to run is a script, whole; containers and staging are already in it."""

    key: str
    """Strata's own id of the job. It goes with the job (comment, name or context), so that a submission whose answer
    was lost is found again instead of sent twice."""
    name: str
    script: str
    """Begins with ``#!``."""
    account: str
    """The local account that it runs as. Never root."""
    env: Mapping[str, str] = {}
    """Added to what the scheduler gives. Nothing of the service's own environment goes along."""
    workdir: str
    stdin: str | None = None
    stdout: str
    """Path; ``%a`` in it is the index in the array. Empty: the scheduler keeps it itself."""
    stderr: str | None = None
    """None: with the standard output."""
    image: str = ""
    """What it runs in, where the scheduler starts containers itself (``RunsApart``), as ``HOST/NAME:TAG``. Empty: the
    scheduler's own choice."""
    retries: int = 0
    """How often such a scheduler runs it again when it fails; with all others, that is in the script."""
    resources: Resources = Resources()
    array: Array | None = None
    after: tuple[tuple[After, str], ...] = ()
    """Jobs of the same scheduler, by its ids."""
    queue: str | None = None
    project: str | None = None
    reservation: str | None = None
    held: bool = False
    whole_nodes: bool = False
    """Whether no other job may be on its nodes."""
    own_image: bool = False
    """Whether it brings a container of its own, and so is to run outside of the site's default image."""
    native: tuple[str, ...] = ()
    """Options in the scheduler's own words, as its submitting command takes them, after all others."""


class JobSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A job, or one task of an array, as its scheduler sees it."""

    id: str
    key: str = ""
    """Strata's id of it, where the scheduler gives it back; empty: not told."""
    account: str = ""
    """Whose it is; empty: not told. Anybody can put another's key on a job of their own, so that a key is found only
    together with the account that it was submitted for."""
    index: int | None = None
    """Its index in the array."""
    state: State
    said: str = ""
    """The state in the scheduler's own word."""
    outcome: Outcome | None = None
    """How it ended. None while it has not, and where the scheduler does not say."""
    status: int | None = None
    """What its script exited with."""
    signal: int | None = None
    """What killed it."""
    reason: str = ""
    """Why it waits, or ended as it did, in words."""
    queue: str = ""
    nodes: tuple[str, ...] = ()
    submitted: float | None = None
    began: float | None = None
    ended: float | None = None
    expected: float | None = None
    """When the scheduler thinks that it begins."""


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue (partition) with what it allows, as the scheduler tells. None: it has no such limit, or does not tell."""

    name: str
    open: bool
    """Whether it takes jobs, and starts them."""
    default: bool = False
    most_time: int | None = None
    most_nodes: int | None = None
    node_cores: int | None = None
    """Cores of its largest node."""
    node_memory: int | None = None
    """MiB of its largest node."""
    accelerators: Mapping[str, int] = {}
    """Type → how many on one node at most."""
    free_nodes: int = 0
    nodes: int = 0
    accounts: frozenset[str] | None = None
    """Local accounts that may use it, groups already resolved; None: all but ``not_accounts``."""
    not_accounts: frozenset[str] = frozenset()
    projects: frozenset[str] | None = None
    """Projects that may use it; None: all but ``not_projects``."""
    not_projects: frozenset[str] = frozenset()
    waiting: int = 0
    """Jobs and tasks of arrays that wait in it."""
    priority: int = 0


class Ability(msgspec.Struct, frozen=True, kw_only=True):
    """What a kind of scheduler can do. Whoever asks for more is refused: ``strata.schedulers.abilities``."""

    nodes: bool = True
    """More than one node."""
    array: bool = True
    array_at_once: bool = True
    after: frozenset[After] = frozenset(("started", "ended", "done", "failed"))
    memory: bool = True
    accelerators: bool = True
    accelerator_type: bool = True
    accelerator_memory: bool = False
    time: bool = True
    licences: bool = True
    power: bool = False
    whole_nodes: bool = False
    """It can have nodes that no other job is on."""
    project: bool = True
    reservation: bool = True
    hold: bool = True
    stdin: bool = True
    output: bool = True
    """What a job prints goes to a file that it names."""
    queues: bool = True
    native: bool = True
    """It takes options in words of its own."""


APART_FOLDER = "/strata"
"""The job's own folder in a container that a scheduler starts itself (``RunsApart``), empty at first."""
MOST_PAST = 7 * 86_400.0
"""Seconds: how far back ended jobs are asked for at most. Whole histories are gigabytes."""


class JobScheduler(Protocol):
    """Jobs of one cluster. All of it raises ``Unavailable`` where a command could not be run or did not end (what it
    was to do may have been done: look before trying again), and ``DeviceError`` where it failed or says what nobody
    understands. A job that the scheduler does not take is ``BadRequest`` with the scheduler's words."""

    ability: Ability

    async def submit(self, work: Work) -> str:
        """Its id. As the account of the job: no more is allowed than that account could do by hand."""
        ...

    async def jobs(self, ended_since: float) -> Sequence[JobSeen]:
        """All jobs that have not ended, and those that ended since then, as far as the scheduler remembers, and within
        ``MOST_PAST``. A fixed number of questions, whatever the number of jobs."""
        ...

    async def cancel(self, account: str, ids: Sequence[str]) -> None:
        """End them. One that has already ended is no error."""
        ...

    async def hold(self, account: str, ids: Sequence[str]) -> None: ...

    async def release(self, account: str, ids: Sequence[str]) -> None: ...

    async def queues(self) -> Sequence[Queue]: ...

    async def expected(self, work: Work) -> float | None:
        """When it would begin if it were submitted now; None: the scheduler cannot tell."""
        ...


@runtime_checkable
class RunsApart(JobScheduler, Protocol):
    """A scheduler that starts each job in a container itself, where the accounts' folders are not: it keeps what jobs
    print, and how they ended."""

    async def log(self, account: str, there: str, index: int | None, offset: int, most: int) -> bytes:
        """A piece of what a job, or the task of an array, printed."""
        ...

    async def close(self) -> None:
        """Ask no more."""
        ...
