"""Runs one playbook by ansible-runner, in a process of its own (``python -m`` this module): what somebody else wrote is
run here, without the service's rights. A question on standard input, the answer on standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

_MOST_WORDS = 500


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be run. ``folder`` is ours alone, and goes afterwards."""

    folder: str
    files: Mapping[str, bytes]
    """Path → content, of the whole repository."""
    playbook: str
    inventory: Mapping[str, Any]
    vars: Mapping[str, str]
    forks: int
    seconds: int
    key: str = ""
    """The private key for ssh: given to an agent, and never written to a file."""
    ssh_config: str = ""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. ``trouble``: nothing was run."""

    failed: Mapping[str, str]
    """Node → why."""
    trouble: str = ""


def run(question: Question) -> Answer:
    """Run it."""
    from ansible_runner import interface

    private = Path(question.folder)
    project = private / "project"
    for path, data in question.files.items():
        file = project / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    failed: dict[str, str] = {}
    stats: dict[str, Any] = {}

    def heard(event: dict[str, Any]) -> bool:
        about = event.get("event_data", {})
        if event.get("event") == "playbook_on_stats":
            stats.update(about)
        if event.get("event") in ("runner_on_failed", "runner_on_unreachable") and not about.get("ignore_errors"):
            result = about.get("res") or {}
            task = about.get("task", "")
            words = "its result is not shown (no_log)" if result.get("censored") else str(result.get("msg", "failed"))
            failed[about["host"]] = f"{task}: {words}"[:_MOST_WORDS]
        return False  # nothing of it is written to a file

    ssh = f"-F {question.ssh_config} " if question.ssh_config else ""
    done = interface.run(
        private_data_dir=str(private),
        playbook=question.playbook,
        inventory=question.inventory,
        extravars=dict(question.vars),
        forks=question.forks,
        ssh_key=question.key or None,
        quiet=True,
        event_handler=heard,
        envvars={
            "ANSIBLE_HOST_KEY_CHECKING": "True",
            "ANSIBLE_SSH_ARGS": f"{ssh}-o ControlMaster=no -o BatchMode=yes",
            "ANSIBLE_RETRY_FILES_ENABLED": "False",
            "ANSIBLE_HOME": str(private / "home"),
            "ANSIBLE_LOCAL_TEMP": str(private / "tmp"),
        },
        settings={"job_timeout": question.seconds, "idle_timeout": question.seconds, "suppress_ansible_output": True},
    )
    if not stats:
        return Answer(failed={}, trouble=f"{done.status}: {_last_words(done)}")
    for kind, words in (("failures", "a task failed"), ("dark", "cannot be reached")):
        for host in stats.get(kind, {}):
            failed.setdefault(host, words)
    broken = {*stats.get("failures", {}), *stats.get("dark", {})}
    return Answer(failed={host: why for host, why in failed.items() if host in broken})


def _last_words(done: Any) -> str:
    try:
        lines = [line.strip() for line in done.stdout.read().splitlines() if line.strip()]
    except (OSError, ValueError, AttributeError):
        lines = []
    said = [line for line in lines if line.startswith(("ERROR", "[ERROR]", "fatal"))] or lines
    return (said[0] if said else "ansible-playbook gives no reason")[:_MOST_WORDS]


if __name__ == "__main__":
    os.umask(0o077)
    asked = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Question)
    # Whatever a library prints is not the answer.
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    answer.write(msgspec.json.encode(run(asked)))
    answer.close()
