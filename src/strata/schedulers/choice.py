"""Which queue a job goes to where its user names none, and why not to the others. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from strata.schedulers.jobs import Queue, Work


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The queue that a job goes to, and why each of those that were not possible was not."""

    queue: Queue | None
    """None: none is possible."""
    why: str = ""
    """What spoke for it."""
    refused: Mapping[str, tuple[str, ...]] = {}
    """Queue → why not, in words."""


def choose(queues: Sequence[Queue], work: Work, account: str) -> Choice:
    """The best of ``queues`` for a job of ``account``: one where it can begin now, then the one in which the fewest
    wait, then the default, then the highest priority."""
    refused = {queue.name: tuple(_against(queue, work, account)) for queue in queues}
    fits = [queue for queue in queues if not refused[queue.name]]
    refused = {name: reasons for name, reasons in refused.items() if reasons}
    if not fits:
        return Choice(queue=None, refused=refused)
    if work.queue is not None:
        return Choice(queue=fits[0], why="it was asked for", refused=refused)
    best = min(fits, key=lambda queue: (*_rank(queue, work), queue.name))
    now = _rank(best, work)[0] == 0
    why = "it can begin there now" if now else f"{best.waiting} wait there, the fewest"
    return Choice(queue=best, why="it is the only one possible" if len(fits) == 1 else why, refused=refused)


def _rank(queue: Queue, work: Work) -> tuple[int, int, bool, int]:
    """Lower is better."""
    now = queue.free_nodes >= work.resources.nodes and not queue.waiting
    return (not now, queue.waiting, not queue.default, -queue.priority)


def _against(queue: Queue, work: Work, account: str) -> Iterator[str]:
    needs = work.resources
    if work.queue is not None and work.queue != queue.name:
        yield f"{work.queue} was asked for"
        return
    if not queue.open:
        yield "it is closed"
    if account in queue.not_accounts or (queue.accounts is not None and account not in queue.accounts):
        yield f"{account} may not use it"
    if work.project is not None and (
        work.project in queue.not_projects or (queue.projects is not None and work.project not in queue.projects)
    ):
        yield f"the project {work.project} may not use it"
    if work.project is None and queue.projects is not None:
        yield f"only jobs of a project may use it: {', '.join(sorted(queue.projects))}"
    if queue.most_time is not None and needs.time is not None and needs.time > queue.most_time:
        yield f"it ends jobs after {queue.most_time} s, and {needs.time} s are asked for"
    most = min((limit for limit in (queue.most_nodes, queue.nodes or None) if limit is not None), default=None)
    if most is not None and needs.nodes > most:
        yield f"it gives a job {most} nodes at most, and {needs.nodes} are asked for"
    cores = -(-needs.tasks // needs.nodes) * needs.cores
    if queue.node_cores is not None and cores > queue.node_cores:
        yield f"its largest node has {queue.node_cores} cores, and {cores} are asked for on one node"
    if queue.node_memory is not None and needs.memory is not None and needs.memory > queue.node_memory:
        yield f"its largest node has {queue.node_memory} MiB, and {needs.memory} MiB are asked for"
    if needs.accelerators is not None:
        kind = needs.accelerators.type
        have = queue.accelerators.get(kind, 0) if kind else max(queue.accelerators.values(), default=0)
        if have < needs.accelerators.count:
            named = f"accelerators of type {kind}" if kind else "accelerators"
            yield f"its nodes have {have} {named}, and {needs.accelerators.count} are asked for on one node"
