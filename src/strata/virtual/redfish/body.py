"""What every simulated resource is made of: bodies, links, collections, actions, errors, ETags. Knows no resource."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import NoReturn

import msgspec

from strata.virtual.bmc.http import Reply

ROOT = "/redfish/v1"

Json = dict[str, object]

encode = msgspec.json.Encoder().encode
ODATA = (("OData-Version", "4.0"),)
OK: Json = {"State": "Enabled", "Health": "OK"}


class Refusal(Exception):
    """Ends a request with an error reply."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply


def resource(path: str, kind: str, **more: object) -> Json:
    """A resource of type ``kind`` (``Chassis.v1_21_0``); its id, and its name unless it is given, is the last part of
    its path."""
    schema, ident = kind.partition(".")[0], path.rpartition("/")[2]
    return {"@odata.id": path, "@odata.type": f"#{kind}.{schema}", "Id": ident, "Name": ident} | more


def collection(path: str, kind: str, members: Iterable[str]) -> Json:
    """A collection of resources of the schema ``kind``; ``members`` are ids or whole paths."""
    found = [link(member if member.startswith("/") else f"{path}/{member}") for member in members]
    return {
        "@odata.id": path,
        "@odata.type": f"#{kind}Collection.{kind}Collection",
        "Name": f"{kind} collection",
        "Members@odata.count": len(found),
        "Members": found,
    }


def link(path: str) -> dict[str, str]:
    """A link to the resource at ``path``."""
    return {"@odata.id": path}


def links(*paths: str) -> list[dict[str, str]]:
    """Links to several."""
    return [link(path) for path in paths]


def action(path: str, name: str, **allowed: Iterable[str]) -> Json:
    """An action of the resource at ``path``, and the values that its parameters may have."""
    values = {f"{parameter}@Redfish.AllowableValues": list(known) for parameter, known in allowed.items()}
    return {f"#{name}": {"target": f"{path}/Actions/{name}"} | values}


def numbered(what: str, count: int) -> list[str]:
    """``CPU1``, ``CPU2``..."""
    return [f"{what}{i}" for i in range(1, count + 1)]


def slot(kind: str, label: str) -> Json:
    """A location as it is printed on the sheet metal."""
    return {"PartLocation": {"ServiceLabel": label, "LocationType": kind}}


def error(status: int, message: str, text: str, headers: tuple[tuple[str, str], ...] = ()) -> Reply:
    """A Redfish error reply."""
    info = {
        "@odata.type": "#Message.v1_1_2.Message",
        "MessageId": f"Base.1.16.{message}",
        "Message": text,
        "Severity": "Critical",
        "Resolution": "None.",
    }
    body = {"error": {"code": f"Base.1.16.{message}", "message": text, "@Message.ExtendedInfo": [info]}}
    return Reply(status, encode(body), (*headers, *ODATA))


def refuse(status: int, message: str, text: str) -> NoReturn:
    """End the request with this error."""
    raise Refusal(error(status, message, text))


def not_allowed(allow: str) -> Reply:
    """405, with what is allowed."""
    return error(405, "OperationNotAllowed", f"Allowed here: {allow}.", (("Allow", allow),))


def missing(path: str) -> Reply:
    """404."""
    return error(404, "ResourceMissingAtURI", f"There is no resource at {path}.")


def done(*headers: tuple[str, str]) -> Reply:
    """204: as asked."""
    return Reply(204, headers=(*headers, *ODATA))


def created(body: Json, *headers: tuple[str, str]) -> Reply:
    """201 with the new resource and where it is."""
    return Reply(201, encode(body), (("Location", str(body["@odata.id"])), *headers, *ODATA))


def etag(body: bytes) -> str:
    return f'W/"{blake2b(body, digest_size=8).hexdigest()}"'


def read_json(body: bytes) -> Mapping[str, object]:
    """The JSON object that a request carries."""
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError:
        found = None
    if not isinstance(found, dict):
        refuse(400, "MalformedJSON", "The body is not a JSON object.")
    return found


def only(body: Mapping[str, object], **allowed: tuple[type, ...]) -> Mapping[str, object]:
    """``body`` if it has no other properties than ``allowed``, each of one of its types (or null)."""
    for name, value in body.items():
        if name not in allowed:
            refuse(400, "PropertyUnknown", f"{name[:80]} cannot be changed; {', '.join(allowed)} can.")
        if value is not None and type(value) not in allowed[name]:
            refuse(400, "PropertyValueTypeError", f"{name} has a value of the wrong type.")
    return body


def one_of(body: Mapping[str, object], name: str, allowed: Iterable[str]) -> str:
    """The parameter ``name``, which must be one of ``allowed``."""
    value = body.get(name)
    if value is None:
        refuse(400, "ActionParameterMissing", f"The action needs the parameter {name}.")
    allowed = tuple(allowed)
    if not isinstance(value, str) or value not in allowed:
        refuse(400, "ActionParameterValueNotInList", f"{name} is one of {', '.join(allowed)}.")
    return value
