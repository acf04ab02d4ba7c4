"""The node's personality: loaded, started, stopped, changed for another, and taken over by a restarted agent.

One operation at a time. A change fetches and checks everything while the old personality runs; members that are the
same in both go on undisturbed; if a new one does not become ready, the old ones are started again.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

from ..commands import Job
from ..errors import AgentError, CommandFailed
from ..files import load_json, save_json
from ..images.loading import Loader
from ..link.identity import Identity
from ..link.logs import Logs
from ..paths import Paths
from .container import Crun, check_program
from .member import Member, Personality
from .supervisor import Supervisor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_WORST = ("fatal", "error", "update", "idle")
_SLACK = 30.0


class Runner:
    """What runs on the minimal OS."""

    def __init__(
        self,
        paths: Paths,
        identity: Identity,
        controllers: list[str],
        logs: Logs,
        furnish: Callable[[str, str, Path], None],
        changed: Callable[[], None],
        crun: tuple[str, ...],
    ) -> None:
        """`furnish`: puts what is delivered to this node into a member's root, before it starts."""
        self._paths = paths
        self._logs = logs
        self._furnish = furnish
        self._changed = changed
        self._crun = Crun(paths, crun)
        self._loader = Loader(paths, identity, controllers)
        self._operation = threading.Lock()
        self._current: Personality | None = None
        self._loaded: list[Personality] = []
        self._members: dict[str, Supervisor] = {}
        self._runs = False
        self._updating = False
        self._reason = ""

    def recover(self) -> None:
        """Go on where an earlier agent of this boot was: containers that run are taken over, others started."""
        kept = load_json(self._paths.set)
        if not isinstance(kept, dict):
            return
        self._loaded = [Personality(values) for values in kept["loaded"]]
        self._current = Personality(kept["current"]) if kept["current"] else None
        self._runs = bool(kept["runs"])
        self._reason = str(kept["reason"])
        running = self._crun.running()
        wanted = self._current.members if self._current is not None and self._runs else []
        for identifier in running.keys() - {member.identifier for member in wanted}:
            self._crun.delete(identifier)  # half a change that the earlier agent did not finish
        for member in wanted:
            self._supervise(member).begin(running.get(member.identifier))

    def report(self) -> dict[str, Any]:
        """The personality as the controller is told."""
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
        """The digests of the personalities that are here whole and checked."""
        return [personality.digest for personality in self._loaded]

    def images(self) -> list[str]:
        """The digests of the images of all that is loaded or runs here: the controllers keep them for us."""
        current = self._current
        sets = [*self._loaded, *([current] if current else [])]
        return sorted({f"sha256:{member.release.hex}" for personality in sets for member in personality.members})

    def member(self, name: str) -> Supervisor | None:
        """A running member by name, or the first one; None where nothing runs and no name was given."""
        running = {own: found for own, found in self._members.items() if found.state in ("active", "update")}
        if name and name not in running:
            raise CommandFailed(f"no member {name!r} runs here: {', '.join(running) or 'none do'}")
        return running[name] if name else next(iter(running.values()), None)

    def members(self) -> list[Supervisor]:
        """All members that are to run."""
        return [supervisor for supervisor in list(self._members.values()) if not supervisor.over] if self._runs else []

    def load(self, job: Job) -> dict[str, Any]:
        """Fetch and check a personality; a node that runs nothing holds it from then on."""
        wanted = Personality(job.command.get("set") or {})
        with self._operation:
            self._fetch(wanted, job)
            if not self._runs:
                self._current = wanted
            self._keep()
        return {}

    def start(self, job: Job) -> dict[str, Any]:
        """Start a loaded personality and wait until it is ready; what fails is tried again, and said.

        Where it runs already, what is well is not touched, and what is being tried again is not waited for.
        """
        digest = str(job.command.get("digest") or "")
        with self._operation:
            found = next((personality for personality in self._loaded if personality.digest == digest), None)
            if found is None:
                raise CommandFailed(f"personality {digest[:19]} is not loaded here")
            if self._runs and self._current is not None and self._current.digest != digest:
                raise CommandFailed(f"personality {self._current.name} runs here: switch, or stop it first")
            self._reason = ""
            self._current, self._runs = found, True
            self._keep()
            retried = {name for name, supervisor in self._members.items() if supervisor.state == "error"}
            fresh = [self._supervise(member) for member in found.members if not self._has(member.name)]
            for supervisor in fresh:
                supervisor.begin()
            self._decided([one for name, one in self._members.items() if name not in retried], job)
        return {}

    def stop(self, job: Job) -> dict[str, Any]:
        """Stop every member; the personality stays loaded."""
        with self._operation:
            self._runs = False
            self._keep()
            try:
                self._end(list(self._members))
            except AgentError:
                self._runs = True
                self._keep()
                raise
            finally:
                self._changed()
        return {}

    def switch(self, job: Job) -> dict[str, Any]:
        """Change to another personality; back to the old one if a new member does not become ready."""
        wanted = Personality(job.command.get("set") or {})
        with self._operation:
            self._reason = ""
            self._updating = True
            self._changed()
            try:
                self._fetch(wanted, job)
                for member in wanted.members:
                    check_program(member, self._loader.mount(member.release, member.mode))
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
            with contextlib.suppress(AgentError):  # what the kernel holds ends with the machine
                self._end(list(self._members))

    def _change(self, wanted: Personality, job: Job) -> None:
        old = self._current.members if self._current is not None and self._runs else []
        same = {member.identifier for member in old} & {member.identifier for member in wanted.members}
        fresh: list[Supervisor] = []
        try:
            self._end([member.name for member in old if member.identifier not in same])
            fresh = [self._supervise(member) for member in wanted.members if member.identifier not in same]
            for supervisor in fresh:
                supervisor.begin()
            self._decided(fresh, job)
        except AgentError:
            with contextlib.suppress(AgentError):  # one that the kernel holds is told of as long as it is there
                self._end([supervisor.member.name for supervisor in fresh], for_good=True)
            back = [self._supervise(member) for member in old if not self._has(member.name)]
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

    def _fetch(self, wanted: Personality, job: Job) -> None:
        for member in wanted.members:
            self._loader.load(member.release, member.mode, job.cancelled.is_set)
        others = [
            personality
            for personality in self._loaded
            if self._runs and self._current is not None and personality.digest == self._current.digest != wanted.digest
        ]
        self._loaded = [*others, wanted]

    def _supervise(self, member: Member) -> Supervisor:
        supervisor = Supervisor(
            member,
            self._paths,
            self._crun,
            self._logs,
            lambda: self._loader.mount(member.release, member.mode),
            lambda: self._loader.server(member.release, member.mode),
            self._furnish,
            self._changed,
        )
        self._members[member.name] = supervisor
        return supervisor

    def _has(self, name: str) -> bool:
        """Whether a member of that name is here, in whatever state; one that ended by itself at last is not."""
        return name in self._members and not self._members[name].over

    def _end(self, names: list[str], *, for_good: bool = False) -> None:
        """Stop members, all at once; CommandFailed names those that cannot be killed, and they stay."""
        refusals: dict[str, str] = {}

        def end(name: str) -> None:
            refusals[name] = self._members[name].end(for_good=for_good)

        threads = [threading.Thread(target=end, args=(name,), daemon=True) for name in names if name in self._members]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stuck = {name: why for name, why in refusals.items() if why}
        for name in refusals.keys() - stuck:
            del self._members[name]
        if stuck:
            raise CommandFailed("; ".join(f"member {name}: {why}" for name, why in stuck.items()))

    def _keep(self) -> None:
        """Remember for a restarted agent, and let go of images that no personality here needs."""
        current = self._current
        kept = {
            "current": current.values if current else None,
            "runs": self._runs,
            "reason": self._reason,
            "loaded": [personality.values for personality in self._loaded],
        }
        save_json(self._paths.set, kept)
        sets = [*self._loaded, *([current] if current else [])]
        self._loader.keep_only(
            [(member.release, member.mode) for personality in sets for member in personality.members]
        )
