"""One Grid Engine cluster, by commands that a ``Runner`` runs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from strata.schedulers.gridengine import replies
from strata.schedulers.protocol import NodeSeen
from strata.schedulers.runner import Runner


class GridEngine:
    """Implements ``strata.schedulers.protocol.Scheduler``."""

    def __init__(self, runner: Runner, mark: str) -> None:
        self._runner = runner
        self._mark = mark
        self._hosts: Mapping[str, replies.Host] = {}
        self._ours: Mapping[str, frozenset[str]] = {}

    async def look(self) -> Mapping[str, NodeSeen]:
        """Which queues we disabled where, then all hosts."""
        groups = replies.our_groups(await self._runner.run(*replies.GROUPS), self._mark)
        ours = {}
        for queue, group in groups.items():
            ours[queue] = frozenset((await self._runner.run(*replies.members(group))).split())
        said = await self._runner.run(*replies.HOSTS)
        self._hosts, self._ours = await asyncio.to_thread(replies.hosts, said), ours
        return await asyncio.to_thread(replies.nodes, self._hosts, ours)

    async def drain(self, names: Sequence[str], reason: str) -> None:
        """Disable those queues that nobody has disabled. Noted afterwards: what is not noted is held for a person's,
        and stays."""
        by_queue: dict[str, list[str]] = {}
        for name in names:
            for queue, state in self._hosts[name].queues.items():
                if not replies.is_disabled(state):
                    by_queue.setdefault(queue, []).append(name)
        for queue, hosts in by_queue.items():
            await self._runner.run(*replies.disable([f"{queue}@{host}" for host in hosts]))
            group = replies.group(self._mark, queue)
            if queue not in self._ours:
                await self._runner.run(*replies.NEW_GROUP, stdin=replies.empty_group(group))
            await self._runner.run(*replies.put_into(group, hosts))

    async def resume(self, names: Sequence[str]) -> None:
        """Enable those queues that we disabled. Forgotten before: whoever disables one now is not taken for us."""
        for queue, ours in self._ours.items():
            hosts = [name for name in names if name in ours]
            if hosts:
                await self._runner.run(*replies.take_from(replies.group(self._mark, queue), hosts))
                await self._runner.run(*replies.enable([f"{queue}@{host}" for host in hosts]))
