"""A job as a Kubernetes Job (``batch/v1``): pure.

One container, which runs the job's script as its account, and never as root. An array is an indexed Job. What has no
place in a Job is refused in words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from strata.core.errors import BadRequest
from strata.schedulers import abilities
from strata.schedulers.jobs import APART_FOLDER, Ability, Work
from strata.schedulers.kubernetes.site import LABEL, NAME, KubernetesSite
from strata.schedulers.runner import Account
from strata.schedulers.scripts import whole

KIND = "Kubernetes"
ABILITY = Ability(
    nodes=False,
    after=frozenset(),
    licences=False,
    reservation=False,
    stdin=False,
    output=False,
    queues=False,
)
"""A Job is one pod at a time, for each of its tasks: MPI over several nodes, and jobs that wait for others, are other
operators' business. It keeps what a job prints itself."""
MANAGED = "app.kubernetes.io/managed-by=strata"
"""Selects what is ours."""
KEY, ACCOUNT, PROJECT = "strata/key", "strata/account", "strata/project"
"""Labels of a job and its pods."""
FIRST, STEP = "strata/array-first", "strata/array-step"
"""Annotations of an array."""
CONTAINER = "job"
_MOST_SCRIPT = 120_000
"""Bytes: what Linux takes as one word of a command."""
_LABEL, _NAME = re.compile(rf"{LABEL}\Z"), re.compile(rf"{NAME}\Z")
_HOLES = re.compile(r"\{([^}]*)\}")
_NATIVE = re.compile(r"(?P<what>node|label)\.(?P<key>([a-z0-9.-]+/)?[A-Za-z0-9_.-]{1,63})=(?P<value>.*)\Z")
_PRIORITY = "priorityClassName="
_OURS = ("strata/", "app.kubernetes.io/managed-by", "batch.kubernetes.io/", "kubernetes.io/", "job-name")


def name_of(key: str) -> str:
    """What a job is called: the same however often it is sent, so that it is there once."""
    return f"strata-{key}"


def namespace(site: KubernetesSite, work: Work) -> str:
    """Where the job goes, by the site's rule."""
    values = {"account": work.account, "project": work.project}

    def fill(hole: re.Match[str]) -> str:
        if hole[1] not in values:
            raise BadRequest(f"{hole[0]} is not {{account}} or {{project}}", where="namespace")
        found = values[hole[1]]
        if found is None:
            told = "jobs of this Kubernetes go to the namespace of their project"
            raise BadRequest(told, where="project", hint="name a project")
        return found

    found = _HOLES.sub(fill, site.namespace)
    if not _NAME.match(found):
        told = f"{found[:80]!r} is no name of a namespace (lower-case letters, digits and -, 63 at most)"
        raise BadRequest(told, where="namespace", hint="another rule for the target, or another account or project")
    return found


def build(site: KubernetesSite, work: Work, account: Account) -> tuple[str, dict[str, Any]]:
    """The namespace, and the Job."""
    abilities.check(ABILITY, work, KIND)
    if account.uid == 0 or account.gid == 0:
        raise BadRequest("jobs cannot run as root", where="account")
    labels = _labels(work)
    array = work.array
    index = f"$(({array.first} + JOB_COMPLETION_INDEX * {array.step}))" if array is not None else ""
    script = whole(work, index)
    if len(script.encode()) > _MOST_SCRIPT:
        raise BadRequest(f"{KIND} takes scripts of {_MOST_SCRIPT} bytes at most", where="script")
    native = _native(work)
    spec: dict[str, Any] = {
        "backoffLimit": work.retries,
        "ttlSecondsAfterFinished": site.keep,
        "suspend": work.held,
        "template": {
            "metadata": {"labels": {**native["label"], **labels}},
            "spec": _pod(site, work, account, script, native),
        },
    }
    annotations = {}
    if array is not None:
        count = len(array.indices)
        # By index: a task that fails does not end the others.
        spec |= {
            "completionMode": "Indexed",
            "completions": count,
            "parallelism": min(array.at_once or count, count),
            "backoffLimitPerIndex": work.retries,
            "backoffLimit": count * (work.retries + 1),
        }
        annotations = {FIRST: str(array.first), STEP: str(array.step)}
    made = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name_of(work.key),
            "labels": {**native["label"], **labels},
            "annotations": {**annotations, "strata/name": work.name},
        },
        "spec": spec,
    }
    return namespace(site, work), made


def _labels(work: Work) -> dict[str, str]:
    found = {"app.kubernetes.io/managed-by": "strata", KEY: work.key, ACCOUNT: work.account}
    if work.project is not None:
        found[PROJECT] = work.project
    for field, key in (("key", KEY), ("account", ACCOUNT), ("project", PROJECT)):
        if not _LABEL.match(found.get(key, "x")):
            raise BadRequest(f"{found[key][:60]!r} is no label that {KIND} takes", where=field)
    return found


def _pod(site: KubernetesSite, work: Work, account: Account, script: str, native: Mapping[str, Any]) -> dict[str, Any]:
    image = work.image or site.image
    if not image:
        told = f"{KIND} runs jobs in images, and this target has none for jobs that bring none"
        raise BadRequest(told, where="container", hint="name an image: docker://HOST/NAME:TAG")
    workdir = work.workdir or APART_FOLDER
    if work.workdir and not any(f"{workdir}/".startswith(f"{place.rstrip('/')}/") for place in site.claims):
        places = ", ".join(sorted(site.claims)) or "none"
        told = f"{workdir[:200]} is in no folder that jobs of this target see ({places})"
        raise BadRequest(told, where="workdir")
    amounts, selected = _amounts(site, work)
    mounts = [{"name": "own", "mountPath": APART_FOLDER}]
    volumes: list[dict[str, Any]] = [{"name": "own", "emptyDir": {}}]
    for number, (place, claim) in enumerate(sorted(site.claims.items())):
        mounts.append({"name": f"claim{number}", "mountPath": place})
        volumes.append({"name": f"claim{number}", "persistentVolumeClaim": {"claimName": claim}})
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        # What runs here is somebody's program: it gets no say in the cluster.
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsUser": account.uid,
            "runAsGroup": account.gid,
            "fsGroup": account.gid,
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": CONTAINER,
                "image": image,
                "command": ["/bin/sh", "-c", script],
                "workingDir": workdir,
                "env": [{"name": "HOME", "value": workdir}, {"name": "USER", "value": account.name}],
                "resources": {"requests": amounts, "limits": amounts},
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                "volumeMounts": mounts,
            }
        ],
        "volumes": volumes,
    }
    if work.resources.time is not None:
        # Of the pod: of the Job, it would count what the job waits for.
        pod["activeDeadlineSeconds"] = work.resources.time
    if selected or native["node"]:
        pod["nodeSelector"] = {**native["node"], **selected}
    if native["priority"]:
        pod["priorityClassName"] = native["priority"]
    return pod


def _amounts(site: KubernetesSite, work: Work) -> tuple[dict[str, str], Mapping[str, str]]:
    """What the container gets, and labels of nodes that have it."""
    needs = work.resources
    found = {"cpu": str(needs.tasks * needs.cores)}
    if needs.memory is not None:
        found["memory"] = f"{needs.memory}Mi"
    if needs.accelerators is None:
        return found, {}
    kind = needs.accelerators.type or ""
    known = site.accelerators.get(kind)
    if known is None:
        types = ", ".join(sorted(filter(None, site.accelerators))) or "none"
        told = f"this target has no accelerators of type {kind}" if kind else "this target has no accelerators"
        raise BadRequest(told, where="resources.accelerators.type", hint=f"types there: {types}")
    found[known.resource] = str(needs.accelerators.count)
    return found, known.labels


def _native(work: Work) -> dict[str, Any]:
    """``node.KEY=VALUE``, ``label.KEY=VALUE``, ``priorityClassName=NAME``: no more, as the rest of a pod says who it
    is and what it may reach."""
    found: dict[str, Any] = {"node": {}, "label": {}, "priority": ""}
    for line in work.native:
        said = _NATIVE.match(line)
        if line.startswith(_PRIORITY) and _NAME.match(line.removeprefix(_PRIORITY)):
            found["priority"] = line.removeprefix(_PRIORITY)
        elif said is None or not _LABEL.match(said["value"]):
            raise BadRequest(
                f"not an option that Strata hands on: {line[:60]!r}",
                where="native",
                hint="node.KEY=VALUE, label.KEY=VALUE or priorityClassName=NAME",
            )
        elif said["what"] == "label" and said["key"].startswith(_OURS):
            raise BadRequest(f"{said['key'][:60]} is set by Strata", where="native", hint="leave it out")
        else:
            found[said["what"]][said["key"]] = said["value"]
    return found
