"""Firmware of a simulated node: the inventory, updates (fetched or pushed) and the tasks that carry them out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from strata.virtual.bmc.http import Reply
from strata.virtual.redfish.body import (
    ODATA,
    OK,
    ROOT,
    Json,
    collection,
    encode,
    link,
    missing,
    only,
    read_json,
    refuse,
    resource,
)
from strata.virtual.redfish.router import Call, Deeds, Views
from strata.virtual.redfish.updates import Task

if TYPE_CHECKING:
    from strata.virtual.redfish.node import NodeBmc

SERVICE = f"{ROOT}/UpdateService"
INVENTORY = f"{SERVICE}/FirmwareInventory"
TASKS = f"{ROOT}/TaskService/Tasks"
MONITORS = f"{ROOT}/TaskService/TaskMonitors"
APPLY_TIMES = ["Immediate", "OnReset"]
_SUPPORT = {"@odata.type": "#Settings.v1_3_5.OperationApplyTimeSupport", "SupportedValues": APPLY_TIMES}


def _service(bmc: NodeBmc, call: Call) -> Json:
    simple = {
        "target": f"{SERVICE}/Actions/UpdateService.SimpleUpdate",
        "TransferProtocol@Redfish.AllowableValues": ["HTTP", "HTTPS"],
        "@Redfish.OperationApplyTimeSupport": _SUPPORT,
    }
    return resource(
        call.path,
        "UpdateService.v1_14_0",
        "Updates",
        ServiceEnabled=True,
        Status=OK,
        FirmwareInventory=link(INVENTORY),
        MultipartHttpPushUri=f"{SERVICE}/upload",
        MaxImageSizeBytes=32 << 20,
        Actions={"#UpdateService.SimpleUpdate": simple},
        **{"MultipartHttpPushUri@Redfish.OperationApplyTimeSupport": _SUPPORT},
    )


def _inventory(bmc: NodeBmc, call: Call) -> Json:
    return collection(call.path, "SoftwareInventory", bmc.updates.versions(call.now))


def _firmware(bmc: NodeBmc, call: Call) -> Json | None:
    name = call.ids[0]
    version = bmc.updates.versions(call.now).get(name)
    if version is None:
        return None
    return resource(
        call.path,
        "SoftwareInventory.v1_10_0",
        f"{name} firmware",
        SoftwareId=name,
        Version=version,
        Updateable=name != "CPLD",
        Status=OK,
        RelatedItem=[link(_where(name))],
    )


def _where(name: str) -> str:
    if name.startswith("GPU"):
        return f"{ROOT}/Systems/1/Processors/{name}"
    places = {"BMC": f"{ROOT}/Managers/1", "NIC1": f"{ROOT}/Chassis/1/NetworkAdapters/NIC1"}
    return places.get(name, f"{ROOT}/Systems/1")


def _simple_update(bmc: NodeBmc, call: Call) -> Reply:
    allowed = {
        "ImageURI": (str,),
        "TransferProtocol": (str,),
        "Targets": (list,),
        "Username": (str,),
        "Password": (str,),
        "@Redfish.OperationApplyTime": (str,),
    }
    body = only(read_json(call.request.body), **allowed)
    image = body.get("ImageURI")
    if not isinstance(image, str) or not image:
        refuse(400, "ActionParameterMissing", "The action needs the parameter ImageURI.")
    return _begin(bmc, call, image, body)


def _push(bmc: NodeBmc, call: Call) -> Reply:
    kind = re.search(r'boundary="?([^";]+)"?', call.request.headers.get("content-type", ""))
    if not call.request.headers.get("content-type", "").startswith("multipart/form-data") or kind is None:
        refuse(415, "GeneralError", "An update is pushed as multipart/form-data.")
    parts = dict(_form_parts(call.request.body, kind[1].encode()))
    if "UpdateParameters" not in parts or "UpdateFile" not in parts:
        refuse(400, "ActionParameterMissing", "The parts UpdateParameters and UpdateFile are needed.")
    image, data = parts["UpdateFile"]
    if not data:
        refuse(400, "ActionParameterValueFormatError", "The image is empty.")
    allowed = {"Targets": (list,), "@Redfish.OperationApplyTime": (str,), "ForceUpdate": (bool,)}
    return _begin(bmc, call, image, dict(only(read_json(parts["UpdateParameters"][1]), **allowed)))


def _form_parts(body: bytes, boundary: bytes) -> list[tuple[str, tuple[str, bytes]]]:
    """The parts of a form: name → file name, content."""
    found = []
    for part in (b"\r\n" + body).split(b"\r\n--" + boundary)[1:-1]:
        head, _, content = part.partition(b"\r\n\r\n")
        text = head.decode("latin-1")
        name, file = (re.search(rf'[; ]{word}="([^"]*)"', text) for word in ("name", "filename"))
        found.append((name[1] if name else "", (file[1] if file else "", content)))
    return found


def _begin(bmc: NodeBmc, call: Call, image: str, body: msgspec.Raw | object) -> Reply:
    wanted = body if isinstance(body, dict) else {}
    versions = bmc.updates.versions(call.now)
    targets = [str(target).rpartition("/")[2] for target in wanted.get("Targets") or ()]
    if any(target not in versions or target == "CPLD" for target in targets):
        refuse(400, "ActionParameterValueNotInList", f"Targets are below {INVENTORY}, and CPLD cannot be updated.")
    when = wanted.get("@Redfish.OperationApplyTime", "Immediate")
    if when not in APPLY_TIMES:
        refuse(400, "ActionParameterValueNotInList", f"It applies {' or '.join(APPLY_TIMES)}.")
    task = bmc.updates.begin(image, targets, call.now, at_start=when == "OnReset")
    return _accepted(task, call.now)


def _accepted(task: Task, now: float) -> Reply:
    body = encode(_task_body(f"{TASKS}/{task.id}", task, now))
    return Reply(202, body, (("Location", f"{MONITORS}/{task.id}"), ("Retry-After", "1"), *ODATA))


def _task_service(bmc: NodeBmc, call: Call) -> Json:
    return resource(
        call.path,
        "TaskService.v1_2_0",
        "Tasks",
        ServiceEnabled=True,
        Status=OK,
        DateTime=bmc.site.date(call.now),
        CompletedTaskOverWritePolicy="Oldest",
        Tasks=link(TASKS),
    )


def _tasks(bmc: NodeBmc, call: Call) -> Json:
    return collection(call.path, "Task", bmc.updates.tasks)


def _task(bmc: NodeBmc, call: Call) -> Json | None:
    found = bmc.updates.tasks.get(call.ids[0])
    return None if found is None else _task_body(call.path, found, call.now)


def _task_body(path: str, task: Task, now: float) -> Json:
    state = task.state(now)
    texts = {
        "Completed": ("Update.1.0.UpdateSuccessful", f"{', '.join(task.targets)} updated to {task.version}.", "OK"),
        "Exception": ("Update.1.0.ApplyFailed", f"The image for {', '.join(task.targets)} is not valid.", "Critical"),
    }
    messages = []
    if state in texts:
        message_id, text, severity = texts[state]
        messages.append({"MessageId": message_id, "Message": text, "MessageSeverity": severity})
    return resource(
        path,
        "Task.v1_7_1",
        "Firmware update",
        TaskState=state,
        TaskStatus="Critical" if state == "Exception" else "OK",
        PercentComplete=task.percent(now),
        TaskMonitor=f"{MONITORS}/{task.id}",
        Messages=messages,
    )


def _monitor(bmc: NodeBmc, call: Call) -> Reply:
    found = bmc.updates.tasks.get(call.ids[0])
    if found is None:
        return missing(call.path)
    if found.state(call.now) in ("Pending", "Running"):
        return _accepted(found, call.now)
    bmc.updates.versions(call.now)
    return Reply(200, encode(_task_body(f"{TASKS}/{found.id}", found, call.now)), ODATA)


VIEWS: Views[NodeBmc] = {
    "UpdateService": _service,
    "UpdateService/FirmwareInventory": _inventory,
    "UpdateService/FirmwareInventory/*": _firmware,
    "TaskService": _task_service,
    "TaskService/Tasks": _tasks,
    "TaskService/Tasks/*": _task,
}

DEEDS: Deeds[NodeBmc] = {
    "POST UpdateService/Actions/UpdateService.SimpleUpdate": _simple_update,
    "POST UpdateService/upload": _push,
    "GET TaskService/TaskMonitors/*": _monitor,
}
