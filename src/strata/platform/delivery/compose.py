"""What nodes get of one revision: overlays merged per class, templates rendered per set of values, a digest for each.

A class is nodes that the same overlays select. Nodes that get the same share what is kept of it, so that a fleet of a
hundred thousand nodes and a handful of classes is a handful of records.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from strata.core.errors import BadRequest
from strata.core.node import Node
from strata.fleet.columns import Indices
from strata.fleet.registry.registry import Registry
from strata.fleet.selectors.language import parse
from strata.platform.delivery.records import FIELDS, AnyEntry, FileEntry, Overlay, Overlays, UserEntry
from strata.platform.delivery.rendering import Answer, Question, Task, Template, render

MOST_BYTES = 2 << 20
"""Of all files of one node together."""
CHECK_EVERY = 20.0
"""Seconds between two looks of an agent at what it delivered."""
_AT_A_TIME = 500
"""Nodes that are looked at before others have a turn."""
_encode = msgspec.json.Encoder(order="sorted").encode


class Merged:
    """What the overlays that select some nodes come to, before templates are rendered."""

    def __init__(self, overlays: Sequence[Overlay]) -> None:
        """``overlays``: those that select them. ``BadRequest`` where two of the same rank say different things."""
        self.entries: dict[str, dict[str, AnyEntry]] = {field: {} for field in FIELDS}
        self.overridden: dict[tuple[str, str], list[str]] = {}
        self.vars: dict[str, Any] = {}
        ranks: dict[tuple[str, str], int] = {}
        for overlay in sorted(overlays, key=lambda overlay: overlay.rank):
            for field in FIELDS:
                for entry in getattr(overlay, field):
                    self._take(field, entry, overlay, ranks)
            for name, value in overlay.vars.items():
                if ranks.get(("vars", name)) == overlay.rank and self.vars[name] != value:
                    raise _quarrel(f"vars.{name}", f"overlay {overlay.name}", "another overlay of the same layer")
                self.vars[name], ranks["vars", name] = value, overlay.rank
        for field in FIELDS:
            self.entries[field] = {key: one for key, one in sorted(self.entries[field].items()) if not one.absent}
        for user in self.entries["users"].values():
            if isinstance(user, UserEntry) and user.keys:
                path = f"{user.home}/.ssh/authorized_keys"
                self.entries["files"].setdefault(path, _keys_file(user, path))

    def _take(self, field: str, entry: AnyEntry, overlay: Overlay, ranks: dict[tuple[str, str], int]) -> None:
        there = self.entries[field].get(entry.key)
        if there is not None:
            if ranks[field, entry.key] == overlay.rank and not _same(there, entry):
                raise _quarrel(f"{field} {entry.key}", entry.place, there.place)
            self.overridden.setdefault((field, entry.key), []).append(there.place)
        self.entries[field][entry.key] = entry
        ranks[field, entry.key] = overlay.rank

    @property
    def files(self) -> list[FileEntry]:
        """The files, by path."""
        return [entry for entry in self.entries["files"].values() if isinstance(entry, FileEntry)]

    def plain(self, field: str) -> list[dict[str, Any]]:
        """The entries of a kind, as agents get them."""
        return [_wire(entry) for entry in self.entries[field].values()]


class Delivered:
    """What one node, or several alike, get."""

    __slots__ = ("digest", "merged", "texts")

    def __init__(self, merged: Merged, texts: tuple[str, ...]) -> None:
        """``texts``: of the files, in their order."""
        self.merged = merged
        self.texts = texts
        self.digest = f"sha256:{hashlib.sha256(self.manifest()).hexdigest()}"

    def manifest(self) -> bytes:
        """What there is to be, without the texts: these are named by their digests."""
        files = [
            {**_wire(entry), "mode": int(entry.mode, 8), "sha": _sha(text)}
            for entry, text in zip(self.merged.files, self.texts, strict=True)
        ]
        rest = {field: self.merged.plain(field) for field in FIELDS if field != "files"}
        if not rest["packages"]:
            del rest["packages"]  # nodes whose controller only now knows of packages have nothing new
        return _encode({"check": CHECK_EVERY, "files": files, **rest})

    def wire(self, revision: str) -> bytes:
        """All of it, as the node's agent fetches it."""
        contents = {_sha(text): base64.b64encode(text.encode()).decode() for text in self.texts}
        return msgspec.json.encode(
            {"revision": revision, "digest": self.digest, "manifest": self.manifest().decode(), "contents": contents}
        )


async def composed(
    registry: Registry, overlays: Overlays, nodes: Indices, about: str, failed: dict[str, str] | None = None
) -> dict[str, Delivered]:
    """What each of ``nodes`` gets, by name. ``BadRequest`` says which overlay or template cannot be, and for whom.
    ``failed``: takes the nodes for which a template cannot be rendered, and why; they are then left out."""
    described = [registry.node_at(index) for index in nodes.tolist()]
    if not described:
        return {}
    masks = [parse(overlay.select).mask(registry, strict=False)[nodes] for overlay in overlays]
    groups = {name: np.flatnonzero(registry.groups.mask(name)[nodes]) for name in registry.groups}
    classes = _classes(masks, len(described))
    merged = []
    for chosen, members in classes:
        try:
            merged.append(Merged([overlays[number] for number in chosen]))
        except BadRequest as error:
            name = described[members[0]].name
            raise BadRequest(f"{error.detail} (for node {name})", where=error.where, hint=error.hint) from None
    question, placed = _question(merged, [members for _, members in classes])
    if question.tasks:
        inputs = tuple(await _inputs(described, groups))
        question = msgspec.structs.replace(question, nodes=inputs, strict=failed is None)
    answer = await render(question, about)
    if failed is not None:
        failed.update({described[number].name: why for number, why in answer.failed.items()})
    return await asyncio.to_thread(_delivered, described, classes, merged, placed, answer)


def _classes(masks: Sequence[Any], count: int) -> list[tuple[list[int], list[int]]]:
    """The overlays that select the nodes of a class, and those nodes, by their numbers."""
    if not masks:
        return [([], list(range(count)))]
    found: dict[bytes, list[int]] = {}
    rows = np.packbits(np.array(masks), axis=0).T
    for number, row in enumerate(np.ascontiguousarray(rows)):
        found.setdefault(row.tobytes(), []).append(number)
    return [([at for at, mask in enumerate(masks) if mask[members[0]]], members) for members in found.values()]


def _question(merged: Sequence[Merged], members: Sequence[Sequence[int]]) -> tuple[Question, list[dict[str, int]]]:
    """What is to be rendered; and for every class: path of a file → its task."""
    templates: dict[tuple[str, str, bool], int] = {}
    vars_: dict[bytes, int] = {}
    tasks: list[Task] = []
    placed: list[dict[str, int]] = []
    for one, nodes in zip(merged, members, strict=True):
        of: dict[str, int] = {}
        for entry in one.files:
            if entry.template is None:
                continue
            place = entry.source or entry.place
            template = templates.setdefault((place, entry.template, not entry.source), len(templates))
            given = vars_.setdefault(_encode(one.vars), len(vars_))
            of[entry.path] = len(tasks)
            tasks.append(Task(template=template, vars=given, nodes=tuple(nodes)))
        placed.append(of)
    return (
        Question(
            templates=tuple(Template(place=place, text=text, inline=inline) for place, text, inline in templates),
            vars=tuple(msgspec.json.decode(given) for given in vars_),
            nodes=(),
            tasks=tuple(tasks),
        ),
        placed,
    )


async def _inputs(described: Sequence[Node], groups: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What templates can ask of each node."""
    inside: list[list[str]] = [[] for _ in described]
    for name in sorted(groups):
        for number in groups[name].tolist():
            inside[number].append(name)
    found = []
    for at, node in enumerate(described):
        if at % _AT_A_TIME == 0:
            await asyncio.sleep(0)
        found.append(
            {
                "name": node.name,
                "location": node.location,
                "nid": node.nid,
                "role": node.role,
                "architecture": node.architecture,
                "labels": node.labels,
                "groups": inside[at],
                "interfaces": [{"name": one.name, "mac": one.mac, "address": one.address} for one in node.interfaces],
            }
        )
    return found


def _delivered(
    described: Sequence[Node],
    classes: Sequence[tuple[list[int], list[int]]],
    merged: Sequence[Merged],
    placed: Sequence[Mapping[str, int]],
    answer: Answer,
) -> dict[str, Delivered]:
    found: dict[str, Delivered] = {}
    for (_, members), one, of in zip(classes, merged, placed, strict=True):
        files = one.files
        tasks = [answer.tasks[of[entry.path]] if entry.path in of else None for entry in files]
        kept: dict[tuple[int, ...], Delivered] = {}
        for at, number in enumerate(members):
            if number in answer.failed:
                continue
            key = tuple(-1 if task is None else task[at if len(task) > 1 else 0] for task in tasks)
            there = kept.get(key)
            if there is None:
                texts = tuple(
                    (entry.content or "") if text < 0 else answer.texts[text]
                    for entry, text in zip(files, key, strict=True)
                )
                if sum(map(len, texts)) > MOST_BYTES:
                    raise BadRequest(
                        f"the files of node {described[number].name} come to more than {MOST_BYTES >> 20} MiB",
                        where=files[0].place,
                    )
                there = kept[key] = Delivered(one, texts)
            found[described[number].name] = there
    return found


def _keys_file(user: UserEntry, path: str) -> FileEntry:
    return FileEntry(
        path=path,
        content="".join(f"{key}\n" for key in user.keys),
        mode="0600",
        owner=user.name,
        drift=user.drift,
        members=user.members,
        place=user.place,
    )


def _wire(entry: AnyEntry) -> dict[str, Any]:
    """An entry as agents get it: nothing of where it comes from."""
    left_out = {"place", "absent", "keys"}
    if isinstance(entry, FileEntry):
        left_out |= {"source", "content", "template"}
    return {field: getattr(entry, field) for field in entry.__struct_fields__ if field not in left_out}


def _same(one: AnyEntry, other: AnyEntry) -> bool:
    return msgspec.structs.replace(one, place="") == msgspec.structs.replace(other, place="")


def _quarrel(what: str, place: str, other: str) -> BadRequest:
    return BadRequest(
        f"says something else about {what} than {other}",
        where=place,
        hint="both selectors are equally narrow and in the same layer: say it of the nodes themselves, or in a "
        "later layer",
    )


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
