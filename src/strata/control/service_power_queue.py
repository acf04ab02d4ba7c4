"""Requests about the workload manager's queue: which jobs wait, and how long those that run still may."""

from __future__ import annotations

from strata.control.power_queue import QueueBook, QueueRecord, Running, Waiting
from strata.control.power_views.queue import QueueTold, QueueView, RunningView, WaitingView
from strata.control.principal import Principal
from strata.control.service_base import ServiceBase


class PowerQueue:
    """Answers from ``book``. The queue is the whole machine's: a right to it reaches beyond any scope."""

    def __init__(self, nodes: ServiceBase, book: QueueBook) -> None:
        self._nodes = nodes
        self._book = book

    async def tell(self, who: Principal, told: QueueTold) -> QueueView:
        """Replace what is known of the queue."""
        now = self._nodes.controller.clock.wall()
        record = QueueRecord(
            author=who.name,
            time=now,
            good_until=now + told.good_for,
            waiting=tuple(Waiting(one.job, one.nodes, one.queue, one.user, one.time_limit) for one in told.waiting),
            running=tuple(Running(one.job, one.ends, one.cap) for one in told.running),
        )
        await self._book.put(record)
        return self._view(record)

    async def queue(self, who: Principal) -> QueueView:
        """What is known of it."""
        return self._view(await self._book.get())

    def _view(self, record: QueueRecord | None) -> QueueView:
        if record is None:
            return QueueView(time=None, author="", good_until=None, fresh=False, waiting=(), running=())
        return QueueView(
            time=record.time,
            author=record.author,
            good_until=record.good_until,
            fresh=self._nodes.controller.clock.wall() < record.good_until,
            waiting=tuple(
                WaitingView(job=one.job, nodes=one.nodes, queue=one.queue, user=one.user, time_limit=one.time_limit)
                for one in record.waiting
            ),
            running=tuple(RunningView(job=one.job, ends=one.ends, cap=one.cap) for one in record.running),
        )
