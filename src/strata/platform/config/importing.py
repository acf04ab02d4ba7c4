"""Writes what a running Strata holds as a repository: nodes, groups, desires and personalities, as files of one system.

Applied as it is, it changes nothing; from then on all of that comes from the repository.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from strata.core.errors import Refused
from strata.core.node import Node
from strata.platform.config.records import NODE_FIELDS

Item = Mapping[str, Any]
_OWN = {name: getattr(Node(name="n", uid=0), name) for name in NODE_FIELDS}


def files(
    system: str,
    nodes: Iterable[Item],
    groups: Iterable[Item],
    desires: Iterable[Item],
    personalities: Iterable[Item],
) -> dict[str, str]:
    """Path → text, of what the API lists."""
    folder = f"systems/{system}"
    found = {
        f"{folder}/nodes.yaml": _nodes(nodes),
        f"{folder}/groups.yaml": _documents("group", groups, ("name", "members", "description")),
        f"{folder}/desires.yaml": _documents("desire", desires, ("name", "select", "set", "priority")),
        f"{folder}/personalities.yaml": _documents(
            "personality", map(_octal, personalities), ("name", "description", "members")
        ),
    }
    return {path: text for path, text in found.items() if text}


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
        made.append(yaml.dump(said, Dumper=_dumper(), sort_keys=False, allow_unicode=True, width=120))
    return "---\n".join(made)


def _bare(value: Any) -> Any:
    """Without what says nothing: empty texts and lists."""
    if isinstance(value, Mapping):
        return {key: _bare(one) for key, one in value.items() if one not in ("", None, [], {}, ())}
    return [_bare(one) for one in value] if isinstance(value, list | tuple) else value


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
