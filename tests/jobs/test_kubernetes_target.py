"""Jobs at a Kubernetes: over real TLS, at a fake API server that checks what it gets, runs it, loses and forgets.

No API server can be had here: Debian has clients alone, and neither PyPI nor npm carries one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kubernetes import client as official

from strata.core.errors import BadRequest, Conflict, DeviceError, Refused, StrataError
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.access.sealing import Seal
from strata.jobs.containers.records import Bind, Container
from strata.jobs.resources import Asked
from strata.jobs.submission import follower
from strata.jobs.submission.records import JobDocument
from strata.jobs.targets.records import TargetRequest
from strata.jobs.targets.service import PREFIX, TargetService
from strata.schedulers.jobs import Array
from strata.schedulers.kubernetes.jobs import KubernetesJobs
from strata.schedulers.kubernetes.site import KubernetesSite
from support.fake_kubernetes import TOKEN, FakeKubernetes
from support.job_site import ALICE, BOB, OPERATOR, JobSite, job_site, until

pytestmark = [pytest.mark.slow, pytest.mark.server]


class Site:
    """A job site that has the Kubernetes as its only target."""

    def __init__(self, jobs: JobSite, cluster: FakeKubernetes, targets: TargetService) -> None:
        self.site, self.jobs, self.cluster, self.targets = jobs, jobs.jobs, cluster, targets

    def request(self, **more: Any) -> TargetRequest:
        site = {"server": self.cluster.server, "ca": self.cluster.ca, "image": "registry.example/site:1", **more}
        return TargetRequest(kind="kubernetes", kubernetes=KubernetesSite(**site), token=TOKEN)

    async def ended(self, script: str, **more: Any) -> Any:
        job = await self.jobs.submit(ALICE, JobDocument(script=f"#!/bin/sh\n{script}\n", **more))
        return await self.site.ended(ALICE, job.id)

    @property
    def adapter(self) -> KubernetesJobs:
        found = self.jobs.targets["kube"].scheduler
        assert isinstance(found, KubernetesJobs)
        return found


@asynccontextmanager
async def kubernetes(directory: Path) -> AsyncIterator[Site]:
    async with (
        FakeKubernetes(directory, "jobs").running() as cluster,
        job_site(directory, local=False, poll=1.0) as site,
    ):
        site.fleet.put(Seal([bytes(32)]))
        targets = TargetService(site.fleet)
        site.fleet.put(targets)
        await targets.start()
        found = Site(site, cluster, targets)
        await targets.connect(LOCAL_ADMIN, "kube", found.request())
        await site.jobs.target_views()
        try:
            yield found
        finally:
            cluster.holds_pods.set()
            await targets.stop()


async def test_a_job_runs_at_kubernetes_as_at_any_other_target(open_dir: Path) -> None:
    async with kubernetes(open_dir) as k:
        done, failed, killed, late, array = await asyncio.gather(
            k.ended('echo "hello $USER $GREETING"; printf "\\303\\244"', env={"GREETING": "it's $5"}),
            k.ended("echo oh >&2; exit 3"),
            k.ended("kill -9 $$"),
            k.ended("exec sleep 600", resources=Asked(time=1)),
            k.ended(
                'echo "task $STRATA_ARRAY_INDEX"; [ $STRATA_ARRAY_INDEX != 4 ]', array=Array(first=2, last=6, step=2)
            ),
        )
        assert (done.outcome, done.status, done.nodes) == ("done", 0, ("worker1",))
        assert (
            await k.site.printed(ALICE, done.id) == "hello nobody it's $5\nä" or k.site.people["alice"].name != "nobody"
        )
        assert (await k.jobs.log(ALICE, done.id, offset=6)).text.startswith(k.site.people["alice"].name)
        assert done.stdout == ""
        assert (failed.outcome, failed.status, await k.site.printed(ALICE, failed.id)) == ("failed", 3, "oh\n")
        assert (killed.outcome, killed.signal) == ("failed", 9)
        assert (late.outcome, late.reason) == ("timed-out", "its time was over")
        assert [(one.index, one.outcome, one.status) for one in array.array] == [
            (2, "done", 0),
            (4, "failed", 1),
            (6, "done", 0),
        ]
        assert await k.site.printed(ALICE, array.id, task=6) == "task 6\n"
        pod = k.cluster.pods(done.id)[0]["spec"]
        assert pod["securityContext"]["runAsUser"] == k.site.people["alice"].uid
        with pytest.raises(StrataError):
            await k.jobs.log(BOB, done.id)


async def test_a_job_is_held_released_tried_again_and_cancelled_and_says_why_it_waits(open_dir: Path) -> None:
    async with kubernetes(open_dir) as k:
        held = await k.jobs.submit(ALICE, JobDocument(command="true", held=True))
        await until(lambda: k.jobs.job(ALICE, held.id).state == "held")
        assert k.cluster.pods(held.id) == []
        await k.jobs.release(ALICE, held.id)
        assert (await k.site.ended(ALICE, held.id)).outcome == "done"

        again = await k.ended("exit 5", retries=1)
        assert (again.outcome, again.status, len(k.cluster.pods(again.id))) == ("failed", 5, 2)

        running = await k.jobs.submit(ALICE, JobDocument(command="sleep", arguments=("600",)))
        await until(lambda: k.jobs.job(ALICE, running.id).state == "running")
        with pytest.raises(Refused, match="has begun"):
            await k.jobs.hold(ALICE, running.id)
        with pytest.raises(BadRequest, match="has begun"):  # one task of an array, say
            await k.adapter.hold(running.account, [k.jobs.job(ALICE, running.id).there])
        await k.jobs.cancel(ALICE, running.id)
        over = await k.site.ended(ALICE, running.id)
        assert (over.outcome, over.reason) == ("cancelled", "it was cancelled")
        assert not [ident for ident in k.cluster.kept["jobs"] if running.id in ident]

        k.cluster.unschedulable = "0/3 nodes are available: 3 Insufficient cpu."
        waits = await k.jobs.submit(ALICE, JobDocument(command="true"))
        await until(lambda: "Insufficient cpu" in k.jobs.job(ALICE, waits.id).reason)
        await k.jobs.cancel(ALICE, waits.id)
        await k.site.ended(ALICE, waits.id)

        k.cluster.unschedulable = ""
        lost = await k.jobs.submit(ALICE, JobDocument(command="sleep", arguments=("600",)))
        await until(lambda: k.jobs.job(ALICE, lost.id).state == "running")
        k.cluster.evict(next(ident for ident in k.cluster.kept["pods"] if lost.id in ident))
        evicted = await k.site.ended(ALICE, lost.id)
        assert (evicted.outcome, "Evicted" in evicted.reason) == ("node-failed", True)


async def test_a_lost_answer_is_one_job_and_a_forgotten_version_is_listed_again(
    open_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "RESEND_AFTER", 0.0)
    async with kubernetes(open_dir) as k:
        k.cluster.faults = ["lost"]
        job = await k.jobs.submit(ALICE, JobDocument(command="true"))
        assert (await k.site.ended(ALICE, job.id)).outcome == "done"
        posts = [path for method, path, _ in k.cluster.asked if method == "POST"]
        assert len([ident for ident in k.cluster.kept["jobs"] if job.id in ident]) == 1 <= len(posts)

        # The same once more: it is there, and is not made again.
        work = k.jobs._work(None, job.id, job.document, k.site.people["alice"], k.jobs.targets["kube"], None, {})
        assert await k.adapter.submit(work) == job.there or job.there == ""
        assert len([ident for ident in k.cluster.kept["jobs"] if job.id in ident]) == 1

        lists = k.adapter._jobs.lists
        k.cluster.compact()
        after = await k.ended("exit 0")
        assert after.outcome == "done"
        assert k.adapter._jobs.lists > lists

        # From then on it is told what changed: no more lists, whatever happens.
        lists = k.adapter._jobs.lists
        await k.ended("exit 0")
        assert k.adapter._jobs.lists == lists

        k.cluster.faults = ["quota"]
        with pytest.raises(BadRequest, match="exceeded quota"):
            await k.jobs.submit(ALICE, JobDocument(command="true"))


async def test_a_long_list_comes_in_parts_and_one_that_expires_meanwhile_is_begun_anew(
    open_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strata.schedulers.kubernetes.jobs.PAGE", 2)
    async with FakeKubernetes(open_dir, "jobs").running() as cluster:
        site = KubernetesSite(server=cluster.server, ca=cluster.ca, image="i")
        for number in range(5):
            labels = {"app.kubernetes.io/managed-by": "strata", "strata/key": f"k{number}"}
            about = {"name": f"strata-k{number}", "namespace": "jobs", "labels": labels}
            cluster.kept["jobs"][f"jobs/strata-k{number}"] = {
                "metadata": about,
                "spec": {"suspend": True},
                "status": {},
            }

        async def nobody(name: str) -> Any:
            raise AssertionError(name)

        adapter = KubernetesJobs(site, TOKEN, nobody)
        answer = cluster._list
        cut = [True]

        def expiring(request: Any, kind: str, namespace: str | None) -> Any:
            if kind == "jobs" and "continue" in request.query and cut:
                cut.clear()
                cluster.compact()
            return answer(request, kind, namespace)

        cluster._list = expiring  # type: ignore[method-assign]
        try:
            assert {job.key for job in await adapter.jobs(0.0)} == {f"k{number}" for number in range(5)}
            assert not cut
        finally:
            await adapter.close()


async def test_a_target_is_connected_only_where_it_answers_over_tls_that_is_checked_and_its_token_stays_sealed(
    open_dir: Path,
) -> None:
    async with kubernetes(open_dir) as k:
        kept = await k.site.store.get(f"{PREFIX}kube")
        assert kept is not None
        assert TOKEN.encode() not in kept.value
        assert TOKEN not in repr(await k.targets.all(OPERATOR))
        assert k.site.fleet.of(Seal).open(k.targets.connected["kube"].sealed, f"{PREFIX}kube") == TOKEN.encode()
        with pytest.raises(DeviceError, match=r"(?i)certificate"):
            await k.targets.connect(LOCAL_ADMIN, "other", k.request(ca=""))
        with pytest.raises(DeviceError, match="token"):
            await k.targets.connect(LOCAL_ADMIN, "other", msgspec.structs.replace(k.request(), token="wrong"))
        with pytest.raises(DeviceError, match="bjobs could not be started") as missing:
            await k.targets.connect(LOCAL_ADMIN, "other", TargetRequest(kind="lsf"))
        assert "--on HOST" in missing.value.hint
        assert set(k.targets.connected) == {"kube"}
        # Whoever names another server gets no token of this one.
        there = msgspec.structs.replace(k.request(server="https://127.0.0.1:1"), token="")
        with pytest.raises(BadRequest, match="token again"):
            await k.targets.connect(LOCAL_ADMIN, "kube", there)
        with pytest.raises(Conflict):
            await k.targets.connect(LOCAL_ADMIN, "local", k.request())
        with pytest.raises(BadRequest):
            await k.targets.connect(LOCAL_ADMIN, "p", TargetRequest(kind="pbs", env={"LD_PRELOAD": "/x"}))
        # As the user, where the site wants that.
        await k.targets.connect(LOCAL_ADMIN, "kube", k.request(impersonate=True))
        job = await k.ended("true")
        sent = [h for h, asked in zip(k.cluster.headers, k.cluster.asked, strict=True) if asked[0] == "POST"]
        assert sent[-1]["Impersonate-User"] == job.account
        await k.targets.disconnect(LOCAL_ADMIN, "kube")
        await k.jobs.target_views()
        assert "kube" not in k.jobs.targets


async def test_what_a_container_asks_of_nodes_is_refused_at_kubernetes_and_an_image_of_a_registry_is_taken(
    open_dir: Path,
) -> None:
    async with kubernetes(open_dir) as k:
        k.cluster.holds_pods.clear()
        job = await k.jobs.submit(
            ALICE, JobDocument(command="true", container=Container(image="docker://registry.example/own:2"))
        )
        await until(lambda: k.cluster.pods(job.id))
        assert k.cluster.pods(job.id)[0]["spec"]["containers"][0]["image"] == "registry.example/own:2"
        for container, field in (
            (Container(image="site:1"), "container.image"),
            (Container(image="docker://r/i", binds=(Bind(source="/scratch"),)), "container.binds"),
            (Container(image="docker://r/i", home="user"), "container.home"),
        ):
            with pytest.raises(BadRequest) as caught:
                await k.jobs.submit(ALICE, JobDocument(command="true", container=container))
            assert caught.value.where == field
        with pytest.raises(BadRequest, match="modules"):
            await k.jobs.submit(ALICE, JobDocument(command="true", modules=("gcc",)))
        k.cluster.holds_pods.set()
        await k.site.ended(ALICE, job.id)


async def test_the_official_client_speaks_to_the_same_server(open_dir: Path) -> None:
    async with FakeKubernetes(open_dir, "jobs").running() as cluster:
        settings = official.Configuration(host=cluster.server)
        authority = open_dir / "ca.pem"
        authority.write_text(cluster.ca)
        settings.ssl_ca_cert = str(authority)
        settings.api_key = {"authorization": f"Bearer {TOKEN}"}

        def speak() -> tuple[Any, ...]:
            with official.ApiClient(settings) as api:
                batch, core = official.BatchV1Api(api), official.CoreV1Api(api)
                container = official.V1Container(name="job", image="i", command=["sh", "-c", "echo hello"])
                pod = official.V1PodSpec(restart_policy="Never", containers=[container])
                template = official.V1PodTemplateSpec(metadata=official.V1ObjectMeta(labels={"a": "b"}), spec=pod)
                job = official.V1Job(
                    metadata=official.V1ObjectMeta(name="one"),
                    spec=official.V1JobSpec(template=template, backoff_limit=0),
                )
                made = batch.create_namespaced_job("jobs", job, field_validation="Strict")
                with pytest.raises(official.ApiException) as twice:
                    batch.create_namespaced_job("jobs", job)
                while not (told := batch.read_namespaced_job("one", "jobs").status).succeeded:
                    assert not told.failed
                [ran] = core.list_namespaced_pod("jobs", label_selector="job-name=one").items
                log = core.read_namespaced_pod_log(ran.metadata.name, "jobs")
                batch.delete_namespaced_job("one", "jobs")
                return made.metadata.namespace, twice.value.status, log, len(batch.list_job_for_all_namespaces().items)

        assert await asyncio.to_thread(speak) == ("jobs", 409, "hello\n", 0)
