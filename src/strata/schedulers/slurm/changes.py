"""What is different between two configurations of Slurm, and whether running daemons can take it over. Pure.

Reads whatever stands in the files, also what people wrote there.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterator, Mapping

import msgspec

from strata.core.errors import BadRequest
from strata.core.nodeset import expand, fold
from strata.core.printable import shortened
from strata.schedulers.slurm.conf import FILES, SLURM_CONF

RESTART = frozenset((
    "accountingstorageenforce", "authtype", "clustername", "corespecplugin", "credtype", "grestypes",
    "jobcontainertype", "maxjobcount", "maxnodecount", "plugindir", "powerplugin", "proctracktype", "schedulertype",
    "selecttype", "selecttypeparameters", "slurmctldhost", "slurmctldport", "slurmdport", "statesavelocation",
    "switchtype", "topologyplugin",
))  # fmt: skip
"""Settings that slurm.conf(5) of 22.05 says are taken over by a restart only, in lower case."""
_OF_NODES = frozenset(("weight", "feature", "features", "state", "reason"))
"""What of a node's line ``scontrol reconfigure`` takes over."""
_SHOWN = 200


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Between what is there and what was made."""

    changed: tuple[str, ...]
    """Names of files that differ."""
    text: str
    """How, as a unified diff."""
    added: str
    """Nodes that slurm.conf has now and did not have, folded."""
    removed: str
    restart: tuple[str, ...]
    """Why slurmctld and the slurmds have to be restarted; empty: ``scontrol reconfigure`` will do."""


def difference(old: Mapping[str, str], new: Mapping[str, str]) -> Difference:
    """From ``old`` to ``new``: texts by the name of their file. A file that is not there is empty."""
    names = [name for name in (*FILES, *sorted(set(old) | set(new))) if old.get(name, "") != new.get(name, "")]
    changed = tuple(dict.fromkeys(names))
    text = "".join(
        line if line.endswith("\n") else f"{line}\n"
        for name in changed
        for line in difflib.unified_diff(
            old.get(name, "").splitlines(keepends=True), new.get(name, "").splitlines(keepends=True), name, name, n=1
        )
    )
    before, after = _read(old.get(SLURM_CONF, "")), _read(new.get(SLURM_CONF, ""))
    added, removed = fold(set(after[1]) - set(before[1])), fold(set(before[1]) - set(after[1]))
    return Difference(
        changed=changed,
        text=text,
        added=added,
        removed=removed,
        restart=tuple(_restart(before, after, added, removed)) if before[0] else (),
    )


_Node = tuple[tuple[tuple[str, str], ...], str]
"""What a node's line says of its hardware, and its address."""
_Read = tuple[dict[str, str], dict[str, _Node]]


def _restart(before: _Read, after: _Read, added: str, removed: str) -> Iterator[str]:
    for what, nodes in (("new", added), ("removed", removed)):
        if nodes:
            yield f"nodes are {what}: {shortened(nodes, _SHOWN)}"
    other = [name for name, line in after[1].items() if name in before[1] and before[1][name] != line]
    if other:
        yield f"nodes have other hardware or addresses: {shortened(fold(other), _SHOWN)}"
    for key in sorted(RESTART):
        if before[0].get(key, "") != after[0].get(key, ""):
            yield f"{key} is changed"
    if ("enable_configless" in before[0].get("slurmctldparameters", "")) != (
        "enable_configless" in after[0].get("slurmctldparameters", "")
    ):
        yield "enable_configless is changed"


def _read(text: str) -> _Read:
    """Settings by their name in lower case, and what is said of each node."""
    settings: dict[str, str] = {}
    nodes: dict[str, _Node] = {}
    for line in _joined(text):
        key, _, value = line.partition("=")
        key = key.strip().lower()
        if key == "nodename":
            hostlist, *options = _words(value)
            told = {name.lower(): said for name, _, said in (word.partition("=") for word in options)}
            names, addresses = _names(hostlist), _names(told.pop("nodeaddr", ""))
            kept = tuple(sorted((name, said) for name, said in told.items() if name not in _OF_NODES))
            if len(addresses) != len(names):
                addresses = [",".join(addresses)] * len(names)
            nodes.update((name, (kept, address)) for name, address in zip(names, addresses, strict=True))
        elif key != "partitionname":
            # Said several times (SlurmctldHost), all of them count.
            settings[key] = f"{settings[key]},{value.strip()}" if key in settings else value.strip()
    return settings, nodes


def _names(hostlist: str) -> list[str]:
    try:
        return expand(hostlist)
    except BadRequest:
        return [hostlist]


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text) or [""]
    except ValueError:
        return text.split() or [""]


def _joined(text: str) -> Iterator[str]:
    """Lines without comments; one that ends in a backslash goes on in the next."""
    for line in text.replace("\\\n", " ").splitlines():
        said = line.split("#", 1)[0].strip()
        if said:
            yield said
