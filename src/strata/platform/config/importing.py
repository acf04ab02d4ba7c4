"""Writes a repository of what is there already: in a running Strata, or at a site that had other tools until now.

What a running Strata holds, applied as it is, changes nothing; from then on all of that comes from the repository.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv4Network
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from strata.core.errors import Refused
from strata.core.node import Node
from strata.core.nodeset import fold
from strata.platform.config.kept import KEPT
from strata.platform.config.records import NODE_FIELDS, KeptKind
from strata.platform.delivery.records import CURRENT as _CURRENT
from strata.platform.delivery.records import FIELDS
from strata.platform.delivery.records import VARIABLE as _CONFIG

Item = Mapping[str, Any]
_OWN = {name: getattr(Node(name="n", uid=0), name) for name in NODE_FIELDS}


NOTES = "IMPORTED.md"
"""The file that says what of a site was not carried over."""


class ForeignSite:
    """What another tool's files say, in the words of the API; and what of them has no place here."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.groups: list[Item] = []
        self._networks: dict[IPv4Network, dict[str, str]] = {}
        self._notes: dict[str, list[str]] = {}

    def add_group(self, name: str, members: Iterable[str], description: str) -> None:
        self.groups.append({"name": name, "members": fold(members), "description": description[:500]})

    def add_network(self, name: str, network: IPv4Network, gateway: IPv4Address | None) -> bool:
        """A network that nodes have addresses in; False: it overlaps another that there is."""
        known = self._networks.get(network)
        if known is None:
            if any(network.overlaps(other) for other in self._networks):
                return False
            taken = {one["name"] for one in self._networks.values()}
            free = (f"{name}-{number}" for number in count(2))
            known = {"name": name if name not in taken else next(one for one in free if one not in taken)}
            self._networks[network] = known = {**known, "network": str(network)}
        if gateway is not None:
            known.setdefault("gateway", str(gateway))
        return True

    @property
    def networks(self) -> list[Item]:
        """The networks that nodes have addresses in."""
        return list(self._networks.values())

    def note(self, words: str, *nodes: str) -> None:
        """Something of these nodes was not carried over."""
        self._notes.setdefault(words, []).extend(nodes)

    def files(self, system: str, source: str) -> dict[str, str]:
        """Path → text of a repository that says it."""
        nodes = [{**_OWN, **node} for node in self.nodes]
        found = files(system, nodes, self.groups, (), (), {"network": self.networks})
        if self._notes:
            lines = "".join(f"- {words} ({fold(nodes)})\n" for words, nodes in self._notes.items())
            found[NOTES] = f"# Not carried over from {source}\n\n{lines}"
        return found

    @property
    def left_out(self) -> list[str]:
        """What was not carried over."""
        return list(self._notes)


def as_name(text: str) -> str:
    """The text as the name of a group or an interface."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", text).lstrip("_.-")[:63] or "unnamed"


def as_label(text: str) -> str:
    """The text as a label's key or value; empty: it cannot be one."""
    made = re.sub(r"[^A-Za-z0-9_./-]", "-", text).strip("_./-")
    return made if len(made) <= 63 else ""


def files(
    system: str,
    nodes: Iterable[Item],
    groups: Iterable[Item],
    desires: Iterable[Item],
    personalities: Iterable[Item],
    kept: Mapping[KeptKind, Iterable[Item]] = {},
    held: Item | None = None,
) -> dict[str, str]:
    """Path → text, of what the API lists. ``kept``: as it stands in files already. ``held``: what only the repository
    can say, as the service has it."""
    folder = f"systems/{system}"
    current = str(held["revision"]) if held else ""
    desires = [_current(desire, current) if current else desire for desire in desires]
    found = {
        f"{folder}/nodes.yaml": _nodes(nodes),
        f"{folder}/groups.yaml": _documents("group", groups, ("name", "members", "description")),
        f"{folder}/desires.yaml": _documents("desire", map(_plain, desires), ("name", "select", "set", "priority")),
        f"{folder}/personalities.yaml": _documents(
            "personality", map(_octal, personalities), ("name", "description", "members")
        ),
    }
    for kind, items in kept.items():
        said = []
        for item in items:
            if apart := KEPT[kind].apart:
                source = f"{kind}/{item['name']}.yaml"
                found[f"{folder}/files/{source}"] = item[apart]
                item = {**{name: value for name, value in item.items() if name != apart}, "source": source}
            said.append({name: value for name, value in item.items() if value not in ("", None, [], {})})
        found[f"{folder}/{kind}.yaml"] = "---\n".join(_document({"kind": kind, **item}) for item in said)
    if held:
        found |= _overlays(system, held["overlays"]) | _images(folder, held["images"])
        found[f"{folder}/secret.yaml"] = "---\n".join(
            _document({"kind": "secret", **{name: value for name, value in one.items() if value not in ("", None, 0)}})
            for one in held["secrets"]
        )
    return {path: text for path, text in found.items() if text}


def _current(desire: Item, revision: str) -> Item:
    """A desire for the overlays that are in force, as people write it."""
    told = {name: [_CURRENT if name == _CONFIG and one == revision else one for one in values]
            for name, values in desire["set"].items()}  # fmt: skip
    return {**desire, "set": told}


def _overlays(system: str, overlays: Iterable[Item]) -> dict[str, str]:
    """Each in its layer, with the files that it names where they were."""
    found: dict[str, str] = {}
    documents: dict[str, list[str]] = {}
    for overlay in overlays:
        layer = str(overlay.get("layer", "site"))
        said: dict[str, Any] = {"kind": "overlay", "name": overlay["name"], "select": overlay["select"]}
        for field in FIELDS:
            entries = [
                {name: value for name, value in one.items() if name != "place"} for one in overlay.get(field, ())
            ]
            for entry in entries:
                if field == "files" and entry.get("source"):
                    entry["source"] = _file_of(system, entry, found)
            said |= {field: entries} if entries else {}
        said |= {"vars": overlay["vars"]} if overlay.get("vars") else {}
        documents.setdefault(f"systems/{system}" if layer == "system" else layer, []).append(_document(said))
    return found | {f"{folder}/overlay.yaml": "---\n".join(texts) for folder, texts in documents.items()}


def _file_of(system: str, entry: dict[str, Any], found: dict[str, str]) -> str:
    """Have the text of an entry in a file; how the entry names it then."""
    path = str(entry["source"])
    text = entry.pop("template", None)
    text = entry.pop("content", "") if text is None else text
    if path.startswith("systems/"):
        path = f"systems/{system}/{path.split('/', 2)[2]}"
    found[path] = text
    return path[path.index("files/") + len("files/") :]


def _images(folder: str, images: Iterable[Item]) -> dict[str, str]:
    """What images are made of, with their recipes."""
    found: dict[str, str] = {}
    documents = []
    for image in images:
        said = {"kind": "image", **{name: value for name, value in image.items() if name != "files" and value}}
        if image.get("files"):
            said["recipe"] = f"images/{image['name']}"
            found |= {f"{folder}/files/{said['recipe']}/{path}": text for path, text in image["files"].items()}
        documents.append(_document(said))
    return found | {f"{folder}/image.yaml": "---\n".join(documents)}


def write(directory: Path, found: Mapping[str, str]) -> list[str]:
    """Write them where nothing is of them yet; the paths."""
    for path in found:
        if (directory / path).exists():
            raise Refused("is there already", by="files", where=str(directory / path), hint="choose an empty directory")
    for path, text in found.items():
        file = directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return sorted(found)


def _nodes(nodes: Iterable[Item]) -> str:
    lines = []
    for node in nodes:
        said = {"name": node["name"]}
        said |= {name: _bare(node[name]) for name, own in _OWN.items() if _bare(node[name]) != _bare(own)}
        lines.append(f"  - {flow(said)}\n")
    return "kind: nodes\nnodes:\n" + "".join(lines) if lines else ""


def _documents(kind: str, items: Iterable[Item], fields: tuple[str, ...]) -> str:
    made = []
    for item in items:
        said = {"kind": kind, **{name: _bare(item[name]) for name in fields if item[name] not in ("", None)}}
        made.append(_document(said))
    return "---\n".join(made)


def _document(said: Item) -> str:
    text: str = yaml.dump(dict(said), Dumper=_dumper(), sort_keys=False, allow_unicode=True, width=120)
    return text


def _bare(value: Any) -> Any:
    """Without what says nothing: empty texts and lists."""
    if isinstance(value, Mapping):
        return {key: _bare(one) for key, one in value.items() if one not in ("", None, [], {}, ())}
    return [_bare(one) for one in value] if isinstance(value, list | tuple) else value


def _plain(desire: Item) -> Item:
    """With a value where one will do, as people write it."""
    wanted = {name: one[0] if len(one) == 1 else one for name, one in desire["set"].items()}
    return {**desire, "set": wanted}


def _octal(personality: Item) -> Item:
    """Modes of files as they are read."""
    members = []
    for member in personality["members"]:
        kept = [{**file, "mode": f"0{file['mode']:o}"} if "mode" in file else file for file in member.get("files", ())]
        members.append({**member, "files": kept})
    return {**personality, "members": members}


def flow(value: Any) -> str:
    """A value on one line."""
    dumper = _dumper()
    text: str = yaml.dump(value, Dumper=dumper, default_flow_style=True, sort_keys=False, width=10_000)
    return text.strip()


def _dumper() -> Any:
    return getattr(yaml, "CSafeDumper", yaml.SafeDumper)
