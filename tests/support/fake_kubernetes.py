"""The part of Kubernetes that runs Jobs, over real TLS: an API server that keeps, refuses, loses answers and forgets,
and a controller that makes pods of Jobs and really runs their commands.

What it is sent is checked against the models of the official client, field by field, as an API server does that is
asked to be strict. The official client itself is run against it too, so that it speaks as the real one.

``python -m support.fake_kubernetes NAMESPACE`` is one that has this namespace, and prints its kubeconfig.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import copy
import datetime
import ipaddress
import itertools
import json
import os
import re
import shutil
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from kubernetes import client as official

Object = dict[str, Any]
TOKEN = "token-of-the-service-account"
INDEX = "batch.kubernetes.io/job-completion-index"


def unfit(told: Object) -> str:
    """What of a Job is not as the official client's model of it says; empty: nothing."""
    try:
        official.V1Job.model_validate(told, by_alias=True, by_name=False)
    except ValueError as error:
        return str(error)
    return ""


class FakeKubernetes:
    """``namespaces``: those that there are."""

    def __init__(self, directory: Path, *namespaces: str) -> None:
        self.directory = directory
        self.namespaces = set(namespaces)
        self.kept: dict[str, dict[str, Object]] = {"jobs": {}, "pods": {}}
        self.server = ""
        self.ca = ""
        self.asked: list[tuple[str, str, str]] = []
        """Method, path and query of every request."""
        self.headers: list[dict[str, str]] = []
        self.faults: list[str] = []
        """Of the next requests that change something: ``lost`` (done, without an answer), ``away`` (503), ``quota``."""
        self.holds_pods = asyncio.Event()
        """Pods begin once it is set."""
        self.holds_pods.set()
        self.unschedulable = ""
        """Why no node takes pods; empty: one does."""
        self._versions = itertools.count(100)
        self._version = 99
        self._log: list[tuple[int, str, str, Object]] = []
        self._floor = 0
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._logs: dict[str, bytes] = {}
        self._transports: set[asyncio.WriteTransport] = set()

    # -- what happens to a cluster

    def compact(self) -> None:
        """Forget all that has happened: whoever asks for changes since then has to list."""
        self._floor = self._version + 1
        self._version = next(self._versions)

    def evict(self, name: str) -> None:
        """The node of a pod has no room for it any more."""
        pod = self.kept["pods"][name]
        pod["status"] |= {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
        pod["status"].pop("containerStatuses", None)
        self._note("MODIFIED", "pods", pod)
        self._settle(self._owner(pod))
        if (process := self._processes.pop(name, None)) is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()

    def pods(self, key: str) -> list[Object]:
        return [pod for pod in self.kept["pods"].values() if pod["metadata"]["labels"].get("strata/key") == key]

    # -- the API

    @asynccontextmanager
    async def running(self) -> AsyncIterator[FakeKubernetes]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self._tls())
        await site.start()
        port = runner.addresses[0][1]
        self.server = f"https://127.0.0.1:{port}"
        try:
            yield self
        finally:
            for process in self._processes.values():
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for transport in self._transports:
                if not transport.is_closing():
                    transport.abort()  # a client that has gone would be waited for
            await runner.cleanup()

    def _tls(self) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kubernetes")])
        now = datetime.datetime.now(datetime.UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(1)
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=2))
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
            )
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        self.ca = made.public_bytes(serialization.Encoding.PEM).decode()
        pem = self.directory / "kubernetes.pem"
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        pem.write_bytes(private + self.ca.encode())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        return context

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.method, request.path, request.query_string))
        self.headers.append(dict(request.headers))
        if request.transport is not None:
            self._transports.add(request.transport)  # type: ignore[arg-type]
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return _status(401, "Unauthorized", "Unauthorized")
        fault = self.faults.pop(0) if self.faults and request.method != "GET" else ""
        if fault == "away":
            return _status(503, "ServiceUnavailable", "the server is currently unable to handle the request")
        if fault == "quota":
            return _status(403, "Forbidden", "jobs.batch is forbidden: exceeded quota: jobs")
        answer = await self._route(request)
        if fault == "lost":
            assert request.transport is not None
            request.transport.abort()
        return answer

    async def _route(self, request: web.Request) -> web.StreamResponse:
        found = re.fullmatch(
            r"/(?:apis/batch/v1|api/v1)(?:/namespaces/(?P<ns>[^/]+))?/(?P<kind>jobs|pods)(?:/(?P<name>[^/]+))?(?P<log>/log)?",
            request.path,
        )
        if found is None:
            return _status(404, "NotFound", f"the server could not find the requested resource {request.path}")
        kind, ident = found["kind"], f"{found['ns']}/{found['name']}"
        if found["name"] is None:
            if request.method == "POST":
                return self._create(found["ns"], await request.json(), strict="fieldValidation" in request.query)
            if request.query.get("watch") in ("1", "true", "True"):
                return await self._watch(request, kind)
            return self._list(request, kind, found["ns"])
        there = self.kept[kind].get(ident)
        if there is None:
            return _status(404, "NotFound", f'{kind} "{found["name"]}" not found')
        if found["log"]:
            most = int(request.query.get("limitBytes", 1 << 30))
            return web.Response(body=self._logs.get(ident, b"")[:most], content_type="text/plain")
        if request.method == "DELETE":
            self._delete(there, ident)
        elif request.method == "PATCH":
            there["spec"] |= (await request.json())["spec"]
            self._note("MODIFIED", kind, there)
            self._settle(there)
        return web.json_response(there)

    def _create(self, namespace: str, made: Object, *, strict: bool) -> web.Response:
        if namespace not in self.namespaces:
            return _status(404, "NotFound", f'namespaces "{namespace}" not found')
        if strict and (wrong := unfit(made)):
            return _status(400, "BadRequest", f"strict decoding error: {wrong}")
        ident = f"{namespace}/{made['metadata']['name']}"
        if ident in self.kept["jobs"]:
            return _status(409, "AlreadyExists", f'jobs.batch "{made["metadata"]["name"]}" already exists')
        made["metadata"] |= {"namespace": namespace, "uid": f"u{self._version}", "creationTimestamp": _now()}
        made["status"] = {}
        self.kept["jobs"][ident] = made
        self._note("ADDED", "jobs", made)
        self._settle(made)
        return web.json_response(made, status=201)

    def _list(self, request: web.Request, kind: str, namespace: str | None) -> web.Response:
        chosen = [
            one
            for ident, one in sorted(self.kept[kind].items())
            if namespace in (None, ident.partition("/")[0]) and _selected(request, one)
        ]
        version = str(self._version)
        start = 0
        if told := request.query.get("continue"):
            version, _, offset = told.partition("+")
            if int(version) < self._floor:
                return _status(410, "Expired", "The provided continue parameter is too old")
            start = int(offset)
        end = start + int(request.query.get("limit", len(chosen) or 1))
        about: Object = {"resourceVersion": version}
        if end < len(chosen):
            about["continue"] = f"{version}+{end}"
        name = {"jobs": ("JobList", "batch/v1"), "pods": ("PodList", "v1")}[kind]
        return web.json_response(
            {"kind": name[0], "apiVersion": name[1], "metadata": about, "items": chosen[start:end]}
        )

    async def _watch(self, request: web.Request, kind: str) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)

        async def tell(what: str, told: Object) -> None:
            await answer.write(json.dumps({"type": what, "object": told}).encode() + b"\n")

        if since < self._floor:
            await tell("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
            return answer
        deadline = asyncio.get_running_loop().time() + float(request.query.get("timeoutSeconds", 60))
        at = 0
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout_at(deadline):
                while True:
                    for version, what, of, told in self._log[at:]:
                        at += 1
                        if of == kind and version > since and _selected(request, told):
                            await tell(what, told)
                    async with self._changed:
                        await self._changed.wait()
        return answer

    # -- the controller of Jobs

    def _note(self, what: str, kind: str, one: Object) -> None:
        self._version = next(self._versions)
        one["metadata"]["resourceVersion"] = str(self._version)
        self._log.append((self._version, what, kind, copy.deepcopy(one)))
        self._later(self._wake())

    async def _wake(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _later(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _owner(self, pod: Object) -> Object | None:
        return self.kept["jobs"].get(f"{pod['metadata']['namespace']}/{pod['metadata']['labels']['job-name']}")

    def _settle(self, job: Object | None) -> None:
        """Make the pods that are missing, and say how it is."""
        if job is None or any(one["status"] == "True" for one in job["status"].get("conditions", ())):
            return
        spec, about = job["spec"], job["metadata"]
        indexed = spec.get("completionMode") == "Indexed"
        of = [pod for pod in self.kept["pods"].values() if self._owner(pod) is job]
        limit = spec["backoffLimitPerIndex"] if indexed else spec["backoffLimit"]
        done, bad, active = set(), set(), 0
        for index in range(spec["completions"]) if indexed else (None,):
            tries = [
                pod
                for pod in of
                if pod["metadata"]["annotations"].get(INDEX) == (None if index is None else str(index))
            ]
            phases = [pod["status"]["phase"] for pod in tries]
            if "Succeeded" in phases:
                done.add(index)
            elif phases.count("Failed") > limit:
                bad.add(index)
            elif phases and phases[-1] in ("Pending", "Running"):
                active += 1
            elif not spec.get("suspend") and active < spec.get("parallelism", 1):
                active += 1
                self._start(job, index, len(tries))
        job["status"] |= {"active": active, "succeeded": len(done), "failed": len(bad)}
        if indexed:
            job["status"] |= {"completedIndexes": _ranges(done), "failedIndexes": _ranges(bad)}
        if not active and not spec.get("suspend") and len(done) + len(bad) == (spec["completions"] if indexed else 1):
            condition = {"type": "Failed" if bad else "Complete", "status": "True", "lastTransitionTime": _now()}
            if bad:
                condition |= {"reason": "FailedIndexes" if indexed else "BackoffLimitExceeded", "message": "has failed"}
            else:
                job["status"]["completionTime"] = _now()
            job["status"]["conditions"] = [condition]
        about.setdefault("labels", {})
        self._note("MODIFIED", "jobs", job)

    def _start(self, job: Object, index: int | None, tried: int) -> None:
        about, template = job["metadata"], job["spec"]["template"]
        name = f"{about['name']}-{'' if index is None else f'{index}-'}{tried}"
        pod = {
            "metadata": {
                "name": name,
                "namespace": about["namespace"],
                "labels": {**template["metadata"]["labels"], "job-name": about["name"]},
                "annotations": {} if index is None else {INDEX: str(index)},
                "creationTimestamp": _now(),
            },
            "spec": copy.deepcopy(template["spec"]),
            "status": {"phase": "Pending"},
        }
        self.kept["pods"][f"{about['namespace']}/{name}"] = pod
        self._note("ADDED", "pods", pod)
        self._later(self._run(job, pod, f"{about['namespace']}/{name}", index))

    async def _run(self, job: Object, pod: Object, ident: str, index: int | None) -> None:
        if self.unschedulable:
            pod["status"]["conditions"] = [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": self.unschedulable}
            ]
            self._note("MODIFIED", "pods", pod)
            return
        await self.holds_pods.wait()
        if ident not in self.kept["pods"] or "deletionTimestamp" in pod["metadata"]:
            return
        container, began = pod["spec"]["containers"][0], _now()
        pod["spec"]["nodeName"] = "worker1"
        pod["status"] = {"phase": "Running", "containerStatuses": [_container({"running": {"startedAt": began}})]}
        self._note("MODIFIED", "pods", pod)
        folder = Path(tempfile.mkdtemp(dir=self.directory))
        env = {one["name"]: one["value"] for one in container.get("env", ())}
        env |= {"PATH": os.environ["PATH"]} | ({} if index is None else {"JOB_COMPLETION_INDEX": str(index)})
        process = await asyncio.create_subprocess_exec(
            *container["command"], cwd=folder, env=env, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        self._processes[ident] = process
        assert process.stdout is not None
        reason = ""
        try:
            async with asyncio.timeout(pod["spec"].get("activeDeadlineSeconds")):
                while piece := await process.stdout.read(65_536):
                    self._logs[ident] = self._logs.get(ident, b"") + piece
                code = await process.wait()
        except TimeoutError:
            reason = "DeadlineExceeded"
            os.killpg(process.pid, 9)
            code = await process.wait()
        shutil.rmtree(folder, ignore_errors=True)
        self._processes.pop(ident, None)
        if "deletionTimestamp" in pod["metadata"]:
            self.kept["pods"].pop(ident, None)
            self._note("DELETED", "pods", pod)
            return
        if pod["status"].get("reason") == "Evicted":
            return
        status = 128 - code if code < 0 else code
        ended = {
            "exitCode": status,
            "startedAt": began,
            "finishedAt": _now(),
            "reason": "Error" if status else "Completed",
        }
        pod["status"] = {
            "phase": "Failed" if status else "Succeeded", "containerStatuses": [_container({"terminated": ended})],
            **({"reason": reason} if reason else {}),
        }  # fmt: skip
        self._note("MODIFIED", "pods", pod)
        self._settle(self._owner(pod))

    def _delete(self, job: Object, ident: str) -> None:
        del self.kept["jobs"][ident]
        self._note("DELETED", "jobs", job)
        for name, pod in list(self.kept["pods"].items()):
            if pod["metadata"]["labels"]["job-name"] == job["metadata"]["name"]:
                pod["metadata"]["deletionTimestamp"] = _now()
                if (process := self._processes.get(name)) is not None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, 15)
                else:
                    del self.kept["pods"][name]
                    self._note("DELETED", "pods", pod)


def _selected(request: web.Request, one: Object) -> bool:
    wanted = request.query.get("labelSelector", "")
    labels = one["metadata"].get("labels", {})
    return all(
        labels.get(name) == value for name, _, value in (part.partition("=") for part in wanted.split(",") if part)
    )


def _container(state: Object) -> Object:
    return {"name": "job", "image": "i", "imageID": "", "ready": False, "restartCount": 0, "state": state}


def _ranges(found: set[Any]) -> str:
    return ",".join(map(str, sorted(found)))


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _status(code: int, reason: str, message: str) -> web.Response:
    told = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    return web.json_response(told, status=code)


async def main(namespace: str) -> None:
    """Be one until somebody ends it."""
    with tempfile.TemporaryDirectory(prefix="kubernetes-") as directory:
        async with FakeKubernetes(Path(directory), namespace).running() as cluster:
            authority = base64.b64encode(cluster.ca.encode()).decode()
            told = {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
                "clusters": [
                    {"name": "k", "cluster": {"server": cluster.server, "certificate-authority-data": authority}}
                ],
                "users": [{"name": "u", "user": {"token": TOKEN}}],
            }
            print(json.dumps(told), flush=True)
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
