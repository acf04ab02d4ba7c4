"""A job as a Kubernetes Job, and what is read from what Kubernetes says. What is built is checked against the official
client's models."""

from __future__ import annotations

import base64
from typing import Any

import pytest
import yaml

from schedulers.test_job_scripts import work
from strata.core.errors import BadRequest
from strata.schedulers.jobs import Accelerators, Array, Resources, Work
from strata.schedulers.kubernetes import manifests, replies
from strata.schedulers.kubernetes.site import Accelerator, KubernetesSite
from strata.schedulers.runner import Account
from support.fake_kubernetes import unfit

ADA = Account(name="ada", uid=4711, gid=4712, home="/home/ada", shell="/bin/sh")
SITE = KubernetesSite(
    server="https://127.0.0.1:6443",
    namespace="jobs-{account}",
    image="registry.example/site:1",
    claims={"/lustre": "lustre"},
    accelerators={
        "": Accelerator(resource="nvidia.com/gpu"),
        "h200": Accelerator(resource="nvidia.com/gpu", labels={"nvidia.com/gpu.product": "H200"}),
    },
)


def asked(**more: Any) -> Work:
    return work(**{"account": "ada", "stdout": "", "workdir": "", **more})


def test_everything_that_is_asked_for_is_in_the_job_and_the_official_models_take_it() -> None:
    needs = Resources(
        tasks=2, cores=3, memory=512, time=61, accelerators=Accelerators(count=4, type="h200")
    )  # fmt: skip
    where, made = manifests.build(
        SITE,
        asked(
            resources=needs, array=Array(first=3, last=9, step=3, at_once=2), retries=2, held=True,
            workdir="/lustre/ada",
            project="physics", image="registry.example/own:2", native=("node.zone=a", "priorityClassName=urgent"),
        ),
        ADA,
    )  # fmt: skip
    assert unfit(made) == ""
    assert unfit({**made, "spec": {**made["spec"], "backofLimit": 1}}), "the models tell a field from a typo"
    assert where == "jobs-ada"
    spec, pod = made["spec"], made["spec"]["template"]["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 3, 2)
    assert (spec["backoffLimitPerIndex"], spec["suspend"]) == (2, True)
    assert pod["activeDeadlineSeconds"] == 61
    assert pod["nodeSelector"] == {"zone": "a", "nvidia.com/gpu.product": "H200"}
    assert pod["priorityClassName"] == "urgent"
    [container] = pod["containers"]
    assert container["image"] == "registry.example/own:2"
    assert container["resources"]["limits"] == {"cpu": "6", "memory": "512Mi", "nvidia.com/gpu": "4"}
    assert container["workingDir"] == "/lustre/ada"
    assert {"name": "claim0", "persistentVolumeClaim": {"claimName": "lustre"}} in pod["volumes"]
    assert made["metadata"]["labels"]["strata/project"] == "physics"


def test_a_pod_is_its_account_and_never_root_and_has_no_say_in_the_cluster() -> None:
    _, made = manifests.build(SITE, asked(), ADA)
    pod = made["spec"]["template"]["spec"]
    inside = pod["containers"][0]["securityContext"]
    assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsGroup"]) == (4711, 4712)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    assert inside == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    for root in (
        Account(name="r", uid=0, gid=1, home="/", shell=""),
        Account(name="r", uid=1, gid=0, home="/", shell=""),
    ):
        with pytest.raises(BadRequest, match="root"):
            manifests.build(SITE, asked(), root)


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"resources": Resources(nodes=2, tasks=2)}, "resources.nodes"),
        ({"resources": Resources(licences={"matlab": 1})}, "resources.licences"),
        ({"resources": Resources(power=300)}, "resources.power"),
        ({"resources": Resources(accelerators=Accelerators(count=1, type="mi300x"))}, "resources.accelerators.type"),
        ({"after": (("done", "jobs/strata-k"),)}, "after"),
        ({"queue": "main"}, "queue"),
        ({"reservation": "r"}, "reservation"),
        ({"stdin": "/x"}, "stdin"),
        ({"stdout": "/x"}, "stdout"),
        ({"stderr": "/x"}, "stderr"),
        ({"workdir": "/home/ada"}, "workdir"),
        ({"workdir": "/lustre2"}, "workdir"),
        ({"project": "a:b"}, "project"),
        ({"account": "ada_b"}, "namespace"),
        ({"script": "#!/bin/sh\n" + "x" * 130_000}, "script"),
        ({"native": ("hostNetwork=true",)}, "native"),
        ({"native": ("label.strata/key=other",)}, "native"),
        ({"native": ("node.zone=a b",)}, "native"),
    ],
)
def test_what_has_no_place_in_a_job_of_kubernetes_is_refused_in_words(more: dict[str, Any], field: str) -> None:
    with pytest.raises(BadRequest) as caught:
        manifests.build(SITE, asked(**more), ADA)
    assert caught.value.where == field
    assert len(caught.value.detail) > 15


def test_a_namespace_by_project_needs_a_project_and_an_image_has_to_come_from_somewhere() -> None:
    by_project = KubernetesSite(server="https://k", namespace="prj-{project}", image="i")
    assert manifests.build(by_project, asked(project="physics"), ADA)[0] == "prj-physics"
    with pytest.raises(BadRequest, match="namespace of their project"):
        manifests.build(by_project, asked(), ADA)
    with pytest.raises(BadRequest, match="that bring none"):
        manifests.build(KubernetesSite(server="https://k"), asked(), ADA)


def seen(job: dict[str, Any], *pods: dict[str, Any]) -> Any:
    about = {"namespace": "jobs", "labels": {"strata/key": "k1", "strata/account": "ada", "job-name": "strata-k1"}}
    told = {"metadata": {**about, "name": "strata-k1"}, "spec": {"backoffLimit": 0}, **job}
    read = [
        replies.read_pod({**pod, "metadata": {**about, "name": f"p{number}", **pod.get("metadata", {})}})
        for number, pod in enumerate(pods)
    ]
    return replies.seen([replies.read_job(told)], read)


def over(kind: str, reason: str = "") -> dict[str, Any]:
    return {
        "conditions": [{"type": kind, "status": "True", "reason": reason, "lastTransitionTime": "2026-11-16T15:45:31Z"}]
    }


def ended(code: int, *, why: str = "Error", **status: Any) -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": why, "startedAt": "2026-11-16T15:45:01Z"}}
    return {"status": {"phase": "Failed", "containerStatuses": [{"name": "job", "state": state}], **status}}


@pytest.mark.parametrize(
    ("job", "pod", "outcome", "status", "signal"),
    [
        (over("Complete"), ended(0), "done", 0, None),
        (over("Failed", "BackoffLimitExceeded"), ended(3), "failed", 3, None),
        (over("Failed", "BackoffLimitExceeded"), ended(137), "failed", 137, 9),
        (over("Failed", "BackoffLimitExceeded"), ended(137, why="OOMKilled"), "out-of-memory", None, None),
        (over("Failed", "BackoffLimitExceeded"), ended(137, reason="DeadlineExceeded"), "timed-out", None, None),
        (over("Failed", "DeadlineExceeded"), ended(143), "timed-out", None, None),
        (over("Failed"), {"status": {"phase": "Failed", "reason": "Evicted"}}, "node-failed", None, None),
        (
            over("Failed", "BackoffLimitExceeded"),
            ended(137, conditions=[{"type": "DisruptionTarget", "status": "True"}]),
            "node-failed", None, None,
        ),
    ],
)  # fmt: skip
def test_how_a_job_ended_is_told_by_its_job_and_why_by_its_last_pod(
    job: Any, pod: Any, outcome: str, status: int | None, signal: int | None
) -> None:
    [found] = seen({"status": job}, pod)
    assert (found.state, found.outcome, found.status, found.signal) == ("ended", outcome, status, signal)
    assert found.ended == 1794843931.0


@pytest.mark.parametrize(
    ("job", "pods", "state", "reason"),
    [
        ({"spec": {"suspend": True}}, [], "held", "held"),
        ({}, [], "waiting", "no pod"),
        (
            {},
            [{"status": {"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]}}],
            "waiting", "0/3 nodes",
        ),
        ({}, [{"spec": {"nodeName": "w1"}, "status": {"phase": "Pending"}}], "starting", ""),
        (
            {},
            [{"spec": {"nodeName": "w1"}, "status": {"phase": "Pending", "containerStatuses": [
                {"name": "job", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}]}}],
            "starting", "ImagePullBackOff: no such image",
        ),
        ({}, [{"status": {"phase": "Running"}}], "running", ""),
        ({"spec": {"backoffLimit": 1}}, [ended(3)], "waiting", "try 1 of 2 failed"),
        ({"spec": {"backoffLimit": 1}}, [ended(3), ended(3)], "ending", ""),
        ({}, [{"status": {"phase": "Running"}, "metadata": {"deletionTimestamp": "x"}}], "ending", ""),
        ({}, [{"status": {"phase": "Dreaming"}}], "unknown", ""),
        ({"status": over("Failed")}, [{"status": {"phase": "Running"}}], "running", ""),
    ],
)  # fmt: skip
def test_a_job_that_has_not_ended_says_how_it_is_and_why_it_waits(
    job: Any, pods: list[Any], state: str, reason: str
) -> None:
    [found] = seen(job, *pods)
    assert found.state == state
    assert reason in found.reason


def test_tasks_of_an_array_end_each_by_themselves_and_have_their_own_indices() -> None:
    told = {
        "spec": {"completionMode": "Indexed", "completions": 5, "backoffLimitPerIndex": 0},
        "status": {"completedIndexes": "0,2-3", "failedIndexes": "1"},
        "metadata": {
            "namespace": "jobs", "name": "strata-k1", "labels": {"strata/key": "k1"},
            "annotations": {"strata/array-first": "10", "strata/array-step": "2"},
        },
    }  # fmt: skip
    bad = {**ended(7), "metadata": {"annotations": {"batch.kubernetes.io/job-completion-index": "1"}}}
    found = seen(told, bad)
    assert [one.index for one in found] == [10, 12, 14, 16, 18]
    assert [one.outcome for one in found] == ["done", "failed", "done", "done", None]
    assert found[1].status == 7
    assert found[4].id == "jobs/strata-k1[4]"


def test_what_nobody_expects_from_an_api_server_does_not_break_the_reading() -> None:
    odd: list[Any] = [
        {},
        {"metadata": None, "status": [], "spec": 3},
        {"status": {"conditions": "x", "failedIndexes": 5}},
    ]
    for one in odd:
        assert replies.seen([replies.read_job(one)], [replies.read_pod(one)])[0].state == "unknown"


AUTHORITY = base64.b64encode(b"PEM").decode()


def test_a_kubeconfig_gives_server_authority_and_token_and_unchecked_tls_is_refused(tmp_path: Any) -> None:
    from click import UsageError

    from strata.jobs.targets.commands import _kubeconfig

    told: dict[str, Any] = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [
            {"name": "k", "cluster": {"server": "https://k:6443", "certificate-authority-data": AUTHORITY}}
        ],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }  # fmt: skip
    file = tmp_path / "config"
    file.write_text(yaml.safe_dump(told))
    assert _kubeconfig(file, None) == ({"server": "https://k:6443", "ca": "PEM"}, "secret")
    told["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = True
    file.write_text(yaml.safe_dump(told))
    with pytest.raises(UsageError, match="not followed"):
        _kubeconfig(file, None)
