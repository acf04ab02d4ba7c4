"""Firmware of a simulated node: the inventory, updates (fetched or pushed), and the tasks that bring them in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from strata.virtual.bmc.http import Reply
from strata.virtual.redfish.body import ODATA, OK, ROOT, Json, encode, link, missing, only, read_json, refuse, resource
from strata.virtual.redfish.router import Call, Tree

if TYPE_CHECKING:
    from strata.virtual.redfish.node import NodeBmc

SERVICE = f"{ROOT}/UpdateService"
INVENTORY = f"{SERVICE}/FirmwareInventory"
TASKS = f"{ROOT}/TaskService/Tasks"
MONITORS = f"{ROOT}/TaskService/TaskMonitors"
APPLY_TIME, APPLY_TIMES = "@Redfish.OperationApplyTime", ["Immediate", "OnReset"]
_SUPPORT = {"@odata.type": "#Settings.v1_3_5.OperationApplyTimeSupport", "SupportedValues": APPLY_TIMES}
_TASK = "Task.v1_7_1"
FIRMWARE = {"BIOS": "2.1.0", "BMC": "1.4.2", "NIC1": "28.36.1010", "CPLD": "0.9"}
"""Piece → the version that servers come with."""

TREE: Tree[NodeBmc] = Tree()


class Task(msgspec.Struct, kw_only=True):
    """Work on firmware. ``begun`` None: it waits for a restart of the node."""

    id: str
    targets: tuple[str, ...]
    version: str
    begun: float | None
    lasts: float
    fails: bool = False
    applied: bool = False

    def percent(self, now: float) -> int:
        if self.begun is None:
            return 0
        return 100 if now >= self.begun + self.lasts else int(100 * max(0.0, now - self.begun) / self.lasts)

    def state(self, now: float) -> str:
        """As Redfish calls it."""
        if self.begun is None:
            return "Pending"
        if self.percent(now) < 100:
            return "Running"
        return "Exception" if self.fails else "Completed"


class Updates:
    """The firmware of one node and its tasks."""

    def __init__(self, lasts: float, gpus: int) -> None:
        self.fail_next = False
        """The next update ends badly."""
        self.tasks: dict[str, Task] = {}
        self._lasts = lasts
        self._versions = FIRMWARE | {f"GPU{i + 1}": "96.00.5E.00.01" for i in range(gpus)}

    def versions(self, now: float) -> dict[str, str]:
        """Piece → version, with what has been finished by now."""
        for task in self.tasks.values():
            if not task.applied and task.state(now) == "Completed":
                task.applied = True
                self._versions |= dict.fromkeys(task.targets, task.version)
        return self._versions

    def begin(self, image: str, targets: Sequence[str], now: float, *, at_start: bool = False) -> Task:
        """Bring the image of that name in: at once, or when the node next starts."""
        found = re.search(r"\d+(?:\.\d+)+", image.rpartition("/")[2])
        task = Task(
            id=str(len(self.tasks) + 1),
            targets=tuple(targets) or ("BIOS",),
            version=found[0] if found else "9.9.9",
            begun=None if at_start else now,
            lasts=self._lasts,
            fails=self.fail_next,
        )
        self.fail_next = False
        self.tasks[task.id] = task
        return task

    def node_started(self, now: float) -> None:
        """The node starts: what waited for that begins."""
        for task in self.tasks.values():
            if task.begun is None:
                task.begun = now


@TREE.view("UpdateService", "UpdateService.v1_14_0")
def _service(bmc: NodeBmc, call: Call) -> Json:
    simple = {
        "target": f"{SERVICE}/Actions/UpdateService.SimpleUpdate",
        "TransferProtocol@Redfish.AllowableValues": ["HTTP", "HTTPS"],
        "@Redfish.OperationApplyTimeSupport": _SUPPORT,
    }
    return {
        "Name": "Updates",
        "ServiceEnabled": True,
        "Status": OK,
        "FirmwareInventory": link(INVENTORY),
        "MultipartHttpPushUri": f"{SERVICE}/upload",
        "MultipartHttpPushUri@Redfish.OperationApplyTimeSupport": _SUPPORT,
        "MaxImageSizeBytes": 32 << 20,
        "Actions": {"#UpdateService.SimpleUpdate": simple},
    }


@TREE.members(
    "UpdateService/FirmwareInventory", "SoftwareInventory.v1_10_0", lambda bmc, call: bmc.updates.versions(call.now)
)
def _firmware(bmc: NodeBmc, call: Call) -> Json:
    name = call.ids[0]
    return {
        "Name": f"{name} firmware",
        "SoftwareId": name,
        "Version": bmc.updates.versions(call.now)[name],
        "Updateable": name != "CPLD",
        "Status": OK,
        "RelatedItem": [link(_where(name))],
    }


def _where(name: str) -> str:
    if name.startswith("GPU"):
        return f"{ROOT}/Systems/1/Processors/{name}"
    places = {"BMC": f"{ROOT}/Managers/1", "NIC1": f"{ROOT}/Chassis/1/NetworkAdapters/NIC1"}
    return places.get(name, f"{ROOT}/Systems/1")


@TREE.handles("POST UpdateService/Actions/UpdateService.SimpleUpdate")
def _simple_update(bmc: NodeBmc, call: Call) -> Reply:
    texts = dict.fromkeys(("ImageURI", "TransferProtocol", "Username", "Password", APPLY_TIME), (str,))
    body = only(read_json(call.request.body), **texts, Targets=(list,))
    image = body.get("ImageURI")
    if not isinstance(image, str) or not image:
        refuse(400, "ActionParameterMissing", "The action needs the parameter ImageURI.")
    return _begin(bmc, call, image, body)


@TREE.handles("POST UpdateService/upload")
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
    allowed = {"Targets": (list,), APPLY_TIME: (str,), "ForceUpdate": (bool,)}
    return _begin(bmc, call, image, only(read_json(parts["UpdateParameters"][1]), **allowed))


def _form_parts(body: bytes, boundary: bytes) -> list[tuple[str, tuple[str, bytes]]]:
    """The parts of a form: name → file name, content."""
    found = []
    for part in (b"\r\n" + body).split(b"\r\n--" + boundary)[1:-1]:
        head, _, content = part.partition(b"\r\n\r\n")
        text = head.decode("latin-1")
        name, file = (re.search(rf'[; ]{word}="([^"]*)"', text) for word in ("name", "filename"))
        found.append((name[1] if name else "", (file[1] if file else "", content)))
    return found


def _begin(bmc: NodeBmc, call: Call, image: str, wanted: Mapping[str, object]) -> Reply:
    versions = bmc.updates.versions(call.now)
    given = wanted.get("Targets")
    targets = [str(target).rpartition("/")[2] for target in given] if isinstance(given, list) else []
    if any(target not in versions or target == "CPLD" for target in targets):
        refuse(400, "ActionParameterValueNotInList", f"Targets are below {INVENTORY}, and CPLD cannot be updated.")
    when = wanted.get(APPLY_TIME, "Immediate")
    if when not in APPLY_TIMES:
        refuse(400, "ActionParameterValueNotInList", f"It applies {' or '.join(APPLY_TIMES)}.")
    return _accepted(bmc.updates.begin(image, targets, call.now, at_start=when == "OnReset"), call.now)


def _accepted(task: Task, now: float) -> Reply:
    body = encode(resource(f"{TASKS}/{task.id}", _TASK, **_shown(task, now)))
    return Reply(202, body, (("Location", f"{MONITORS}/{task.id}"), ("Retry-After", "1"), *ODATA))


@TREE.view("TaskService", "TaskService.v1_2_0")
def _task_service(bmc: NodeBmc, call: Call) -> Json:
    return {
        "Name": "Tasks",
        "ServiceEnabled": True,
        "Status": OK,
        "DateTime": bmc.site.date(call.now),
        "CompletedTaskOverWritePolicy": "Oldest",
        "Tasks": link(TASKS),
    }


@TREE.members("TaskService/Tasks", _TASK, lambda bmc, call: bmc.updates.tasks)
def _task(bmc: NodeBmc, call: Call) -> Json:
    return _shown(bmc.updates.tasks[call.ids[0]], call.now)


def _shown(task: Task, now: float) -> Json:
    state, targets = task.state(now), ", ".join(task.targets)
    texts = {
        "Completed": ("Update.1.0.UpdateSuccessful", f"{targets} updated to {task.version}.", "OK"),
        "Exception": ("Update.1.0.ApplyFailed", f"The image for {targets} is not valid.", "Critical"),
    }
    messages = []
    if state in texts:
        messages.append(dict(zip(("MessageId", "Message", "MessageSeverity"), texts[state], strict=True)))
    return {
        "Name": "Firmware update",
        "TaskState": state,
        "TaskStatus": "Critical" if state == "Exception" else "OK",
        "PercentComplete": task.percent(now),
        "TaskMonitor": f"{MONITORS}/{task.id}",
        "Messages": messages,
    }


@TREE.handles("GET TaskService/TaskMonitors/*")
def _monitor(bmc: NodeBmc, call: Call) -> Reply:
    found = bmc.updates.tasks.get(call.ids[0])
    if found is None:
        return missing(call.path)
    reply = _accepted(found, call.now)
    if found.state(call.now) in ("Pending", "Running"):
        return reply
    bmc.updates.versions(call.now)
    return Reply(200, reply.body, ODATA)
