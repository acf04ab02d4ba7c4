"""Commands run on many nodes by their agents. Runs are kept in memory, in the controller that was asked.

Equal outputs are kept once: a hundred thousand nodes that say the same cost no more than one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Sequence

from strata.core.errors import BadRequest, NotFound, StrataError, Unavailable
from strata.core.nodeset import fold
from strata.fleet.access.principal import Principal
from strata.fleet.fleet import Fleet
from strata.fleet.peers.leaders import LeaderClient
from strata.provisioning.agents.hub import Hub
from strata.provisioning.agents.wire import Result
from strata.provisioning.exec import records as a
from strata.provisioning.exec.fanout import Answer, Order, on_agents, on_peer

log = logging.getLogger(__name__)

MOST_RUNS = 64
KEEP = 600.0
"""Seconds for which a run that is over can be read."""
MOST_OUTPUT = 64 * 2**20
"""Bytes of different output that one run keeps; what comes beyond is cut off."""
MOST_ITEMS = 10_000

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
        self.unanswered = dict.fromkeys(names)
        self.task: asyncio.Task[None] | None = None
        self.parts: list[asyncio.Task[None]] = []
        self._outputs: dict[str, str] = {}
        self._kept = 0
        self._news = asyncio.Event()

    def add(self, node: str, result: Result | None, error: str = "") -> None:
        """One node has answered, or will not."""
        if node not in self.unanswered:
            return
        del self.unanswered[node]
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
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while len(self.results) <= after and self.ended is None:
                    await self._news.wait()

    def view(self, after: int) -> a.ExecView:
        """The run with its results from ``after`` on."""
        items = tuple(self.results[after : after + MOST_ITEMS])
        state = "running" if self.ended is None else "cancelled" if self.cancelled else "done"
        return a.ExecView.of(
            self,
            argv=self.request.argv,
            state=state,
            total=len(self.names),
            done=len(self.results),
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

    def __init__(self, service: Fleet, hub: Hub, elsewhere: LeaderClient) -> None:
        """``elsewhere``: the way to agents of other controllers."""
        self._service = service
        self._hub = hub
        self._elsewhere = elsewhere
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
        await self._service.ledger.commit(who.name, "exec.run", fold(names)[:500], [], detail=detail)
        self._runs[run.id] = run
        run.task = asyncio.create_task(self._work(run), name=f"exec {run.id}")
        return run.view(0)

    async def show(self, who: Principal, ident: str, after: int = 0, wait: float = 0.0) -> a.ExecView:
        """What has come of it so far, from the result ``after`` on; waits up to ``wait`` seconds for more."""
        run = self._find(who, ident)
        await run.wait(after, wait)
        return run.view(after)

    async def cancel(self, who: Principal, ident: str) -> None:
        """End it wherever it still runs. Its results stay."""
        run = self._find(who, ident)
        self._cancel(run)

    def _cancel(self, run: Run) -> None:
        if run.ended is None:
            run.cancelled = True
            for part in run.parts:
                part.cancel()

    def _find(self, who: Principal, ident: str) -> Run:
        run = self._runs.get(ident)
        if run is None or (who.scope and run.author != who.name):
            raise NotFound("no such run", where=ident, hint="runs are kept for ten minutes, where they were begun")
        return run

    def _make_room(self) -> None:
        now = time.time()
        over = [run for run in self._runs.values() if run.ended is not None]
        for run in over:
            if now - (run.ended or now) > KEEP or len(self._runs) >= MOST_RUNS:
                del self._runs[run.id]
        if len(self._runs) >= MOST_RUNS:
            raise Unavailable(f"{MOST_RUNS} runs are under way already", hint="wait until one of them is over")

    async def _work(self, run: Run) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                if not run.cancelled:
                    run.parts = [
                        group.create_task(self._part(run, names, answers)) for names, answers in self._ways(run)
                    ]
        except Exception:
            log.exception("a run broke off", extra={"run": run.id})
        finally:
            for name in list(run.unanswered):
                run.add(name, None, "cancelled" if run.cancelled else "not known: the run broke off")
            run.end()

    def _ways(self, run: Run) -> Iterator[tuple[Sequence[str], AsyncIterator[Answer]]]:
        """Who is asked for which nodes: our own agents, and each of the other controllers once."""
        request = run.request
        order = Order(argv=request.argv, where=request.where, timeout=request.timeout, stdin=request.stdin or b"")
        found = self._elsewhere.sort(run.names)
        for name, why in found.nowhere.items():
            run.add(name, None, why)
        yield found.here, on_agents(self._hub, found.here, order)
        for peer, names in found.there.items():
            yield names, on_peer(self._elsewhere.client, peer, names, order)

    async def _part(self, run: Run, names: Sequence[str], answers: AsyncIterator[Answer]) -> None:
        """Take what comes from one of them; whom it does not answer for has failed."""
        why = "no answer came"
        try:
            async with contextlib.aclosing(answers):  # type: ignore[type-var]
                async for answer in answers:
                    run.add(answer.node, answer.result, answer.error)
        except StrataError as error:
            why = error.detail
        for name in names:
            run.add(name, None, why)
