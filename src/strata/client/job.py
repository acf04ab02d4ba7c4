"""One job, as the client holds it: what was last heard of it, and what can be done to it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from strata.client.errors import Failed, StrataError
from strata.client.wire import Json, Wire

_WAIT = 30.0


class Job:
    """A job of the service. Its fields are as they were when it was last asked about; ``refresh`` asks again."""

    def __init__(self, wire: Wire, data: Json) -> None:
        self._wire = wire
        self.data = data
        """All that the service says of it."""

    def __repr__(self) -> str:
        return f"Job({self.id!r}, {self.outcome or self.state})"

    @property
    def id(self) -> str:
        return str(self.data["id"])

    @property
    def state(self) -> str:
        """``held``, ``waiting``, ``starting``, ``running``, ``suspended``, ``ending``, ``ended`` or ``unknown``."""
        return str(self.data["state"])

    @property
    def outcome(self) -> str | None:
        """How it ended: ``done``, ``failed``, ``cancelled``, ``timed-out``, ... None: it has not."""
        found: str | None = self.data["outcome"]
        return found

    @property
    def status(self) -> int | None:
        """What it exited with."""
        found: int | None = self.data["status"]
        return found

    @property
    def reason(self) -> str:
        """Why it waits, or ended as it did."""
        return str(self.data["reason"])

    @property
    def ended(self) -> bool:
        return self.state == "ended"

    def refresh(self) -> Job:
        """Ask again."""
        self.data = self._wire.ask("GET", self._path())
        return self

    def wait(self, timeout: float | None = None) -> Job:
        """Stay until it has ended; ``TimeoutError`` if that takes longer."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _WAIT if deadline is None else max(0.0, min(_WAIT, deadline - time.monotonic()))
            self.data = self._wire.ask("GET", self._path("/wait"), params={"timeout": left})
            if self.ended:
                return self
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"job {self.id} has not ended within {timeout} s")

    def check(self) -> Job:
        """Stay until it has ended; raise ``Failed`` unless it ended well."""
        self.wait()
        if self.outcome != "done":
            raise Failed(self)
        return self

    def log(self, *, task: int | None = None, stderr: bool = False) -> str:
        """All that it has printed until now."""
        text, offset = "", 0
        while True:
            query = {"task": task, "stream": "stderr" if stderr else "stdout", "offset": offset}
            part: Json = self._wire.ask("GET", self._path("/log"), params=query)
            text += str(part["text"])
            if part["end"] or part["next"] == offset:
                return text
            offset = part["next"]

    def follow(self, *, task: int | None = None, stderr: bool = False) -> Iterator[str]:
        """What it prints, as it comes, until it has ended."""
        query = {"task": task, "stream": "stderr" if stderr else "stdout"}
        for part in self._wire.events(self._path("/log/follow"), query):
            if part["text"]:
                yield part["text"]
            if part["end"]:
                return

    def cancel(self) -> Job:
        """End it."""
        return self._act("cancel")

    def hold(self) -> Job:
        """Keep it from beginning."""
        return self._act("hold")

    def release(self) -> Job:
        """Let it begin."""
        return self._act("release")

    def rerun(self) -> Job:
        """The same again, as a new job."""
        return Job(self._wire, self._wire.ask("POST", self._path("/rerun")))

    def _act(self, verb: str) -> Job:
        self.data = self._wire.ask("POST", self._path(f"/{verb}"), again=True)
        return self

    def _path(self, rest: str = "") -> str:
        if not self.id.isalnum():
            raise StrataError("is no id of a job", where=repr(self.id)[:40])
        return f"/v1/jobs/{self.id}{rest}"


def document_of(what: Any, fields: Json) -> Json:
    """What to run, as the service takes it: a command as words, a script, or a whole document."""
    resources = {name: fields.pop(name) for name in _RESOURCES if fields.get(name) is not None}
    if isinstance(what, dict):
        document = dict(what)
    elif isinstance(what, str):
        if not what.startswith("#!"):
            hint = "a command is a list of words: ['./a.out', 'input.dat']"
            raise StrataError("a script must begin with #!", where="submit", hint=hint)
        document = {"script": what}
    else:
        words = [str(word) for word in what]
        document = {"command": words[0], "arguments": words[1:]}
    document |= {name: value for name, value in fields.items() if value is not None}
    if resources:
        document["resources"] = {**document.get("resources", {}), **resources}
    return document


_RESOURCES = ("nodes", "tasks", "cores", "memory", "accelerators", "time", "licences", "power")
