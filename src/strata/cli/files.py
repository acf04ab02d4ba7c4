"""Files that people write: YAML documents (nodes, groups, desires) and CSV lists of nodes.

Every plain YAML value is text: ``power: on`` is "on" and ``image: 1.10`` is "1.10", never a boolean or a number.
Errors name the file, the place in it, and what would be accepted. What a desire means is for the service to say.

A file holds one or more documents, parted by ``---``::

    kind: desire                      kind: group                kind: nodes
    name: compute-ready               name: gpu                  nodes: n[0001-0064]
    select: "@compute"                members: n[0001-0008]      role: compute
    set: {power: on, image: [v2]}     description: with GPUs     labels: {rack: "7"}
    priority: 10

``kind: node`` describes one node (``name``, ``location``, ``nid``, ``role``, ``architecture``, ``labels``, ``bmc``,
``interfaces``: a list of ``{mac: ..., address: ..., name: ..., port: ...}``);
``kind: nodes`` a nodeset with what its nodes share, or a list of nodes.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from strata.cli.reading import read_text
from strata.cli.repository import is_repository
from strata.core.errors import BadRequest

if TYPE_CHECKING:
    from strata.cli.client import Json

_NAMED = re.compile(r"(?P<kind>node|group|document) '?(?P<name>[^':\\s]+)")
_COUNTED = re.compile(r"(?P<what>nodes|groups|documents)\[(?P<at>\d+)\]")
"""How the service says what is wrong: by name, or by place in the request."""

NODE_FIELDS = ("name", "location", "nid", "role", "architecture", "labels", "bmc", "interfaces")
_KEYS = {
    "desire": ("kind", "name", "select", "set", "priority"),
    "group": ("kind", "name", "members", "description"),
    "node": ("kind", *NODE_FIELDS),
    "nodes": ("kind", "nodes", "role", "architecture", "labels"),
}


class Bundle(NamedTuple):
    """What some files hold, by kind, in order."""

    nodes: list[Json]
    groups: list[Json]
    desires: list[Json]
    places: dict[tuple[str, str], str]
    """Kind (``node``, ``group``, ``desire``) and name → where it is said."""

    def place_of(self, where: str) -> str:
        """Where the files say what an error of the service is about; empty where that is not known."""
        if found := _NAMED.match(where):
            kind = "desire" if found["kind"] == "document" else found["kind"]
            return self.places.get((kind, found["name"]), "")
        if found := _COUNTED.search(where):
            items = {"nodes": self.nodes, "groups": self.groups, "documents": self.desires}[found["what"]]
            kind = {"nodes": "node", "groups": "group", "documents": "desire"}[found["what"]]
            at = int(found["at"])
            return self.places.get((kind, str(items[at]["name"])), "") if at < len(items) else ""
        return ""


def read_bundle(paths: Iterable[Path]) -> Bundle:
    """Read YAML files, directories of them (``*.yaml``, ``*.yml``), and standard input (``-``)."""
    bundle = Bundle([], [], [], {})
    seen = bundle.places
    for path in _spread(paths):
        for place, document in _documents(path):
            kind = _kind(document, place)
            if kind == "desire":
                added = [_desire(document, place)]
                bundle.desires.extend(added)
            elif kind == "group":
                added = [_group(document, place)]
                bundle.groups.extend(added)
            else:
                added = [_node(document, place)] if kind == "node" else _nodes(document, place)
                bundle.nodes.extend(added)
            for item in added:
                key = ("node" if kind == "nodes" else kind, str(item["name"]))
                if key in seen:
                    raise BadRequest(f"{key[0]} {key[1]} is already in {seen[key]}", where=place)
                seen[key] = place
    return bundle


def read_nodes(path: Path) -> list[Json]:
    """The nodes in a CSV file, or in YAML documents of which all are nodes (or one plain list of nodes)."""
    if path.suffix == ".csv":
        return _csv(path)
    found: list[Json] = []
    for place, document in _documents(path):
        if isinstance(document, list):
            found += [_node(item, f"{place}[{index}]") for index, item in enumerate(document)]
            continue
        kind = _kind(document, place, allowed=("node", "nodes"))
        found += [_node(document, place)] if kind == "node" else _nodes(document, place)
    return found


def _spread(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        inside = sorted(file for file in path.iterdir() if file.suffix in (".yaml", ".yml") and file.is_file())
        if not inside:
            hint = f"as a site repository: strata apply {path}, strata plan {path}" if is_repository(path) else ""
            raise BadRequest("holds no *.yaml or *.yml", where=str(path), hint=hint)
        yield from inside


def _documents(path: Path) -> Iterator[tuple[str, Any]]:
    """Each document with a name for its place."""
    from strata.core.input.yamltree import documents

    for number, document in enumerate(documents(read_text(path), str(path)), 1):
        yield f"{path} line {document.line} document {number}", document.data


def _kind(document: Any, place: str, allowed: tuple[str, ...] = tuple(_KEYS)) -> str:
    if not isinstance(document, dict):
        raise BadRequest(f"must be a mapping with a kind, not {_what(document)}", where=place)
    kind: Any = document.get("kind")
    if kind not in allowed:
        found = "is missing" if kind is None else f"is {str(kind)[:40]!r}"
        raise BadRequest(f"kind {found}; it can be {', '.join(allowed)}", where=place)
    _known_keys(document, _KEYS[kind], place)
    return str(kind)


def _known_keys(document: Json, keys: Sequence[str], place: str) -> None:
    """Raise ``BadRequest`` for the first key that is none of these, in the words that a site repository has for it."""
    unknown = next((str(key) for key in document if key not in keys), None)
    if unknown is not None:
        from strata.core.input.accepted import no_key

        raise BadRequest(no_key(unknown, tuple(keys)), where=place)


def _desire(document: Json, place: str) -> Json:
    want = document.get("set")
    if not isinstance(want, dict) or not want:
        raise BadRequest("must be a mapping such as {power: on}", where=f"{place} set")
    chosen = {}
    for variable, value in want.items():
        values = value if isinstance(value, list) else [value]
        if not values or not all(isinstance(one, str) and one for one in values):
            raise BadRequest("must be a value or a list of values", where=f"{place} set.{variable}")
        chosen[str(variable)] = values
    return {
        "name": _text(document, "name", place),
        "select": _text(document, "select", place),
        "set": chosen,
        "priority": _whole(document.get("priority", "0"), f"{place} priority"),
    }


def _group(document: Json, place: str) -> Json:
    group: Json = {"name": _text(document, "name", place)}
    if "members" in document:
        members = document["members"]
        if isinstance(members, list) and all(isinstance(member, str) for member in members):
            members = ",".join(members)
        if not isinstance(members, str):
            raise BadRequest("must be a nodeset or a list of nodesets", where=f"{place} members")
        group["members"] = members
    if "description" in document:
        group["description"] = _text(document, "description", place)
    return group


def _nodes(document: Json, place: str) -> list[Json]:
    from strata.core.nodeset import expand

    told = document.get("nodes")
    shared = {key: value for key, value in document.items() if key not in ("kind", "nodes")}
    if isinstance(told, list):
        return [
            _node({**shared, **item} if isinstance(item, dict) else item, f"{place} nodes[{index}]")
            for index, item in enumerate(told)
        ]
    if not isinstance(told, str) or not told:
        raise BadRequest("must be a nodeset or a list of nodes", where=f"{place} nodes")
    common = _node({"name": "n", **shared}, place)
    return [{**common, "name": name} for name in expand(told)]


def _node(document: Any, place: str) -> Json:
    if not isinstance(document, dict):
        raise BadRequest(f"must be a mapping with a name, not {_what(document)}", where=place)
    _known_keys(document, _KEYS["node"], place)
    node: Json = {"name": _text(document, "name", place)}
    for key in ("location", "role", "architecture", "bmc"):
        if document.get(key, "") != "":
            node[key] = _text(document, key, place)
    if document.get("nid", "") != "":
        node["nid"] = _whole(document["nid"], f"{place} nid")
    labels = document.get("labels", "")
    if labels != "":
        if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
            raise BadRequest("must be a mapping of texts", where=f"{place} labels")
        node["labels"] = labels
    if document.get("interfaces", "") != "":
        node["interfaces"] = _interfaces(document["interfaces"], f"{place} interfaces")
    return node


def _interfaces(told: Any, place: str) -> list[Json]:
    from strata.cli.words import INTERFACE_FIELDS

    if not isinstance(told, list):
        raise BadRequest("must be a list such as [{mac: 52:54:00:12:34:56}]", where=place)
    for at, one in enumerate(told):
        if not isinstance(one, dict) or not all(isinstance(value, str) for value in one.values()):
            raise BadRequest("must be a mapping of texts", where=f"{place}[{at}]")
        _known_keys(one, INTERFACE_FIELDS, f"{place}[{at}]")
    return told


def _csv(path: Path) -> list[Json]:
    rows = csv.DictReader(io.StringIO(read_text(path)))
    found = []
    for row in rows:
        place = f"{path} line {rows.line_num}"
        if None in row:
            raise BadRequest("more values than the heading has columns", where=place)
        document: Json = {key: value for key, value in row.items() if value}
        if "labels" in document:
            parted = [one.partition("=") for one in document["labels"].split(";") if one]
            if not all(equals for _, equals, _ in parted):
                raise BadRequest("must be KEY=VALUE;KEY=VALUE", where=f"{place} labels")
            document["labels"] = {key: value for key, _, value in parted}
        if "interfaces" in document:
            ports = [
                [pair.partition("=") for pair in one.split(",")] for one in document["interfaces"].split(";") if one
            ]
            if not all(equals for port in ports for _, equals, _ in port):
                raise BadRequest("must be mac=MAC,address=ADDRESS;mac=...", where=f"{place} interfaces")
            document["interfaces"] = [{key: value for key, _, value in port} for port in ports]
        found.append(_node(document, place))
    return found


def _text(document: Json, key: str, place: str) -> str:
    value = document.get(key)
    if not isinstance(value, str) or not value:
        raise BadRequest(f"must be a text, not {_what(value)}", where=f"{place} {key}")
    return value


def _whole(value: object, place: str) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise BadRequest(f"must be a whole number, not {str(value)[:40]!r}", where=place) from None


def _what(value: object) -> str:
    if value in (None, ""):
        return "nothing"
    return {"list": "a list", "dict": "a mapping", "str": "a text"}.get(type(value).__name__, "that")
