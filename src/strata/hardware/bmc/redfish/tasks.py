"""Work that goes on inside a BMC: accepted with 202 and followed at its task monitor."""

from __future__ import annotations

from urllib.parse import urlsplit

from strata.core.errors import DeviceError, NotOffered
from strata.hardware.bmc.protocol import Task
from strata.hardware.bmc.redfish.client import Answer, Json, RedfishClient, Target
from strata.hardware.bmc.redfish.endpoint import items, path_of, text
from strata.hardware.bmc.redfish.sensors import number

FAILED_STATES = ("Exception", "Killed", "Cancelled", "Interrupted")

MOST_MESSAGES = 20


def begun(target: Target, answer: Answer) -> Task:
    """What became of a request: done, or under way. Accepted without a word on where to look is unknown."""
    if answer.status != 202:
        return _task("", answer.body) if "TaskState" in answer.body else Task(id="", state="done")
    path = path_of(target.bmc, urlsplit(answer.location).path) or path_of(target.bmc, answer.body)
    if not path:
        return Task(id="", state="unknown", messages=("accepted, and nothing was said of where to follow it",))
    return _task(path, answer.body) if "TaskState" in answer.body else Task(id=path, state="running")


async def read_task(client: RedfishClient, target: Target, task: str) -> Task:
    """How far it is. A monitor that is gone has been read to its end: what came of it must be looked at."""
    path = path_of(target.bmc, task)
    if not path:
        raise NotOffered("there is nothing to follow", node=target.bmc.base, hint="look at the effect instead")
    try:
        answer = await client.get(target.address, path)
    except NotOffered:
        return Task(id=task, state="unknown", messages=("the BMC knows nothing of it any more",))
    except DeviceError as wrong:
        if not wrong.reply or client.clock() < target.bmc.quiet_until:
            raise
        # A task monitor answers at last with what the request itself would have been answered.
        return Task(id=task, state="failed", messages=(str(wrong),))
    if "TaskState" in answer.body:
        return _task(task, answer.body)
    return Task(id=task, state="running" if answer.status == 202 else "done")


def _task(path: str, body: Json) -> Task:
    state, percent = text(body.get("TaskState")), number(body.get("PercentComplete"))
    messages = tuple(
        said for item in items(body, "Messages")[:MOST_MESSAGES] if (said := text(item.get("Message"), 500))
    )
    failed = state in FAILED_STATES or (state == "Completed" and body.get("TaskStatus") == "Critical")
    return Task(
        id=path,
        state="failed" if failed else "done" if state == "Completed" else "running" if state else "unknown",
        percent=int(percent) if percent is not None and 0 <= percent <= 100 else None,
        messages=messages,
    )
