"""A site repository: its files, the layers that they are in, and what they come to when these are merged.

Layers in order, the later over the earlier: ``vendor/``, ``site/`` (and files at the top), ``systems/NAME/`` of one
system. Within what they say of a node: what all nodes have, then its groups, then the node itself; so that the narrower
wins, and of two that are equally narrow the later layer. Pure: files come in as texts, and no service is needed.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from strata.core.collecting import without_collecting
from strata.core.errors import BadRequest, NotFound
from strata.core.input.forms import in_words
from strata.core.input.yamltree import Document, documents
from strata.core.nodeset import expand
from strata.core.texts import wanted_values
from strata.fleet.desires.records import DocumentSpec
from strata.fleet.nodes.edits import Claimed, checked_node
from strata.fleet.nodes.records import NodeSpec
from strata.fleet.selectors.language import parse
from strata.platform.config.documents import (
    DefaultsDocument,
    GroupDocument,
    NodeDocument,
    NodesDocument,
    OverlayDocument,
    read,
)
from strata.platform.config.kept import KEPT, Left
from strata.platform.config.records import (
    FIELDS,
    NODE_FIELDS,
    Configuration,
    GroupEntry,
    KeptKind,
    Named,
    NodeEntry,
    Origin,
)
from strata.platform.delivery.reading import resolved
from strata.platform.delivery.records import CURRENT, VARIABLE, Overlay, revision_of
from strata.platform.written import placed
from strata.provisioning.personalities.records import Personality, check

MOST_FILES = 10_000
MOST_BYTES = 64 << 20
"""Of all files together."""
_SUFFIXES = (".yaml", ".yml")
_NARROW, _BY_LAYER = 1000, 100
_LAYERS: tuple[Literal["vendor", "site", "system"], ...] = ("vendor", "site", "system")
_FILES = re.compile(r"((?:vendor|site|systems/[^/]+)/)?files/(.+)", re.DOTALL)
"""What is delivered as it is, or rendered: it is no configuration, also where it is YAML."""


class _Said(NamedTuple):
    """Something that a document says of nodes."""

    rank: int
    layer: str
    document: Document
    path: str
    """Where in the document the fields are."""
    fields: Mapping[str, Any]


class Repository:
    """What the files of one state of a repository say, for one system."""

    @without_collecting()
    def __init__(
        self,
        files: Mapping[str, bytes],
        system: str = "",
        commit: str = "",
        parsed: Callable[[str, str], list[Document]] = documents,
    ) -> None:
        """Raises ``BadRequest`` that names file, line and column. ``parsed``: makes documents of text and path."""
        self.commit = commit
        self.system, layers = _layers(files, system)
        self._defaults: list[_Said] = []
        self._of_groups: dict[str, list[_Said]] = {}
        self._of_node: dict[str, list[_Said]] = {}
        self._named: dict[str, dict[str, list[tuple[int, Document, Any]]]] = {
            kind: {} for kind in ("group", "desire", "personality", "overlay", *KEPT)
        }
        self._files = files
        for rank, paths in enumerate(layers):
            for path in sorted(path for path in paths if not _FILES.fullmatch(path)):
                for document in parsed(_text(path, files[path]), path):
                    self._take(rank, document)

    # what it comes to

    @without_collecting()
    def configuration(self, *, unchecked: bool = False) -> Configuration:
        """All layers merged and checked. ``unchecked``: whether each node can be is left to the service, which looks at
        those that are others than before."""
        groups = self._groups()
        members = expanded(groups, frozenset(self._of_node))
        nodes = self._nodes(members, unchecked)
        overlays = self._overlays()
        desires = self._desires(revision_of(overlays))
        personalities = self._personalities()
        kept: dict[str, Any] = {FIELDS[kind]: tuple(self._kept(kind)) for kind in KEPT}
        _check_one_runs(kept["power_policies"], self.said_by)
        places = {
            f"{kind}/{name}": said[-1][1].place("name")
            for kind, found in self._named.items()
            for name, said in found.items()
        }
        return Configuration(
            commit=self.commit,
            system=self.system,
            nodes=tuple(nodes),
            groups=tuple(groups.values()),
            desires=tuple(desires),
            personalities=tuple(personalities),
            overlays=overlays,
            places=places,
            **kept,
        )

    def explain(self, node: str) -> list[Origin]:
        """Where each value of a node comes from: its fields, its groups, and what documents want of it."""
        if node not in self._of_node:
            raise NotFound(f"no such node: {node[:80]}", where="the repository")
        groups = self._groups()
        members = expanded(groups, frozenset(self._of_node))
        found: list[Origin] = []
        sources = self._sources(node, [name for name, of in members.items() if node in of])
        for field in NODE_FIELDS:
            for key in _keys(field, sources):
                found.append(_origin(f"{field}.{key}" if key else field, field, key, sources))
        for name, of in members.items():
            if node in of:
                rank, document, _ = self._named["group"][name][-1]
                found.append(Origin(field="group", value=name, layer=_LAYERS[rank], place=document.place("name")))
        return found

    def desired_by(self, name: str, variable: str) -> tuple[str, str]:
        """The layer and the place that say what a desire wants of a variable."""
        said = [one for one in self._named["desire"][name] if variable in (one[1].data.get("set") or ())]
        rank, document, _ = said[-1]
        return _LAYERS[rank], document.place(f"set.{variable}")

    def said_by(self, kind: str, name: str) -> tuple[str, str]:
        """The layer and the place that last say something of a document."""
        rank, document, _ = self._named[kind][name][-1]
        return _LAYERS[rank], document.place("name")

    # taking in

    def _take(self, rank: int, document: Document) -> None:
        found = read(document)
        layer = _LAYERS[rank]
        if isinstance(found, DefaultsDocument):
            self._defaults.append(_Said(rank, layer, document, "", _shared(document.data)))
        elif isinstance(found, NodeDocument):
            fields = {key: value for key, value in document.data.items() if key in NODE_FIELDS and value != ""}
            self._note_node(found.name, _Said(2 * rank + 1, layer, document, "", fields))
        elif isinstance(found, NodesDocument):
            self._take_nodes(rank, document, found)
        else:
            kind = document.data["kind"]
            there = self._named[kind].setdefault(found.name, [])
            if there and there[-1][0] == rank:
                raise BadRequest(
                    f"{kind} {found.name} is already in {there[-1][1].place('name')}", where=document.place("name")
                )
            there.append((rank, document, found))
            if isinstance(found, GroupDocument) and not isinstance(found.nodes, UnsetType):
                said = _Said(rank, layer, document, "nodes", _shared(document.data["nodes"]))
                self._of_groups.setdefault(found.name, []).append(said)

    def _take_nodes(self, rank: int, document: Document, found: NodesDocument) -> None:
        shared, layer = _shared(document.data), _LAYERS[rank]
        if isinstance(found.nodes, str):
            try:
                names = expand(found.nodes)
            except BadRequest as error:
                raise BadRequest(error.detail, where=document.place("nodes"), hint=error.hint) from None
            said = _Said(2 * rank, layer, document, "", shared)
            for name in names:
                self._note_node(name, said)
            return
        common = _Said(2 * rank, layer, document, "", shared)
        for at, (entry, raw) in enumerate(zip(found.nodes, document.data["nodes"], strict=True)):
            fields = {key: value for key, value in raw.items() if key != "name" and value != ""}
            if shared:
                self._note_node(entry.name, common)
            self._note_node(entry.name, _Said(2 * rank + 1, layer, document, f"nodes[{at}]", fields))

    def _note_node(self, name: str, said: _Said) -> None:
        there = self._of_node.setdefault(name, [])
        for other in there:
            if other.rank == said.rank:
                raise BadRequest(
                    f"node {name[:80]} is already in {other.document.place(other.path)}",
                    where=said.document.place(said.path),
                )
        there.append(said)

    # merging

    def _nodes(self, members: Mapping[str, frozenset[str]], unchecked: bool) -> list[NodeEntry]:
        of = {group: said for group, said in self._of_groups.items() if group in members}
        inside: dict[str, list[str]] = {}
        for group in of:
            for name in members[group]:
                inside.setdefault(name, []).append(group)
        merged = [{"name": name, **_merged(self._sources(name, inside.get(name, ())))} for name in self._of_node]
        found = msgspec.convert(merged, list[NodeEntry], strict=False)
        claimed = Claimed()
        for entry in () if unchecked else found:
            said = {field: getattr(entry, field) for field in entry.said}
            try:
                claimed.take(checked_node(NodeSpec(name=entry.name, **said)))
            except BadRequest as error:
                last = self._of_node[entry.name][-1]
                raise BadRequest(
                    f"{error.where}: {error.detail}", where=last.document.place(last.path), hint=error.hint
                ) from None
        return found

    def _sources(self, name: str, groups: Iterable[str]) -> list[_Said]:
        """Everything that is said of a node, the later over the earlier."""
        of_groups = sorted((said for group in groups for said in self._of_groups.get(group, ())), key=lambda s: s.rank)
        for one, other in itertools.combinations(of_groups, 2):
            if one.rank == other.rank and (field := _quarrel(one.fields, other.fields)):
                raise BadRequest(
                    f"says another {field} of node {name} than {one.document.place(f'nodes.{field}')}",
                    where=other.document.place(f"nodes.{field}"),
                    hint="the node is in both groups: say it of the node itself",
                )
        own = sorted(self._of_node[name], key=lambda said: said.rank) if len(self._of_node[name]) > 1 else None
        return [*self._defaults, *of_groups, *(own or self._of_node[name])]

    def _groups(self) -> dict[str, GroupEntry]:
        found = {}
        for name, (_, fields, _) in self._left("group").items():
            members = fields.get("members", "")
            found[name] = GroupEntry(
                name=name,
                members=members if isinstance(members, str) else ",".join(members),
                description=fields.get("description", ""),
            )
        return found

    def _desires(self, revision: str) -> list[DocumentSpec]:
        """``revision``: what ``config: current`` stands for."""
        found = []
        for name, (rank, fields, document) in self._left("desire").items():
            place = document.place("name")
            wanted = {variable: wanted_values(value) for variable, value in fields.get("set", {}).items()}
            if VARIABLE in wanted:
                wanted[VARIABLE] = tuple(revision if word == CURRENT else word for word in wanted[VARIABLE])
            select = fields.get("select", "")
            if not select or not wanted:
                missing = "what is wanted: set" if select else "whom it is about: select ('*' is every node)"
                raise BadRequest(f"desire {name} does not say {missing}", where=place)
            priority = fields["priority"] if "priority" in fields else _priority(select, rank, place)
            found.append(DocumentSpec(name=name, select=select, set=wanted, priority=priority))
        return found

    def _overlays(self) -> tuple[Overlay, ...]:
        """Every document by itself: what rules is decided for each entry, where nodes are known."""
        found: list[Overlay] = []
        for name, said in sorted(self._named["overlay"].items()):
            own: list[Overlay] = []
            select = "*"
            for rank, place, document in said:
                assert isinstance(document, OverlayDocument)
                if document.absent:
                    own, select = [], "*"
                    continue
                if not isinstance(document.select, UnsetType):
                    select = document.select
                overlay = resolved(
                    place,
                    document,
                    name=name,
                    layer=_LAYERS[rank],
                    select=select,
                    rank=_priority(select, rank, place.place("select")),
                    drift=document.drift,
                    texts=self._text_of,
                )
                if not parse(select).static:
                    raise BadRequest("an overlay cannot select by state or fact", where=place.place("select"))
                own.append(overlay)
            found += own
        return tuple(found)

    @property
    def _last_first(self) -> tuple[str, ...]:
        return (f"systems/{self.system}/", "site/", "", "vendor/") if self.system else ("site/", "", "vendor/")

    def _folder_of(self, source: str) -> dict[str, str]:
        """The files of a folder, of the last layer that has it."""
        for layer in self._last_first:
            top = f"{layer}files/{source}/"
            found = {path: data for path, data in self._files.items() if path.startswith(top)}
            if found:
                return {path.removeprefix(top): _text(path, data) for path, data in found.items()}
        return {}

    def _text_of(self, source: str) -> tuple[str, str] | None:
        """A file that is delivered, of the last layer that has it."""
        for layer in self._last_first:
            path = f"{layer}files/{source}"
            if path in self._files:
                return path, _text(path, self._files[path])
        return None

    def _personalities(self) -> list[Personality]:
        found = []
        for name, (_, fields, document) in self._left("personality").items():
            place = document.place("name")
            if "members" not in fields:
                raise BadRequest("a personality must have members", where=place)
            personality = Personality(name=name, **fields)
            with placed(place):
                check(personality)
            found.append(personality)
        return found

    def _kept(self, kind: KeptKind) -> Iterator[Named]:
        """What rooms of their own are to keep."""
        for name, (rank, fields, document) in self._left(kind).items():
            place = document.place("name")
            priority = functools.partial(_priority, rank=rank, place=place)
            with placed(place):
                try:
                    yield KEPT[kind].entry(Left(name, fields, document, priority, self._text_of, self._folder_of))
                except msgspec.ValidationError as error:
                    raise BadRequest(in_words(str(error)), where=place) from None

    def _left(self, kind: str) -> dict[str, tuple[int, dict[str, Any], Document]]:
        """What the layers leave of each document of a kind, field by field, the later over the earlier (of what is
        wanted, ``set``, variable by variable): name → the rank of the last that says something, the fields, and that
        document."""
        found = {}
        for name, said in sorted(self._named[kind].items()):
            merged: dict[str, Any] = {}
            gone, rank = False, 0
            for rank, _, document in said:  # noqa: B007 - that of the last one is asked for below
                gone = document.absent
                if gone:
                    merged = {}
                    continue
                for field in document.__struct_fields__:
                    if field not in ("kind", "name", "absent") and (value := getattr(document, field)) is not UNSET:
                        merged[field] = {**merged.get(field, {}), **value} if field == "set" else value
            if not gone:
                found[name] = rank, merged, said[-1][1]
        return found


def _check_one_runs(policies: Iterable[Any], said_by: Callable[[str, str], tuple[str, str]]) -> None:
    """Raise unless at most one power policy is said to run."""
    running = [one.name for one in policies if one.enabled]
    if len(running) > 1:
        raise BadRequest(
            f"power policy {running[0]} is enabled too, and only one can run",
            where=said_by("power-policy", running[1])[1],
            hint="enabled: false, for all but one",
        )


def systems(files: Iterable[str]) -> list[str]:
    """The systems that a repository has an overlay for."""
    return sorted({path.split("/")[1] for path in files if path.startswith("systems/") and path.count("/") > 1})


def is_configuration(path: str) -> bool:
    """Whether a file of a repository is read: YAML, or what is delivered, and in no folder that begins with a dot."""
    return (path.endswith(_SUFFIXES) or bool(_FILES.fullmatch(path))) and not any(
        part.startswith(".") for part in path.split("/")
    )


def _layers(files: Mapping[str, bytes], system: str) -> tuple[str, tuple[list[str], list[str], list[str]]]:
    """The system, and the files of each layer."""
    if len(files) > MOST_FILES or sum(map(len, files.values())) > MOST_BYTES:
        raise BadRequest(
            f"{len(files)} files, {sum(map(len, files.values())) >> 20} MiB; "
            f"at most {MOST_FILES} files of together {MOST_BYTES >> 20} MiB are read",
            where="the repository",
        )
    known = systems(files)
    if system and system not in known:
        raise BadRequest(f"there is no systems/{system}/", where="the repository", hint=_of_systems(known))
    if not system and len(known) > 1:
        raise BadRequest("it is for several systems: say which", where="systems/", hint=_of_systems(known))
    system = system or (known[0] if known else "")
    layers: tuple[list[str], list[str], list[str]] = ([], [], [])
    for path in files:
        top, slash, rest = path.partition("/")
        if not slash or top in ("site", "files"):
            layers[1].append(path)
        elif top == "vendor":
            layers[0].append(path)
        elif top == "systems" and "/" in rest:
            if rest.partition("/")[0] == system:
                layers[2].append(path)
        else:
            raise BadRequest(
                "is in no layer, and would not be read",
                where=path,
                hint="put it at the top, or below vendor/, site/ or systems/NAME/",
            )
    if not any(layers):
        raise BadRequest("holds no *.yaml or *.yml", where="the repository", hint="strata config init writes one")
    return system, layers


def _of_systems(known: Sequence[str]) -> str:
    return f"--system {' or '.join(known)}" if known else "it has no systems/"


def _text(path: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadRequest("is not text (UTF-8)", where=path) from None


def _shared(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: data[key] for key in ("role", "architecture", "labels") if data.get(key, "") != ""}


def _merged(sources: Sequence[_Said]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for said in sources:
        labels = found.get("labels")
        found.update(said.fields)
        if labels and "labels" in said.fields:
            found["labels"] = {**labels, **said.fields["labels"]}
    return found


def _quarrel(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """The first field of which both say something else."""
    for field in one.keys() & other.keys():
        if field != "labels":
            if one[field] != other[field]:
                return field
        elif differ := [k for k in one[field].keys() & other[field].keys() if one[field][k] != other[field][k]]:
            return f"labels.{differ[0]}"
    return ""


def _keys(field: str, sources: Sequence[_Said]) -> list[str]:
    """What to explain of a field: itself (empty), or each of its labels."""
    if field == "labels":
        return sorted({key for said in sources for key in said.fields.get("labels", ())})
    return [""] if any(field in said.fields for said in sources) else []


def _origin(shown: str, field: str, key: str, sources: Sequence[_Said]) -> Origin:
    saying = [said for said in sources if field in said.fields and (not key or key in said.fields[field])]
    places = [said.document.place(".".join(part for part in (said.path, field, key) if part)) for said in saying]
    value = saying[-1].fields[field]
    return Origin(
        field=shown,
        value=_word(value[key] if key else value),
        layer=saying[-1].layer,
        place=places[-1],
        overrides=tuple(places[:-1]),
    )


def _word(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def expanded(groups: Mapping[str, GroupEntry], nodes: frozenset[str]) -> dict[str, frozenset[str]]:
    """Who is in each group; names of nodes that are nowhere are taken as they are. ``nodes``: what wildcards choose
    from. A group may name others, but not in a circle."""
    found: dict[str, frozenset[str]] = {}
    under_way: list[str] = []

    class Others:
        """The other groups, each worked out when it is first named."""

        def get(self, name: str, /) -> frozenset[str] | None:
            return of(name) if name in groups else None

    def of(name: str) -> frozenset[str]:
        if name in found:
            return found[name]
        if name in under_way:
            raise BadRequest(f"names itself: {' → '.join((*under_way, name))}", where=f"group {name}")
        under_way.append(name)
        try:
            found[name] = frozenset(expand(groups[name].members, Others(), nodes=nodes))
        except BadRequest as error:
            if error.where.startswith("group "):
                raise
            raise BadRequest(f"{error.detail} ({error.where})", where=f"group {name}", hint=error.hint) from None
        finally:
            under_way.pop()
        return found[name]

    for name in groups:
        of(name)
    return found


def _priority(select: str, rank: int, place: str) -> int:
    """By how narrow the selection is, then by layer."""
    with placed(place):
        selector = parse(select)
    words = select.split()
    plain = len(words) == 1 and not any(sign in select for sign in "*?:")
    narrow = 0 if not plain else 1 if selector.groups else 2
    return _NARROW * narrow + _BY_LAYER * (rank + 1)
