"""Commands run on many nodes by their agents. Runs are kept in memory, in the controller that was asked.

Equal outputs are kept once: a hundred thousand nodes that say the same cost no more than one.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable

from strata.control import agent_views as a
from strata.control.principal import Principal
from strata.control.service import Service
from strata.core.errors import BadRequest, NotFound, StrataError, Unavailable
from strata.core.nodeset import fold
from strata.provisioning.agents.hub import Command, Hub
from strata.provisioning.agents.wire import Result

MOST_RUNS = 64
KEEP = 600.0
"""Seconds for which a run that is over can be read."""
MOST_OUTPUT = 64 * 2**20
"""Bytes of different output that one run keeps; what comes beyond is cut off."""
MOST_ITEMS = 10_000

_SENT_AT_ONCE = 500
_GRACE = 10.0  # seconds beyond the command's own limit: the agent ends it and tells
_AUDIT_ARGV = 200


class Run:
    """One command on many nodes."""

    def __init__(self, ident: str, request: a.ExecRequest, who: Principal, names: list[str]) -> None:
        self.id = ident
        self.request = request
        self.author = who.name
        self.scope = who.scope
        self.names = names
        self.created = time.time()
        self.ended: float | None = None
        self.cancelled = False
        self.results: list[a.ExecResult] = []
        self.failed = 0
        self.commands: set[Command] = set()
        self.task: asyncio.Task[None] | None = None
        self._outputs: dict[str, str] = {}
        self._kept = 0
        self._news = asyncio.Event()

    def add(self, node: str, result: Result | None, error: str = "") -> None:
        """One node has answered, or will not."""
        output, cut = self._keep(result.output if result else b"")
        code = result.exit if result else None
        if result is not None:
            error = result.error if not result.ok else ""
        self.failed += bool(error) or code != 0
        self.results.append(
            a.ExecResult(
                node=node, exit=code, output=output, truncated=cut or bool(result and result.truncated), error=error
            )
        )
        news, self._news = self._news, asyncio.Event()
        news.set()

    def end(self) -> None:
        """Nothing more comes."""
        self.ended = time.time()
        self._news.set()

    async def wait(self, after: int, seconds: float) -> None:
        """Until there is more than ``after`` results, or none will come."""
        deadline = asyncio.get_running_loop().time() + seconds
        try:
            async with asyncio.timeout_at(deadline):
                while len(self.results) <= after and self.ended is None:
                    await self._news.wait()
        except TimeoutError:
            return

    def view(self, after: int) -> a.ExecView:
        """The run with its results from ``after`` on."""
        items = tuple(self.results[after : after + MOST_ITEMS])
        state = "running" if self.ended is None else "cancelled" if self.cancelled else "done"
        return a.ExecView(
            id=self.id,
            argv=self.request.argv,
            author=self.author,
            created=self.created,
            state=state,  # type: ignore[arg-type]
            total=len(self.names),
            done=len(self.results),
            failed=self.failed,
            items=items,
            next=after + len(items),
        )

    def _keep(self, output: bytes) -> tuple[str, bool]:
        text = output.decode("utf-8", "replace")
        found = self._outputs.get(text)
        if found is not None:
            return found, False
        room = max(0, MOST_OUTPUT - self._kept)
        kept = text[:room]
        self._kept += len(kept)
        self._outputs[kept] = kept
        return kept, len(kept) < len(text)


class ExecService:
    """Runs commands. ``close`` cancels what is under way."""

    def __init__(self, service: Service, hub: Hub, *, clock: Callable[[], float] = time.time) -> None:
        self._service = service
        self._hub = hub
        self._clock = clock
        self._runs: OrderedDict[str, Run] = OrderedDict()

    async def close(self) -> None:
        """Cancel every run."""
        for run in self._runs.values():
            self._cancel(run)
        tasks = [run.task for run in self._runs.values() if run.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    async def begin(self, who: Principal, request: a.ExecRequest) -> a.ExecView:
        """Have it run on every selected node; audited before anything is sent."""
        nodes = self._service.owned(who, request.select)
        if not len(nodes):
            raise BadRequest("no node is selected", where="select")
        self._make_room()
        names = list(self._service.view.names(nodes))
        run = Run(secrets.token_hex(8), request, who, names)
        argv = " ".join(request.argv)
        detail = {"argv": argv[:_AUDIT_ARGV], "where": request.where, "nodes": len(names), "run": run.id}
        await self._service.ledger.commit(who.name, "exec", fold(names)[:500], [], detail=detail)
        self._runs[run.id] = run
        run.task = asyncio.create_task(self._work(run), name=f"exec {run.id}")
        return run.view(0)

    async def show(self, who: Principal, ident: str, after: int, wait: float) -> a.ExecView:
        """What has come of it; waits up to ``wait`` seconds for more than ``after`` results."""
        run = self._find(who, ident)
        await run.wait(after, wait)
        return run.view(after)

    async def cancel(self, who: Principal, ident: str) -> None:
        """End it on every node where it still runs."""
        run = self._find(who, ident)
        self._cancel(run)

    def _cancel(self, run: Run) -> None:
        if run.ended is None:
            run.cancelled = True
            for command in list(run.commands):
                self._hub.cancel(command)

    def _find(self, who: Principal, ident: str) -> Run:
        run = self._runs.get(ident)
        if run is None or (who.scope and run.author != who.name):
            raise NotFound("no such run", where=ident, hint="runs are kept for ten minutes, where they were begun")
        return run

    def _make_room(self) -> None:
        now = self._clock()
        over = [run for run in self._runs.values() if run.ended is not None]
        for run in over:
            if now - (run.ended or now) > KEEP or len(self._runs) >= MOST_RUNS:
                del self._runs[run.id]
        if len(self._runs) >= MOST_RUNS:
            raise Unavailable(f"{MOST_RUNS} runs are under way already", hint="wait until one of them is over")

    async def _work(self, run: Run) -> None:
        request = run.request
        body = {"argv": list(request.argv), "where": request.where}
        try:
            async with asyncio.TaskGroup() as group:
                for place, name in enumerate(run.names):
                    if run.cancelled:
                        run.add(name, None, "cancelled")
                        continue
                    try:
                        command = self._hub.send(name, "exec", body, timeout=request.timeout)
                    except StrataError as error:
                        run.add(name, None, error.detail)
                        continue
                    run.commands.add(command)
                    group.create_task(self._one(run, command))
                    if place % _SENT_AT_ONCE == _SENT_AT_ONCE - 1:
                        await asyncio.sleep(0)
        finally:
            run.end()

    async def _one(self, run: Run, command: Command) -> None:
        done, _ = await asyncio.wait({command.result}, timeout=run.request.timeout + _GRACE)
        run.commands.discard(command)
        result = command.result.result() if done else None
        if not done:
            self._hub.cancel(command)
        missing = "cancelled" if run.cancelled else "its agent gave no answer"
        run.add(command.node, result, "" if result else missing)
