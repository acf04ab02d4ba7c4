"""What of a job a scheduler cannot do, in words: nothing that was asked for is dropped. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from strata.core.errors import BadRequest
from strata.schedulers.jobs import Ability, Work


def refusals(ability: Ability, work: Work, kind: str) -> Iterator[tuple[str, str]]:
    """Field → why ``kind`` cannot do what it asks for; nothing: it can do all of it."""
    needs = work.resources
    for field, asked, can, what in (
        ("resources.nodes", needs.nodes > 1, ability.nodes, "run a job on more than one node"),
        ("resources.memory", needs.memory is not None, ability.memory, "give a job a certain amount of memory"),
        ("resources.time", needs.time is not None, ability.time, "end a job after a certain time"),
        ("resources.licences", bool(needs.licences), ability.licences, "count licences"),
        ("resources.power", needs.power is not None, ability.power, "limit the power that a job draws"),
        (
            "resources.power",
            work.whole_nodes,
            ability.whole_nodes,
            "keep other jobs off the nodes of one, which then cannot be capped for it",
        ),
        ("array", work.array is not None, ability.array, "run arrays"),
        (
            "array.at_once",
            work.array is not None and work.array.at_once is not None,
            ability.array_at_once,
            "limit how many tasks of an array run at once",
        ),
        ("project", work.project is not None, ability.project, "count a job for a project"),
        ("reservation", work.reservation is not None, ability.reservation, "run a job in a reservation"),
        ("held", work.held, ability.hold, "hold a job"),
        ("stdin", work.stdin is not None, ability.stdin, "give a job a file as its standard input"),
        ("stdout", bool(work.stdout), ability.output, "write what a job prints to a file: it keeps it itself"),
        ("stderr", work.stderr is not None, ability.output, "tell what a job prints to standard error from the rest"),
        ("native", bool(work.native), ability.native, "take options in words of its own: it has none"),
        ("queue", work.queue is not None, ability.queues, "run a job in a certain queue"),
    ):
        if asked and not can:
            yield field, f"{kind} cannot {what}"
    for after in sorted({after for after, _ in work.after} - ability.after):
        yield "after", f"{kind} cannot begin a job once another one has {_AFTER[after]}"
    wanted = needs.accelerators
    if wanted is not None:
        if not ability.accelerators:
            yield "resources.accelerators", f"{kind} cannot give a job accelerators"
        elif wanted.type is not None and not ability.accelerator_type:
            yield "resources.accelerators.type", f"{kind} cannot give a job accelerators of a certain type"
        if ability.accelerators and wanted.memory is not None and not ability.accelerator_memory:
            yield "resources.accelerators.memory", f"{kind} cannot choose accelerators by their memory"


def check(ability: Ability, work: Work, kind: str) -> None:
    """Raise ``BadRequest`` with the first thing that ``kind`` cannot do."""
    for field, why in refusals(ability, work, kind):
        raise BadRequest(why, where=field)


_AFTER = {"started": "started", "ended": "ended", "done": "ended well", "failed": "failed"}
