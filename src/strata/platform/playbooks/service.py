"""Requests about playbook layers; and their runs: on nodes that are up and have not had what is wanted now, a batch at
a time. Only one controller runs them."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import os
import pwd
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from strata.core.errors import BadRequest, NotFound, Unavailable
from strata.core.intset import contains, pack, union, unpack
from strata.core.printable import clean
from strata.core.redact import redact
from strata.core.state import STATES
from strata.engine.explain import states
from strata.fleet.access.principal import Principal
from strata.fleet.alarm import Alarm, AlarmSeverity
from strata.fleet.child_process import find
from strata.fleet.columns import Indices
from strata.fleet.drivers.subprocesses import run_command
from strata.fleet.fleet import Fleet
from strata.fleet.recurring import Recurring
from strata.platform.ansible.inventory import hosts_file
from strata.platform.config.git import Mirror, Reach, check_url, read_tree
from strata.platform.config.keeper import Keeper
from strata.platform.config.service import ConfigService
from strata.platform.duty import PLATFORM
from strata.platform.playbooks.records import (
    Again,
    Failure,
    Had,
    NodeFailure,
    PlaybookDetail,
    PlaybookEntry,
    PlaybookView,
    check,
)
from strata.platform.playbooks.run import Answer, Question
from strata.platform.scopes import Scopes
from strata.platform.settings import PlatformSettings

KIND: Literal["playbook"] = "playbook"
EVERY = 10.0
"""Seconds between two looks at who is to have what."""
FIRST, LONGEST = 60.0, 3600.0
"""Seconds until a node that failed is tried again: twice as long each time, up to this."""
TOLD = 3
"""Tries of a node after which somebody is told."""
_MOST_ANSWER = 4 << 20
_MOST_KEY = 64 << 10
_BOUNDS = ("--as=4294967296", "--nofile=4096", "--fsize=268435456", "--core=0")


class PlaybookService:
    """The layers of this fleet. ``start``, then ``stop``."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._duty = fleet.controller.leadership.duty(PLATFORM)
        self._scopes = Scopes(fleet.registry)
        self.records = fleet.records(
            PlaybookEntry, kind=KIND, listed_by="strata playbook list", changed=lambda *_: self._round.soon()
        )
        self._had = fleet.records(Had, kind="playbook-had", prefix="playbook-had/")
        self._round = Recurring("playbooks", self._go_round, lambda: EVERY, trouble="playbooks cannot be run")

    async def start(self) -> None:
        """Load the layers; run them once the fleet runs."""
        await self._had.start()
        await self.records.start()
        self._fleet.of(ConfigService).keepers[KIND] = Keeper(self.records, self.made)
        self._fleet.begin(self._round.start)

    async def stop(self) -> None:
        """Run nothing more. What is under way is ended, and begun again by whoever comes next."""
        await self._round.stop()
        await self.records.stop()
        await self._had.stop()

    # asking

    async def all(self, who: Principal) -> Sequence[PlaybookView]:
        """All layers, and how many nodes have had each."""
        return [PlaybookView.of(self._detail(entry)) for _, entry in self.records.sorted]

    async def one(self, who: Principal, name: str) -> PlaybookDetail:
        """One of them, and on which nodes it failed."""
        return self._detail(self.records.get(name))

    async def again(self, who: Principal, name: str, order: Again) -> PlaybookDetail:
        """Have it run once more on nodes, whether they have had it or failed."""
        self._fleet.need_whole_fleet(who, "a playbook")
        entry = self.records.get(name)
        uids = self._fleet.registry.uids[self._fleet.owned(who, order.select)]

        def fresh(had: Had | None) -> Had:
            old = had if had is not None and had.digest == entry.digest else Had(digest=entry.digest)
            done = unpack(old.done)
            failures = {uid: one for uid, one in old.failures.items() if uid not in set(uids.tolist())}
            return Had(digest=entry.digest, done=pack(done[~np.isin(done, uids)]), failures=failures)

        await self._had.change(who.name, name, fresh, action="again", detail={"select": order.select[:200]})
        self._round.soon()
        return self._detail(entry)

    # what the configuration says

    def made(self, spec: PlaybookEntry, author: str) -> PlaybookEntry:
        """The record of what is said; ``BadRequest`` where it cannot be run here."""
        where = f"{KIND} {spec.name}"
        check(spec, where)
        if spec.url:
            check_url(spec.url)
        if importlib.util.find_spec("ansible_runner") is None:
            raise BadRequest("ansible-runner is not installed", where=where, hint="pip install 'strata[playbooks]'")
        return spec

    # runs

    async def _go_round(self) -> None:
        if not self._duty.here:
            return
        for name in [name for name, _ in self.records.sorted]:
            while (entry := self.records.find(name)) is not None and self._duty.here:
                had = self._now(entry)
                nodes = self._due(entry, had)
                if not len(nodes):
                    break
                await self._run(entry, had, nodes)

    def _now(self, entry: PlaybookEntry) -> Had:
        had = self._had.find(entry.name)
        return had if had is not None and had.digest == entry.digest else Had(digest=entry.digest)

    def _nodes(self, entry: PlaybookEntry) -> Indices:
        found: Indices = np.flatnonzero(self._scopes.mask(entry.select) & self._fleet.registry.alive)
        return found

    def _due(self, entry: PlaybookEntry, had: Had) -> Indices:
        """The nodes of the next run: up, without it, and not just failed. Of something that nobody has had yet, one."""
        now = self._fleet.controller.clock.wall()
        if now < had.after:
            return np.zeros(0, dtype=np.int64)
        nodes = self._nodes(entry)
        uids = self._fleet.registry.uids[nodes]
        open_ = ~contains(had.done, uids)
        if "os" in self._fleet.controller.model.variables:
            open_ &= self._fleet.view.fact_mask("os", "up")[nodes]
        late = np.array([uid for uid, one in had.failures.items() if now < one.after], dtype=np.int64)
        open_ &= ~np.isin(uids, late)
        return nodes[open_][: entry.batch if had.done else 1]

    async def _run(self, entry: PlaybookEntry, had: Had, nodes: Indices) -> None:
        names = list(self._fleet.view.names(nodes))
        uids = self._fleet.registry.uids[nodes].copy()
        try:
            answer = await self._answer(entry, nodes)
        except (BadRequest, NotFound, Unavailable) as error:
            answer = Answer(failed={}, trouble=str(error))
        now = self._fleet.controller.clock.wall()
        if answer.trouble:
            why = _fit(answer.trouble)
            self._alarm(entry.name, "", f"{entry.name}: {why}")
            await self._keep(entry, msgspec.structs.replace(had, trouble=why, after=now + FIRST))
            return
        self._alarm(entry.name, "")
        failures = {uid: one for uid, one in had.failures.items() if uid not in set(uids.tolist())}
        bad = np.array([name in answer.failed for name in names], dtype=np.bool_)
        for uid, name in zip(uids.tolist(), names, strict=True):
            if name not in answer.failed:
                if uid in had.failures and had.failures[uid].tries >= TOLD:
                    self._alarm(entry.name, name)
                continue
            tries = had.failures[uid].tries + 1 if uid in had.failures else 1
            wait = min(LONGEST, FIRST * 2 ** (tries - 1))
            failures[uid] = Failure(tries=tries, after=now + wait, why=_fit(answer.failed[name]))
            if tries == TOLD:
                self._alarm(entry.name, name, f"{entry.name} failed {tries} times: {failures[uid].why}")
        what = f"playbook {entry.name}@{entry.commit[:12]}"
        self._record(uids[~bad], what)
        self._record(uids[bad], f"{what} failed")
        done = union(had.done, pack(uids[~bad]))
        after = 0.0 if done else min(one.after for one in failures.values())  # the canary failed: nobody else yet
        await self._keep(entry, Had(digest=entry.digest, done=done, failures=failures, after=after))

    def _record(self, uids: np.ndarray[tuple[int], np.dtype[np.int64]], what: str) -> None:
        nodes = self._fleet.registry.indices_of(uids)
        if len(nodes := nodes[nodes >= 0]):
            self._fleet.controller.record_event(nodes, what, KIND)

    async def _keep(self, entry: PlaybookEntry, had: Had) -> None:
        detail = {"commit": entry.commit[:12], "failing": len(had.failures), "trouble": had.trouble}
        await self._had.put(KIND, entry.name, had, action="run", detail=detail)

    async def _answer(self, entry: PlaybookEntry, nodes: Indices) -> Answer:
        """What one run came to."""
        url = entry.url or self._followed()
        settings = self._fleet.section(PlatformSettings)
        place = self._fleet.settings.state_dir / "playbooks"
        reach = Reach(ssh_config=settings.ssh_config, ca=settings.git_ca)
        mirror = Mirror(place / hashlib.sha256(url.encode()).hexdigest()[:16], reach=reach)
        if not await mirror.has(entry.commit):
            await mirror.fetch_all(url)
            if not await mirror.has(entry.commit):
                raise NotFound(f"no branch has the commit {entry.commit[:12]}", where=url, hint="push it")
        files = await asyncio.to_thread(read_tree, mirror.directory, entry.commit)
        if entry.path not in files:
            raise NotFound(f"there is no {entry.path}", where=f"{url} at {entry.commit[:12]}")
        registry = self._fleet.registry
        words = [STATES[number] for number in states(self._fleet.controller.engine, nodes).tolist()]
        groups = {
            name: [registry.names[index] for index in nodes[registry.groups.mask(name)[nodes]].tolist()]
            for name in registry.groups
        }
        account = _account(settings.playbook_account)
        with tempfile.TemporaryDirectory(prefix="strata-playbook-") as folder:
            if account is not None:
                await asyncio.to_thread(shutil.chown, folder, account.pw_uid, account.pw_gid)
            question = Question(
                folder=folder,
                files=files,
                playbook=entry.path,
                inventory=hosts_file([registry.node_at(index) for index in nodes.tolist()], words, groups),
                vars=entry.vars,
                forks=min(len(nodes), 50),
                seconds=int(entry.timeout),
                key=_key(settings.playbook_key),
                ssh_config=str(settings.ssh_config or ""),
            )
            ended = await run_command(
                [*_apart(account), sys.executable, "-m", "strata.platform.playbooks.run"],
                msgspec.msgpack.encode(question),
                entry.timeout + 60,
                _MOST_ANSWER,
                {
                    "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
                    "PYTHONPATH": str(Path(__file__).parents[3]),
                    "HOME": folder,
                    "TMPDIR": folder,
                    "LC_ALL": "C.UTF-8",
                },
            )
        if isinstance(ended, str):
            return Answer(failed={}, trouble=ended)
        if ended.status:
            return Answer(failed={}, trouble=f"status {ended.status}: {ended.errors[-300:]}")
        return msgspec.json.decode(ended.output, type=Answer)

    def _followed(self) -> str:
        found = self._fleet.of(ConfigService).followed_url
        if not found:
            raise NotFound("no branch is followed", where="url", hint="say its repository: url: ssh://...")
        return found

    def _alarm(self, layer: str, node: str, trouble: str = "") -> None:
        """Tell of trouble with a layer, or with one node; empty: it is over."""
        severity: AlarmSeverity = "warning" if trouble else "ok"
        message, about = trouble or f"{layer} was run", "" if node else f"{KIND} {layer}"
        self._fleet.alarm(Alarm(kind=KIND, severity=severity, message=message, node=node, about=about))

    def _detail(self, entry: PlaybookEntry) -> PlaybookDetail:
        had, nodes = self._now(entry), self._nodes(entry)
        registry = self._fleet.registry
        uids = registry.uids[nodes]
        done = int(contains(had.done, uids).sum())
        failing = [(uid, one) for uid, one in had.failures.items() if uid in set(uids.tolist())]
        names = {uid: registry.names[index] for uid, index in zip(uids.tolist(), nodes.tolist(), strict=True)}
        return PlaybookDetail.of(
            entry,
            nodes=len(nodes),
            done=done,
            failing=len(failing),
            waiting=len(nodes) - done - len(failing),
            trouble=had.trouble,
            failures=tuple(NodeFailure.of(one, node=names[uid]) for uid, one in failing),
        )


def _fit(words: str) -> str:
    return clean(redact(words)).strip()[:300]


def _account(name: str) -> pwd.struct_passwd | None:
    """Whom playbooks run as; None: as we do, which is not root."""
    if os.geteuid():
        return None
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise BadRequest(f"there is no account {name}", where="platform.playbook_account") from None


def _apart(account: pwd.struct_passwd | None) -> list[str]:
    """Before the command: another account, no way to more rights, limits, and an end with ours."""
    to = (
        (f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups", "--bounding-set=-all")
        if account is not None
        else ()
    )
    return [find("setpriv", "util-linux"), *to, "--no-new-privs", "--pdeathsig=KILL", "prlimit", *_BOUNDS, "nice"]


def _key(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        text = path.read_bytes()[:_MOST_KEY].decode("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"cannot be read: {type(error).__name__}", where="platform.playbook_key") from None
    return text if text.endswith("\n") else f"{text}\n"
