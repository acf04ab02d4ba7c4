"""Delivers the node's configuration into the members that run here, and sees to it that it stays as it was delivered.

One overlay at a time, of which a member has all or is being given it. A member gets its files before it starts; what
needs it to run comes then. What was delivered is remembered for each member, and is all that is ever removed again.
"""

from __future__ import annotations

import hashlib
import stat
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ..commands import Job
from ..errors import AgentError, CommandFailed, Refused
from ..files import load_json, save_json
from ..paths import Paths
from . import live, packages
from .accounts import Accounts
from .beneath import Beneath
from .overlay import Overlay

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..personality.supervisor import Supervisor

_MOST_TOLD = 64
_MOST_CORRECTED = 16
_CORRECTED_FOR = 3600.0
"""Seconds for which it is told that something was put right."""
_ACCOUNT_FILES = {"/etc/passwd": 0o644, "/etc/group": 0o644, "/etc/shadow": 0o640}


class Delivery:
    """The configuration of this node."""

    def __init__(
        self,
        paths: Paths,
        members: Callable[[], list[Supervisor]],
        fetch: Callable[[], dict[str, Any]],
        say: Callable[[str], None],
        changed: Callable[[], None],
    ) -> None:
        """`members`: those that run. `fetch`: asks the controller for what is wanted of this node."""
        self._paths = paths
        self._members = members
        self._fetch = fetch
        self._say = say
        self._changed = changed
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._overlay: Overlay | None = None
        self._in_force = ""
        self._failure = ""
        self._given: dict[str, dict[str, Any]] = {}
        self._looked: dict[tuple[str, str], tuple[object, ...]] = {}
        self._drift: dict[tuple[str, str, str], dict[str, Any]] = {}
        self._corrected: list[dict[str, Any]] = []
        self._recover()

    # what others call

    def configure(self, job: Job) -> dict[str, Any]:
        """Fetch what is wanted now, and have it in force in every member that runs."""
        overlay = Overlay(self._fetch())
        with self._lock:
            self._take(overlay)
            self._failure = ""
            self._settle()
            if self._in_force != overlay.digest:
                raise CommandFailed(self._failure or "not every member of the personality runs")
        return {}

    def furnish(self, identifier: str, name: str, root: Path) -> None:
        """A member is about to start: give it its files. It starts also where that cannot be; the report says so."""
        with self._lock:
            self._given.pop(identifier, None)  # what was delivered into an earlier root went with it
            self._in_force = ""
            try:
                if self._overlay is None:
                    self._take(Overlay(self._fetch()))
                self._furnish(identifier, name, root, settled=True)
            except Refused as error:
                if error.status != 404:
                    self._say(f"no configuration for {name} yet: {error}")
            except AgentError as error:
                self._say(f"no configuration for {name} yet: {error}")

    def poke(self) -> None:
        """A member may run now that did not before."""
        self._wake.set()

    def report(self) -> dict[str, Any]:
        """The configuration as the controller is told."""
        overlay = self._overlay
        lately = [one for one in self._corrected if time.time() - one["since"] < _CORRECTED_FOR]
        drift = [*self._drift.values(), *lately][:_MOST_TOLD]
        if overlay is None or not self._in_force:
            return {"revision": "", "digest": "", "drift": drift}
        return {"revision": overlay.revision, "digest": self._in_force, "drift": drift}

    def run(self) -> None:
        """Look at what was delivered, time and again; never returns."""
        due = 0.0
        while True:
            overlay = self._overlay
            self._wake.wait(overlay.check if overlay is not None else 30.0)
            self._wake.clear()
            with self._lock:
                self._settle()
                if self._overlay is not None and time.monotonic() >= due:
                    due = time.monotonic() + self._overlay.check
                    self.look()

    # delivering

    def _take(self, overlay: Overlay) -> None:
        """This is wanted from now on."""
        if self._overlay is None or overlay.digest != self._overlay.digest:
            self._in_force = ""
        self._overlay = overlay
        save_json(self._paths.overlay, overlay.values)
        self._wake.set()  # from now on there is something to look at

    def _furnish(self, identifier: str, name: str, root: Path, *, settled: bool) -> None:
        """Put accounts and files into a member. `settled`: it does not run yet, so that nothing needs to be told."""
        overlay = self._overlay
        assert overlay is not None
        given = self._given.setdefault(identifier, {"digest": "", "files": {}, "accounts": {}, "due": []})
        if given["digest"] == overlay.digest:
            return
        with Beneath(root) as below:
            accounts = _accounts(below, overlay, name)
            _stage_accounts(below, accounts, given["accounts"])
            files: dict[str, Any] = {}
            commands: list[list[str]] = list(given["due"])
            for entry in overlay.of("files", name):
                path = str(entry["path"])
                files[path] = own = self._own(entry, accounts)
                if self._file_differs(below, identifier, path, own):
                    below.stage(path, overlay.content(entry), own["mode"], own["uid"], own["gid"])
                    if entry["reload"] and not settled and entry["reload"] not in commands:
                        commands.append([str(word) for word in entry["reload"]])
            names = {path: sorted(wanted) for path, wanted in accounts.wanted.items()}
            former, given["files"] = given["files"], {**given["files"], **files}
            given["accounts"] = {path: sorted({*given["accounts"].get(path, []), *names[path]}) for path in names}
            given["due"] = commands
            self._keep()  # before it is so: an agent that is killed now must know what it may have left
            below.commit()
            for path in former.keys() - files.keys():
                below.remove(path)
        given.update(digest=overlay.digest, files=files, accounts=names)
        self._keep()

    def _own(self, entry: dict[str, Any], accounts: Accounts) -> dict[str, Any]:
        uid, gid = accounts.numbers(str(entry["owner"]), str(entry["group"]))
        return {"sha": str(entry["sha"]), "mode": int(entry["mode"]), "uid": uid, "gid": gid}

    def _settle(self) -> None:
        """Have in force what needs running members: sysctls, packages, mounts, services, commands that are due."""
        overlay = self._overlay
        if overlay is None or self._in_force == overlay.digest:
            return
        members = self._members()
        if not members or any(member.state != "active" for member in members):
            return
        try:
            for entry in overlay.all("sysctls"):
                if live.sysctl_differs(self._paths, entry):
                    live.set_sysctl(self._paths, entry)
            self._check_inits(overlay, members)
            for member in members:
                self._furnish(member.member.identifier, member.member.name, member.root, settled=False)
                self._settle_member(overlay, member)
        except AgentError as error:
            if str(error) != self._failure:
                self._say(f"the configuration {overlay.revision} is not in force: {error}")
            self._failure = str(error)
            return
        self._failure, self._in_force = "", overlay.digest
        self._drift, self._looked = {}, {}
        present = {member.member.identifier for member in members}
        self._given = {identifier: given for identifier, given in self._given.items() if identifier in present}
        self._keep()
        self._changed()

    def _settle_member(self, overlay: Overlay, member: Supervisor) -> None:
        given = self._given[member.member.identifier]
        inside = live.runner(member.exec_command)
        if wanted := overlay.of("packages", member.member.name):
            with Beneath(member.root) as below:
                kept_by = packages.manager(below)
            missing = packages.differ(inside, kept_by, wanted)
            for entry in wanted:  # before services, which may be theirs
                if str(entry["name"]) in missing:
                    packages.install(live.runner(member.exec_command, packages.WITHIN), kept_by, entry)
        if member.member.init:
            self._settle_mounts(overlay.of("mounts", member.member.name), given, member.pid, inside)
            services = overlay.of("services", member.member.name)
            if services and given["files"]:
                live.must(inside, ["systemctl", "daemon-reload"])  # units may be among the files
            differ = live.services_differ(inside, services)
            for entry in services:
                if str(entry["name"]) in differ:
                    live.set_service(inside, entry)
        while given["due"]:
            live.must(inside, given["due"][0])
            del given["due"][0]
            self._keep()

    def _settle_mounts(self, wanted: list[dict[str, Any]], given: dict[str, Any], pid: int, inside: live.Run) -> None:
        there = live.mounts_of(self._paths, pid)
        targets = [str(entry["target"]) for entry in wanted]
        former = given.get("mounts") or []
        given["mounts"] = sorted({*former, *targets})
        self._keep()
        for target in reversed([target for target in former if target not in targets and target in there]):
            live.must(inside, ["umount", "--", target])
        for entry in wanted:
            if live.mount_differs(entry, there):
                live.set_mount(inside, entry)
        given["mounts"] = sorted(targets)
        self._keep()

    def _check_inits(self, overlay: Overlay, members: list[Supervisor]) -> None:
        """That every service and mount has a member that can have it."""
        inits = [member.member.name for member in members if member.member.init]
        for kind in ("services", "mounts"):
            for entry in overlay.all(kind):
                named = entry.get("members") or []
                if not inits or any(name not in inits for name in named):
                    what = str(entry.get("name") or entry.get("target"))
                    raise CommandFailed(
                        f"{kind[:-1]} {what}: {', '.join(named) or 'no member'} has no init here "
                        "(init: true in the personality); without one, files can have a reload command"
                    )

    # looking

    def look(self) -> None:
        """Compare what was delivered with what is there; tell of what differs, or put it right, as its policy says."""
        overlay = self._overlay
        if overlay is None or self._in_force != overlay.digest:
            return
        before = (set(self._drift), len(self._corrected), [one["since"] for one in self._corrected])
        found: dict[tuple[str, str, str], dict[str, Any]] = {}
        for entry in overlay.all("sysctls"):
            how = live.sysctl_differs(self._paths, entry)
            self._judge(found, "", "sysctl", entry, how, partial(live.set_sysctl, self._paths, entry))
        for member in self._members():
            if member.state == "active" and member.member.identifier in self._given:
                try:
                    self._look_into(found, overlay, member)
                except AgentError as error:
                    self._say(f"member {member.member.name} cannot be looked into: {error}")
        self._drift = found
        if before != (set(found), len(self._corrected), [one["since"] for one in self._corrected]):
            self._changed()

    def _look_into(
        self, found: dict[tuple[str, str, str], dict[str, Any]], overlay: Overlay, member: Supervisor
    ) -> None:
        name, identifier = member.member.name, member.member.identifier
        inside = live.runner(member.exec_command)
        with Beneath(member.root) as below:
            accounts = _accounts(below, overlay, name)
            policies = {
                (kind[:-1], str(entry["name"])): entry
                for kind in ("users", "groups")
                for entry in overlay.of(kind, name)
            }
            for what, which, how in accounts.differ():
                entry = policies.get((what, which)) or policies.get(("user", which)) or {}
                self._judge(found, name, what, {**entry, "name": which}, how, partial(self._mend_accounts, member))
            for entry in overlay.of("files", name):
                how = self._file_drift(below, identifier, entry)
                self._judge(found, name, "file", entry, how, partial(self._mend_file, member, entry, inside))
            kept_by = packages.manager(below)
        wanted = overlay.of("packages", name)
        missing = packages.differ(inside, kept_by, wanted)
        slowly = live.runner(member.exec_command, packages.WITHIN)
        for entry in wanted:
            how = missing.get(str(entry["name"]), "")
            self._judge(found, name, "package", entry, how, partial(packages.install, slowly, kept_by, entry))
        if not member.member.init:
            return
        there = live.mounts_of(self._paths, member.pid)
        for entry in overlay.of("mounts", name):
            how = live.mount_differs(entry, there)
            self._judge(found, name, "mount", entry, how, partial(live.set_mount, inside, entry))
        services = overlay.of("services", name)
        differ = live.services_differ(inside, services)
        for entry in services:
            how = differ.get(str(entry["name"]), "")
            self._judge(found, name, "service", entry, how, partial(live.set_service, inside, entry))

    def _judge(
        self,
        found: dict[tuple[str, str, str], dict[str, Any]],
        member: str,
        what: str,
        entry: dict[str, Any],
        how: str,
        mend: Callable[[], None],
    ) -> None:
        """Something is not as it was delivered, where `how` says so: note it, or put it right and note that."""
        if not how:
            return
        where = str(entry.get("path") or entry.get("target") or entry.get("name"))
        policy = str(entry.get("drift") or "report")
        since = self._drift.get((member, what, where), {}).get("since") or time.time()
        told = {
            "what": what, "where": where[:1000], "how": how[:1000], "member": member, "policy": policy,
            "corrected": False, "since": since,
        }  # fmt: skip
        if policy == "correct":
            try:
                mend()
                self._say(f"{what} {where} {how}: put right")
                self._corrected = [*self._corrected, {**told, "corrected": True}][-_MOST_CORRECTED:]
                return
            except AgentError as error:
                told["how"] = f"{how}; it cannot be put right: {error}"[:1000]
        found[member, what, where] = told

    def _mend_file(self, member: Supervisor, entry: dict[str, Any], inside: live.Run) -> None:
        overlay = self._overlay
        assert overlay is not None
        with Beneath(member.root) as below:
            own = self._own(entry, _accounts(below, overlay, member.member.name))
            below.stage(str(entry["path"]), overlay.content(entry), own["mode"], own["uid"], own["gid"])
            below.commit()
        if entry["reload"]:
            live.must(inside, [str(word) for word in entry["reload"]])

    def _mend_accounts(self, member: Supervisor) -> None:
        overlay = self._overlay
        assert overlay is not None
        with Beneath(member.root) as below:
            _stage_accounts(below, _accounts(below, overlay, member.member.name), {})
            below.commit()

    def _file_drift(self, below: Beneath, identifier: str, entry: dict[str, Any]) -> str:
        path = str(entry["path"])
        return self._file_differs(below, identifier, path, self._given[identifier]["files"][path])

    def _file_differs(self, below: Beneath, identifier: str, path: str, own: dict[str, Any]) -> str:
        """How a file is not what it should be; empty: it is. One that has not changed since is not read again."""
        there = below.look(path)
        if there is None:
            return "is missing"
        if not stat.S_ISREG(there.st_mode):
            return "is no plain file"
        words = []
        if (there.st_uid, there.st_gid) != (own["uid"], own["gid"]):
            words.append(f"belongs to {there.st_uid}:{there.st_gid}")
        if there.st_mode & 0o7777 != own["mode"]:
            words.append(f"has mode {there.st_mode & 0o7777:04o}")
        stamp = (own["sha"], there.st_ino, there.st_size, there.st_mtime_ns, there.st_ctime_ns)
        known = self._looked.get((identifier, path))
        if known != stamp:
            if hashlib.sha256(below.read(path) or b"").hexdigest() == own["sha"]:
                self._looked[identifier, path] = stamp
            else:
                self._looked.pop((identifier, path), None)
                words.append("has another content")
        return ", ".join(words)

    # remembering

    def _recover(self) -> None:
        """Go on where an earlier agent of this boot was."""
        kept, given = load_json(self._paths.overlay), load_json(self._paths.delivered)
        if not isinstance(kept, dict) or not isinstance(given, dict):
            return
        try:
            self._overlay = Overlay(kept)
        except AgentError:
            return
        self._given = given.get("members") or {}
        self._in_force = str(given.get("in_force") or "")

    def _keep(self) -> None:
        save_json(self._paths.delivered, {"in_force": self._in_force, "members": self._given})


def _accounts(below: Beneath, overlay: Overlay, member: str) -> Accounts:
    return Accounts(below, overlay.of("users", member), overlay.of("groups", member))


def _stage_accounts(below: Beneath, accounts: Accounts, former: dict[str, list[str]]) -> None:
    """`former`: names that were delivered before, by file."""
    for path, data in accounts.texts(former).items():
        there = below.look(path)
        if there is None:
            below.stage(path, data, _ACCOUNT_FILES[path], 0, 0)
        else:
            below.stage(path, data, stat.S_IMODE(there.st_mode), there.st_uid, there.st_gid)
