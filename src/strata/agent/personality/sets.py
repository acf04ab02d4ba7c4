"""The node's image set: loaded, started, stopped, changed for another, and taken over by a restarted agent.

One operation at a time. A change fetches and checks everything while the old set runs; members that are the same in
both go on undisturbed; if a new one does not become ready, the old ones are started again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..commands import Job
from ..errors import AgentError, CommandFailed
from ..files import load_json, save_json
from ..images.loading import Loader
from ..link.identity import Identity
from ..link.logs import Logs
from ..paths import Paths
from .container import Crun
from .member import ImageSet, Member
from .supervisor import Supervisor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_WORST = ("fatal", "error", "update", "idle")
_SLACK = 30.0


class Personality:
    """What runs on the minimal OS."""

    def __init__(
        self,
        paths: Paths,
        identity: Identity,
        controllers: list[str],
        logs: Logs,
        changed: Callable[[], None],
        crun: tuple[str, ...],
    ) -> None:
        self._paths = paths
        self._logs = logs
        self._changed = changed
        self._crun = Crun(paths, crun)
        self._loader = Loader(paths, identity, controllers)
        self._operation = threading.Lock()
        self._current: ImageSet | None = None
        self._loaded: list[ImageSet] = []
        self._members: dict[str, Supervisor] = {}
        self._runs = False
        self._updating = False
        self._reason = ""

    def recover(self) -> None:
        """Go on where an earlier agent of this boot was: containers that run are taken over, others started."""
        kept = load_json(self._paths.set)
        if not isinstance(kept, dict):
            return
        self._loaded = [ImageSet(values) for values in kept["loaded"]]
        self._current = ImageSet(kept["current"]) if kept["current"] else None
        self._runs = bool(kept["runs"])
        self._reason = str(kept["reason"])
        running = self._crun.running()
        wanted = self._current.members if self._current is not None and self._runs else []
        for identifier in running.keys() - {member.identifier for member in wanted}:
            self._crun.delete(identifier)  # half a change that the earlier agent did not finish
        for member in wanted:
            self._supervise(member).begin(running.get(member.identifier))

    def report(self) -> dict[str, Any]:
        """The set as the controller is told."""
        members = [supervisor.report() for supervisor in list(self._members.values())]
        states = {member["state"] for member in members}
        state = next((worst for worst in _WORST if worst in states), "active" if members else "idle")
        if self._updating:
            state = "update"
        elif not self._runs:
            state = "idle"
        reason = self._reason
        if state in ("error", "fatal"):
            worst = next(member for member in members if member["state"] == state)
            reason = f"{worst['name']}: {worst['reason']}"
        current = self._current
        return {
            "name": current.name if current else "",
            "digest": current.digest if current else "",
            "state": state,
            "reason": reason[:1000],
            "members": members,
        }

    def loaded(self) -> list[str]:
        """The digests of the sets that are here whole and checked."""
        return [image_set.digest for image_set in self._loaded]

    def member(self, name: str) -> Supervisor | None:
        """A running member by name, or the first one; None where nothing runs and no name was given."""
        running = {own: found for own, found in self._members.items() if found.state in ("active", "update")}
        if name and name not in running:
            raise CommandFailed(f"no member {name!r} runs here: {', '.join(running) or 'none do'}")
        return running[name] if name else next(iter(running.values()), None)

    def load(self, job: Job) -> dict[str, Any]:
        """Fetch and check a set; a node that runs nothing holds it from then on."""
        wanted = ImageSet(job.command.get("set") or {})
        with self._operation:
            self._fetch(wanted, job)
            if not self._runs:
                self._current = wanted
            self._keep()
        return {}

    def start(self, job: Job) -> dict[str, Any]:
        """Start a loaded set and wait until it is ready; what fails is tried again, and said."""
        digest = str(job.command.get("digest") or "")
        with self._operation:
            found = next((image_set for image_set in self._loaded if image_set.digest == digest), None)
            if found is None:
                raise CommandFailed(f"set {digest[:19]} is not loaded here")
            if self._runs and self._current is not None and self._current.digest != digest:
                raise CommandFailed(f"set {self._current.name} runs here: switch, or stop it first")
            self._reason = ""
            self._current, self._runs = found, True
            self._keep()
            fresh = [self._supervise(member) for member in found.members if member.name not in self._members]
            for supervisor in fresh:
                supervisor.begin()
            self._decided(list(self._members.values()), job)
        return {}

    def stop(self, job: Job) -> dict[str, Any]:
        """Stop every member; the set stays loaded."""
        with self._operation:
            self._runs = False
            self._keep()
            self._end(list(self._members))
            self._changed()
        return {}

    def switch(self, job: Job) -> dict[str, Any]:
        """Change to another set; back to the old one if a new member does not become ready."""
        wanted = ImageSet(job.command.get("set") or {})
        with self._operation:
            self._reason = ""
            self._updating = True
            self._changed()
            try:
                self._fetch(wanted, job)
                for member in wanted.members:
                    self._loader.mount(member.release, member.mode)
                self._change(wanted, job)
            except AgentError as error:
                self._reason = f"the change to {wanted.name} failed: {error}"
                raise
            finally:
                self._updating = False
                self._keep()
                self._changed()
        return {}

    def end(self) -> None:
        """Stop everything before the machine goes down."""
        if self._operation.acquire(timeout=_SLACK):
            self._end(list(self._members))

    def _change(self, wanted: ImageSet, job: Job) -> None:
        old = self._current.members if self._current is not None and self._runs else []
        same = {member.identifier for member in old} & {member.identifier for member in wanted.members}
        self._end([member.name for member in old if member.identifier not in same])
        fresh = [self._supervise(member) for member in wanted.members if member.identifier not in same]
        try:
            for supervisor in fresh:
                supervisor.begin()
            self._decided(fresh, job)
        except AgentError:
            self._end([supervisor.member.name for supervisor in fresh])
            back = [self._supervise(member) for member in old if member.identifier not in same]
            for supervisor in back:
                supervisor.begin()
            for supervisor in back:
                supervisor.settle(supervisor.member.ready_within + _SLACK)
            raise
        self._current, self._runs = wanted, True
        self._loaded = [wanted]

    def _decided(self, supervisors: list[Supervisor], job: Job) -> None:
        """Wait until each is ready; CommandFailed names the first that is not."""
        for supervisor in supervisors:
            state = supervisor.settle(supervisor.member.ready_within + _SLACK, job.cancelled.is_set)
            if job.cancelled.is_set():
                raise CommandFailed("cancelled")
            if state != "active":
                raise CommandFailed(f"member {supervisor.member.name}: {supervisor.reason or state}")

    def _fetch(self, wanted: ImageSet, job: Job) -> None:
        for member in wanted.members:
            self._loader.load(member.release, member.mode, job.cancelled.is_set)
        others = [
            image_set for image_set in self._loaded if image_set.digest != wanted.digest and self._holds(image_set)
        ]
        self._loaded = [*others, wanted]

    def _holds(self, image_set: ImageSet) -> bool:
        return self._runs and self._current is not None and image_set.digest == self._current.digest

    def _supervise(self, member: Member) -> Supervisor:
        supervisor = Supervisor(
            member,
            self._paths,
            self._crun,
            self._logs,
            lambda: self._loader.mount(member.release, member.mode),
            lambda: self._loader.server(member.release, member.mode),
            self._changed,
        )
        self._members[member.name] = supervisor
        return supervisor

    def _end(self, names: list[str]) -> None:
        """Stop members, all at once."""
        ending = [self._members[name] for name in names if name in self._members]
        threads = [threading.Thread(target=supervisor.end, daemon=True) for supervisor in ending]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for name in names:
            self._members.pop(name, None)

    def _keep(self) -> None:
        """Remember for a restarted agent, and let go of images that no set here needs."""
        current = self._current
        kept = {
            "current": current.values if current else None,
            "runs": self._runs,
            "reason": self._reason,
            "loaded": [image_set.values for image_set in self._loaded],
        }
        save_json(self._paths.set, kept)
        sets = [*self._loaded, *([current] if current else [])]
        self._loader.keep_only([(member.release, member.mode) for image_set in sets for member in image_set.members])
