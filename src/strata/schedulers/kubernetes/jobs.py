"""Jobs of one Kubernetes: listed once, from then on by what changed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from strata.core.errors import BadRequest, Denied, DeviceError, NotFound
from strata.schedulers import abilities
from strata.schedulers.jobs import MOST_PAST, JobSeen, Queue, Work
from strata.schedulers.kubernetes import manifests, replies
from strata.schedulers.kubernetes.manifests import MANAGED, name_of, namespace
from strata.schedulers.kubernetes.site import KubernetesSite
from strata.schedulers.kubernetes.wire import Exists, Gone, Wire
from strata.schedulers.runner import Account

PAGE = 500
"""Objects in one part of a list."""
QUIET = 0.3
"""Seconds without news after which a look at a watch is over. What it missed, the next one tells."""
_MOST_LOOK = 5.0
_ATTEMPTS = 3
_MERGE = "application/merge-patch+json"

T = TypeVar("T")


class _Kept(Generic[T]):
    """Objects of one kind, level with the cluster. Asked by one look at a time."""

    def __init__(self, wire: Wire, path: str, read: Callable[[Mapping[str, Any]], T]) -> None:
        self._wire = wire
        self._path = path
        self._read = read
        self._version = ""
        self.found: dict[str, T] = {}
        self.lists = 0
        """How often all of them were asked for."""

    async def look(self) -> None:
        """What has changed since the last time; all of them where that is not known any more."""
        for _ in range(_ATTEMPTS):
            try:
                await (self._changes() if self._version else self._list())
                return
            except Gone:
                self._version = ""
        raise DeviceError("its list changes faster than it can be read", node=self._path)

    async def _list(self) -> None:
        found: dict[str, T] = {}
        params = {"labelSelector": MANAGED, "limit": str(PAGE)}
        self.lists += 1
        while True:
            told = await self._wire.ask("GET", self._path, params)
            for one in replies.items(told, self._path):
                found[replies.key_of(one)] = self._read(one)
            if not (after := replies.more(told)):
                break
            params = {**params, "continue": after}
        self.found, self._version = found, replies.version(told)

    async def _changes(self) -> None:
        params = {
            "labelSelector": MANAGED,
            "watch": "1",
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(int(_MOST_LOOK)),
        }
        stream = self._wire.events(self._path, params, quiet=QUIET, most=_MOST_LOOK)
        async with contextlib.aclosing(stream):  # type: ignore[type-var]
            async for event in stream:
                kind, told = event.get("type"), event.get("object")
                if kind == "ERROR" or not isinstance(told, dict):
                    raise Gone(str(told)[:200])
                if kind == "DELETED":
                    self.found.pop(replies.key_of(told), None)
                elif kind in ("ADDED", "MODIFIED"):
                    self.found[replies.key_of(told)] = self._read(told)
                self._version = replies.version(told) or self._version


class KubernetesJobs:
    """Implements ``strata.schedulers.jobs.RunsApart``. ``account``: finds whom a job runs as, and refuses root."""

    ability = manifests.ABILITY

    def __init__(self, site: KubernetesSite, token: str, account: Callable[[str], Awaitable[Account]]) -> None:
        self._site = site
        self._account = account
        self._wire = Wire(site, token)
        self._jobs = _Kept(self._wire, "/apis/batch/v1/jobs", replies.read_job)
        self._pods = _Kept(self._wire, "/api/v1/pods", replies.read_pod)
        self._cancelled: dict[str, tuple[float, Sequence[JobSeen]]] = {}
        """Jobs that were ended here → when, and what was known of them."""

    async def close(self) -> None:
        """Ask no more."""
        await self._wire.close()

    async def submit(self, work: Work) -> str:
        """One Job, of a name that is the job's alone: sent twice, it is there once."""
        where, made = manifests.build(self._site, work, await self._account(work.account))
        # Strict: a field that an older Kubernetes does not know is refused, not dropped.
        path, params = f"/apis/batch/v1/namespaces/{where}/jobs", {"fieldValidation": "Strict"}
        try:
            await self._wire.ask("POST", path, params, body=made, account=work.account)
        except Exists:
            there = await self._wire.ask("GET", f"{path}/{name_of(work.key)}")
            if replies.read_job(there).account != work.account:
                told = f"there is a Job {name_of(work.key)} in {where} that is not ours"
                raise BadRequest(told, where="key") from None
        except (NotFound, Denied) as error:
            raise BadRequest(error.detail, where=error.where) from None
        return f"{where}/{name_of(work.key)}"

    async def jobs(self, ended_since: float) -> Sequence[JobSeen]:
        """Two questions, answered by what changed. Jobs first: how one of them ended, its pods have told by then."""
        ended_since = max(ended_since, time.time() - MOST_PAST)
        await self._jobs.look()
        await self._pods.look()
        jobs = self._jobs.found
        found = replies.seen(jobs.values(), self._pods.found.values())
        shown = {one.id.partition("[")[0] for one in found}
        self._cancelled = {
            one: (at, last) for one, (at, last) in self._cancelled.items() if at >= ended_since or one in shown
        }
        for one, (at, last) in self._cancelled.items():
            if one not in shown:
                found += [
                    seen
                    if seen.state == "ended"
                    else msgspec.structs.replace(
                        seen, state="ended", outcome="cancelled", reason="it was cancelled", ended=at
                    )
                    for seen in last
                ]
        return [job for job in found if job.state != "ended" or job.ended is None or job.ended >= ended_since]

    async def cancel(self, account: str, ids: Sequence[str]) -> None:
        """The Job goes, with its pods and their logs. Those that have ended, or are gone, stay as they are."""
        for one in ids:
            path, ident = _path(one)
            job = self._jobs.found.get(ident)
            if job is not None and job.over:
                continue
            last = replies.seen([job] if job else [], [pod for pod in self._pods.found.values() if pod.job == ident])
            try:
                await self._wire.ask("DELETE", path, {"propagationPolicy": "Background"}, account=account)
            except NotFound:
                continue
            self._cancelled[ident] = (time.time(), last)

    async def hold(self, account: str, ids: Sequence[str]) -> None:
        """Only those that have not begun: a Job that is suspended loses its pods."""
        for one in ids:
            path, ident = _path(one)
            there = await self._wire.ask("GET", path)
            active = (there.get("status") or {}).get("active") or 0 if isinstance(there, dict) else 0
            pods = [pod for pod in self._pods.found.values() if pod.job == ident and pod.began is not None]
            if active and pods:
                told = "it has begun, and Kubernetes would end it"
                raise BadRequest(told, where=ident, hint="end it with: strata job cancel")
            await self._suspend(path, True, account)

    async def release(self, account: str, ids: Sequence[str]) -> None:
        """Let them begin."""
        for one in ids:
            await self._suspend(_path(one)[0], False, account)

    async def queues(self) -> Sequence[Queue]:
        """It has none."""
        return ()

    async def expected(self, work: Work) -> float | None:
        """It cannot tell."""
        abilities.check(self.ability, work, manifests.KIND)
        namespace(self._site, work)
        return None

    async def log(self, account: str, there: str, index: int | None, offset: int, most: int) -> bytes:
        """A piece of what the newest pod of a job, or of the task of that index, printed; empty: it has none yet."""
        _, ident = _path(there)
        job = self._jobs.found.get(ident)
        task = None if index is None or job is None else (index - job.first) // job.step
        found = [pod for pod in self._pods.found.values() if pod.job == ident and pod.task == task]
        begun = [pod for pod in found if pod.began is not None or pod.ended is not None]
        if not begun:
            if job is None and not found:
                told = "Kubernetes does not keep it any more"
                raise NotFound(told, where=f"log of {ident}", hint="a cancelled job's log goes with it")
            return b""
        newest = max(begun, key=lambda pod: (pod.created, pod.name))
        path = f"/api/v1/namespaces/{ident.partition('/')[0]}/pods/{newest.name}/log"
        params = {"container": manifests.CONTAINER, "limitBytes": str(offset + most)}
        return await self._wire.tail(path, params, offset, most, account)

    async def _suspend(self, path: str, held: bool, account: str) -> None:
        body = {"spec": {"suspend": held}}
        await self._wire.ask("PATCH", path, body=body, kind=_MERGE, account=account)


def _path(one: str) -> tuple[str, str]:
    """Where a Job is in the API, and its id without the task."""
    found = replies.JOB_ID.match(one)
    if found is None:
        raise BadRequest(f"not an id of a job in Kubernetes: {one[:40]!r}", hint="NAMESPACE/NAME")
    ident = f"{found['namespace']}/{found['name']}"
    return f"/apis/batch/v1/namespaces/{found['namespace']}/jobs/{found['name']}", ident
