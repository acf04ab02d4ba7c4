"""TaskService: Strata's operations as Redfish tasks. Cancelling one is deleting it."""

from __future__ import annotations

from collections.abc import Mapping

from strata.api.redfish.protocol.messages import own_message
from strata.api.redfish.protocol.route import ROOT, Call, Json, Reply, Routes, collection, link
from strata.api.redfish.protocol.schemas import resource
from strata.api.redfish.resources.forms import service, when
from strata.core.errors import Conflict
from strata.fleet.access.principal import Right
from strata.fleet.operations.records import Operation
from strata.fleet.operations.service import OperationService

_SERVICE = f"{ROOT}/TaskService"
_TASKS = f"{_SERVICE}/Tasks"
_MONITORS = f"{_SERVICE}/TaskMonitors"
_MOST = 1000
"""Tasks that are listed: the newest."""
_READ = Right("read", "operation")
_CANCEL = Right("delete", "operation")

_STATES: Mapping[str, tuple[str, str]] = {
    "pending": ("Pending", "OK"),
    "running": ("Running", "OK"),
    "done": ("Completed", "OK"),
    "failed": ("Exception", "Critical"),
    "cancelled": ("Cancelled", "Warning"),
}
_OVER = ("done", "failed", "cancelled")

ROUTES = Routes()


@ROUTES.get(_SERVICE, _READ)
async def _service(call: Call) -> Json:
    return service(
        _SERVICE,
        "Tasks",
        CompletedTaskOverWritePolicy="Oldest",
        LifeCycleEventOnTaskStateChange=False,
        Tasks=link(_TASKS),
    )


@ROUTES.get(_TASKS, _READ)
async def tasks(call: Call) -> Json:
    page = await call.of(OperationService).operations(call.who, _MOST, "")
    return collection(_TASKS, "Task", "Tasks", [f"{_TASKS}/{operation.id}" for operation in page.items])


@ROUTES.get(f"{_TASKS}/{{task}}", _READ)
async def task(call: Call) -> Json:
    return task_of(await call.of(OperationService).operation(call.who, call.params["task"]))


@ROUTES.get(f"{_MONITORS}/{{task}}", _READ)
async def monitor(call: Call) -> Reply:
    """The same for whoever waits for the end of an operation: 202 until it is over."""
    operation = await call.of(OperationService).operation(call.who, call.params["task"])
    return Reply(status=200, body=task_of(operation)) if operation.state in _OVER else accepted(operation)


@ROUTES.delete(f"{_TASKS}/{{task}}", _CANCEL)
@ROUTES.delete(f"{_MONITORS}/{{task}}", _CANCEL)
async def cancel(call: Call) -> Reply:
    try:
        await call.of(OperationService).cancel_operation(call.who, call.params["task"])
    except Conflict:
        # It is over, so there is nothing to stop; the record goes when it is old.
        raise Conflict("the task is over already; its record is removed when it is old") from None
    return Reply(status=204)


def accepted(operation: Operation) -> Reply:
    """The answer to a request that became an operation."""
    headers = {"Location": f"{_MONITORS}/{operation.id}", "Retry-After": "2"}
    return Reply(status=202, body=task_of(operation), headers=headers)


def task_of(operation: Operation) -> Json:
    """An operation as a task."""
    state, health = _STATES[operation.state]
    if operation.failed and health == "OK":
        health = "Warning"
    found: Json = resource(
        f"{_TASKS}/{operation.id}",
        "Task",
        f"{operation.kind} by {operation.author}",
        TaskState=state,
        TaskStatus=health,
        StartTime=when(operation.created),
        TaskMonitor=f"{_MONITORS}/{operation.id}",
        Messages=[
            own_message("DeviceError", f"{e.node}: {e.detail}" if e.node else e.detail) for e in operation.errors
        ],
    )
    if operation.total:
        found["PercentComplete"] = min(100, (operation.done + operation.failed) * 100 // operation.total)
    if operation.finished is not None:
        found["EndTime"] = when(operation.finished)
    return found
