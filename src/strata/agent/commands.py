"""Commands from the controller: each carried out once, its result kept until the controller has it.

A command's id is noted before it starts. An agent that was killed meanwhile does not do it again: it says that it
does not know how it ended, and the controller looks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from .errors import AgentError
from .files import load_json, save_json
from .paths import Paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MOST_AT_ONCE = 32
_REMEMBERED = 1000
_MOST_RESULTS = 64
_MOST_NAMED = 256
_RESULTS_BYTES = 2 << 20


class Job:
    """One command on its way; `cancelled` is looked at by whoever carries it out."""

    def __init__(self, command: dict[str, Any]) -> None:
        self.id = str(command["id"])
        self.kind = str(command["kind"])
        self.command = command
        self.cancelled = threading.Event()
        self.on_cancel: Callable[[], None] = lambda: None

    def cancel(self) -> None:
        """Ask for an early end."""
        self.cancelled.set()
        self.on_cancel()


class Commands:
    """Takes commands, runs each in a thread of its own, and holds results until they are acknowledged."""

    def __init__(
        self, paths: Paths, handlers: Mapping[str, Callable[[Job], dict[str, Any]]], changed: Callable[[], None]
    ):
        self._paths = paths
        self._handlers = handlers
        self._changed = changed
        self._lock = threading.Lock()
        self._running: dict[str, Job] = {}
        self._results: dict[str, dict[str, Any]] = {}
        self._seen: dict[str, None] = {}
        kept = load_json(paths.fence)
        self._epoch = int(kept.get("epoch", 0)) if isinstance(kept, dict) else 0
        for name in load_json(paths.pending) or []:
            self._seen[name] = None
            self._results[name] = {
                "id": name, "ok": False, "unknown": True, "error": "the agent was restarted while the command ran"
            }  # fmt: skip

    def take(self, reply: dict[str, Any]) -> None:
        """Read what an exchange brought: acknowledged results and new commands."""
        with self._lock:
            for name in reply.get("acked") or []:
                self._results.pop(str(name), None)
        for command in reply.get("commands") or []:
            if isinstance(command, dict) and command.get("id") and command.get("kind"):
                self._accept(Job(command))

    def results(self) -> list[dict[str, Any]]:
        """What the controller has not acknowledged yet, as much as one report should carry."""
        out: list[dict[str, Any]] = []
        size = 0
        with self._lock:
            for result in self._results.values():
                size += 200 + len(result.get("output") or "")
                if out and (size > _RESULTS_BYTES or len(out) == _MOST_RESULTS):
                    break
                out.append(result)
        return out

    def doing(self) -> list[str]:
        """The commands that are here: running, or done and not acknowledged."""
        with self._lock:
            return [*self._running, *self._results][:_MOST_NAMED]

    def _accept(self, job: Job) -> None:
        with self._lock:
            if job.id in self._seen:
                return  # sent again because its result was not heard yet
            self._seen[job.id] = None
            if len(self._seen) > _REMEMBERED:
                self._seen.pop(next(iter(self._seen)))
            refusal = self._refusal(job)
            if refusal:
                self._results[job.id] = {"id": job.id, "ok": False, "error": refusal}
            else:
                self._running[job.id] = job
                self._keep()
        if refusal:
            self._changed()
        else:
            threading.Thread(target=self._carry_out, args=(job,), name=f"command-{job.kind}", daemon=True).start()

    def _refusal(self, job: Job) -> str:
        epoch = job.command.get("epoch")
        if isinstance(epoch, int):
            if 0 < epoch < self._epoch:  # 0 is a person's wish, which no leadership fences
                return f"fenced: epoch {epoch} is over, {self._epoch} was seen"
            if epoch > self._epoch:
                self._epoch = epoch
                save_json(self._paths.fence, {"epoch": epoch})
        if job.kind not in self._handlers and job.kind != "cancel":
            return f"unknown command kind {job.kind[:40]!r}: this agent knows {', '.join(sorted(self._handlers))}"
        if len(self._running) >= _MOST_AT_ONCE and job.kind != "cancel":
            return f"refused: {_MOST_AT_ONCE} commands are running on this node"
        return ""

    def _carry_out(self, job: Job) -> None:
        result: dict[str, Any] = {"id": job.id, "ok": True, "error": ""}
        try:
            result.update(self._cancel(job) if job.kind == "cancel" else self._handlers[job.kind](job))
        except AgentError as error:
            result.update(ok=False, error=str(error)[:1000])
        except Exception as error:  # whatever a command does, the agent goes on and says so
            result.update(ok=False, error=f"{type(error).__name__}: {error}"[:1000])
        with self._lock:
            self._running.pop(job.id, None)
            self._results[job.id] = result
            self._keep()
        self._changed()

    def _cancel(self, job: Job) -> dict[str, Any]:
        with self._lock:
            other = self._running.get(str(job.command.get("of", "")))
        if other is None:
            return {"ok": False, "error": "no such command is running"}
        other.cancel()
        return {}

    def _keep(self) -> None:
        save_json(self._paths.pending, list(self._running))
