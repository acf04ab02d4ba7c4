"""Jobs: the document that somebody writes, the job that comes of it, and what is shown of that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from strata.core.texts import NAME, In, Out
from strata.jobs.containers.records import Container
from strata.jobs.environments.records import ModuleText, ParentText
from strata.jobs.resources import Asked
from strata.schedulers.jobs import After, Array, Line, Outcome, Resources, State, Word

JOB_ID = r"^[0-9a-z]{12}$(?!\n)"
JobId = Annotated[str, Meta(pattern=JOB_ID, max_length=12)]
PathText = Annotated[str, Meta(pattern=r"^/[^\u0000-\u001f\u007f-\u009f\u2028\u2029]*$(?!\n)", max_length=4096)]
EnvName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$(?!\n)", max_length=128)]
# No NUL: an environment and a command line cannot hold one.
FreeText = Annotated[str, Meta(pattern=r"^[^\u0000]*$", max_length=100_000)]
AccountText = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@-]{0,62}$(?!\n)", max_length=63)]
Launch = Literal["once", "tasks", "mpi"]
Kind = Literal["local", "slurm", "gridengine", "pbs", "lsf", "htcondor", "kubernetes"]


class Dependency(In, frozen=True, kw_only=True):
    """Another job of Strata's, and what must have become of it."""

    job: JobId
    what: After = "done"


class Copy(In, frozen=True, kw_only=True):
    """A file or folder that is copied, on the machine where the job runs, as the job's account."""

    source: PathText
    to: PathText


class JobDocument(In, frozen=True, kw_only=True):
    """What to run and what it needs. Give ``command`` or ``script``."""

    name: Word | None = None
    command: FreeText | None = None
    """A program: a path, or a name that is looked for in ``PATH``."""
    script: Annotated[str, Meta(pattern=r"^#![^\u0000]*$", max_length=1_000_000)] | None = None
    """A whole script, whose first line names its interpreter (``#!/bin/bash``)."""
    arguments: Annotated[tuple[FreeText, ...], Meta(max_length=10_000)] = ()
    env: Annotated[Mapping[EnvName, FreeText], Meta(max_length=1000)] = {}
    workdir: PathText | None = None
    """Where it begins. None: the home of its account."""
    stdin: PathText | None = None
    stdout: PathText | None = None
    """Where its output goes. None: into the job's folder. In the paths of its files, ``%j`` and ``%A`` are the job's
    id, ``%u`` its account, ``%x`` its name, and ``%a`` the index in the array (where ``%j`` is refused: write
    ``%A_%a``); ``%%`` is a percent sign. Any other ``%`` is refused."""
    stderr: PathText | None = None
    """None: with the output."""
    container: Container | None = None
    """What it runs in. None: on the node itself. A script's interpreter is the image's then, and of its folder it sees
    what ``binds`` show; accelerators that the job gets are given to it."""
    environment: ParentText = ""
    """A work environment (``NAME`` or ``NAME@VERSION``), instead of a container of one's own. Empty: none."""
    launch: Launch = "once"
    """What is started: ``once``, the program on the first node; ``tasks``, as many of it as ``resources.tasks``, over
    all nodes; ``mpi``, the same, and they find each other (PMIx). Each has a container of its own, if there is one."""
    modules: Annotated[tuple[ModuleText, ...], Meta(max_length=64)] = ()
    """Loaded before it begins (``module load``)."""
    resources: Asked = msgspec.field(default_factory=Asked)
    data: Annotated[tuple[Line, ...], Meta(max_length=100)] = ()
    """Where its input is (a folder, ``s3://bucket/set``), beside what ``stage_in`` copies: it goes rather to a target
    that is near."""
    array: Array | None = None
    after: Annotated[tuple[Dependency, ...], Meta(max_length=100)] = ()
    """Other jobs that come first. All must hold."""
    stage_in: Annotated[tuple[Copy, ...], Meta(max_length=100)] = ()
    """Copied before it begins. If one cannot be, the job fails, and runs and copies nothing."""
    stage_out: Annotated[tuple[Copy, ...], Meta(max_length=100)] = ()
    """Copied after it has ended by itself, well or not; not where it is cancelled or its time is over. If one cannot
    be, the job fails."""
    retries: Annotated[int, Meta(ge=0, le=10)] = 0
    """How often it is run again, in its place and within its time, when it ends with another status than 0."""
    held: bool = False
    """Whether it waits until it is released."""
    target: Annotated[str, Meta(pattern=NAME, max_length=63)] | None = None
    """Which scheduler runs it. None: Strata chooses."""
    queue: Word | None = None
    """None: Strata chooses, or the scheduler does."""
    project: Word | None = None
    reservation: Word | None = None
    native: Annotated[Mapping[Kind, Annotated[tuple[Line, ...], Meta(max_length=100)]], Meta(max_length=8)] = {}
    """Options in a scheduler's own words, by kind of scheduler. They count where the job goes to such a one."""
    account: AccountText | None = None
    """The local account that it runs as, where an administrator submits it for somebody."""

    @property
    def needs(self) -> Resources:
        """What a scheduler is asked for."""
        return self.resources.needs


class Considered(Out, frozen=True, kw_only=True):
    """A target that was thought of for a job, and what came of it."""

    target: str
    taken: bool
    why: str
    """Why it was taken, or why not: in words."""
    queue: str | None = None
    expected: float | None = None
    """When it would have begun there, as that scheduler thought."""
    wait: float | None = None
    """Hours that it would wait; None: nobody knows, or nothing was compared."""
    far: int | None = None
    """Places of its data that are not near."""
    energy: float | None = None
    """kWh that it would use at most; None: nobody knows what a node draws."""
    price: float | None = None
    """What a kWh would cost meanwhile."""
    cost: float | None = None
    """What all of it comes to, by the site's weights; the least is taken."""


class Task(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A job's only task, or one of an array's."""

    index: int | None
    state: State
    outcome: Outcome | None = None
    status: int | None = None
    signal: int | None = None
    reason: str = ""
    nodes: tuple[str, ...] = ()
    began: float | None = None
    ended: float | None = None
    there: str = ""
    """Its id at the scheduler."""


class Used(Out, frozen=True, kw_only=True):
    """What was measured of a job's energy."""

    joules: float
    """Of its nodes, whole, while it had them."""
    error: float
    """Joules by which the truth about the known part may differ."""
    known: float
    """How much of its time on its nodes is covered by measurements, 0 to 1."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it is kept."""

    id: str
    document: JobDocument
    owner: str
    """Who submitted it, or for whom. Nobody else sees it but those who run the machine."""
    account: str
    submitted: float
    target: str
    kind: Kind
    controller: str
    """Whose machine runs it, where the target is a machine of Strata's own."""
    queue: str | None = None
    there: str = ""
    """Its id at the scheduler; empty: the scheduler has not said that it has it."""
    tried: float = 0.0
    """When it was last sent. Whether it arrived is known once ``there`` is."""
    cancelled: str = ""
    """Who wants it ended; empty: nobody."""
    tasks: tuple[Task, ...]
    folder: str
    stdout: str
    stderr: str = ""
    considered: tuple[Considered, ...] = ()
    assumed: tuple[str, ...] = ()
    """Of its resources, the fields that its environment says and not it itself."""
    uncapped: Mapping[str, str] = {}
    """Nodes that could not be held to the power that it asked for, and why."""
    energy: Used | None = None
    """None: it has just ended, or not at all, or its nodes are not measured."""
    request_key: str = ""
    rerun_of: str = ""

    @property
    def ended(self) -> bool:
        return all(task.state == "ended" for task in self.tasks)


class JobLine(Out, frozen=True, kw_only=True):
    """A job in a list."""

    id: str
    name: str
    owner: str
    account: str
    target: str
    queue: str | None
    state: State
    outcome: Outcome | None
    status: int | None
    """What it exited with; of an array, the first that is not 0."""
    signal: int | None
    reason: str
    """Why it waits, or ended as it did."""
    tasks: int
    tasks_ended: int
    tasks_failed: int
    """Tasks that ended in any other way than well."""
    nodes: tuple[str, ...]
    submitted: float
    began: float | None
    ended: float | None
    expected: float | None
    """When the scheduler thinks that it begins."""


class TaskView(Out, frozen=True, kw_only=True):
    """One task of an array."""

    index: int | None
    state: State
    outcome: Outcome | None
    status: int | None
    signal: int | None
    reason: str
    nodes: tuple[str, ...]
    began: float | None
    ended: float | None
    there: str


class JobView(JobLine, frozen=True, kw_only=True):
    """A job with everything that is known of it."""

    there: str
    """Its id at the scheduler."""
    controller: str
    stdout: str
    stderr: str
    considered: tuple[Considered, ...]
    assumed: tuple[str, ...]
    """Of its resources, the fields that come from its environment."""
    uncapped: Mapping[str, str]
    """Nodes that could not be held to the power that it asked for, and why."""
    energy: Used | None
    """Known some minutes after its end; None: not measured, or not yet."""
    rerun_of: str
    document: JobDocument
    array: tuple[TaskView, ...]
    """Its tasks, where it is an array."""


class JobPage(Out, frozen=True, kw_only=True):
    """Jobs, newest first."""

    items: tuple[JobLine, ...]
    next: str | None = None


class JobPlan(Out, frozen=True, kw_only=True):
    """Where a job would go, and why."""

    target: str | None
    """None: nobody would take it."""
    queue: str | None
    account: str
    resources: Asked
    """What it would be taken to ask for."""
    environment: str
    assumed: tuple[str, ...]
    """Of these, the fields that come from its environment."""
    considered: tuple[Considered, ...]
    script: str
    """What would be run."""


class TargetView(Out, frozen=True, kw_only=True):
    """Something that runs jobs."""

    name: str
    kind: Kind
    answers: bool
    trouble: str
    seen: float | None
    queues: tuple[QueueView, ...]
    cannot: tuple[str, ...]
    """What documents can ask for and it cannot do."""
    limits: str
    """Of this machine: how jobs are held to what they ask for, in words."""


class QueueView(Out, frozen=True, kw_only=True):
    """A queue of a target."""

    name: str
    open: bool
    default: bool
    most_time: int | None
    most_nodes: int | None
    node_cores: int | None
    node_memory: int | None
    accelerators: Mapping[str, int]
    free_nodes: int
    nodes: int


class LogPart(Out, frozen=True, kw_only=True):
    """A piece of what a job printed. Bytes that are no text are replaced."""

    text: str
    offset: int
    """Where it begins, in bytes."""
    next: int
    """Where to read on."""
    end: bool
    """Whether the job has ended, and this is the last piece."""


StateFilter = State | Outcome
"""A state, or the way in which it ended."""
Stream = Literal["stdout", "stderr"]
