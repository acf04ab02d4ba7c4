"""Playbook layers: what is run where, and which nodes have had it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from strata.core.errors import BadRequest
from strata.core.intset import Runs
from strata.core.redact import redact
from strata.core.texts import NAME, PLAIN, In, Out, SelectText
from strata.platform.scopes import check_scope

LayerName = Annotated[str, Meta(pattern=NAME, max_length=63)]
PathText = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./-]*\.ya?ml$(?!\n)", max_length=255)]
PinText = Annotated[str, Meta(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$(?!\n)", max_length=64)]
VarName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$(?!\n)", max_length=128)]
VarText = Annotated[str, Meta(max_length=10_000)]


class PlaybookEntry(In, frozen=True, kw_only=True, omit_defaults=True):
    """A playbook of a git repository, pinned to a commit, and the nodes that are to have had it."""

    name: LayerName
    select: SelectText
    path: PathText
    """The playbook, from the top of its repository."""
    commit: PinText
    url: Annotated[str, Meta(pattern=PLAIN, max_length=1024)] = ""
    """Its repository. Empty: the one whose branch is followed."""
    vars: Annotated[Mapping[VarName, VarText], Meta(max_length=200)] = {}
    """Variables that it gets. Never a secret."""
    batch: Annotated[int, Meta(ge=1, le=1000)] = 50
    """Most nodes of one run. The first run of something new has one."""
    timeout: Annotated[float, Meta(ge=10, le=86_400)] = 1800.0
    """Seconds for one run."""

    @property
    def digest(self) -> str:
        """What a node has had: another commit, path or variable makes another."""
        told = msgspec.msgpack.encode((self.url, self.commit, self.path, sorted(self.vars.items())))
        return hashlib.sha256(told).hexdigest()[:16]


def check(entry: PlaybookEntry, where: str) -> None:
    """Raise ``BadRequest`` for what cannot be run, or says a secret to everybody who reads the repository."""
    check_scope(entry.select, where)
    if ".." in entry.path.split("/"):
        raise BadRequest("leaves its repository", where=f"{where}: path")
    hidden = redact(dict(entry.vars))
    if telling := [name for name, value in entry.vars.items() if hidden[name] != value]:
        raise BadRequest(
            f"{telling[0]} looks like a secret, and everybody who reads the repository would know it",
            where=f"{where}: vars",
            hint="give it to the nodes as a secret (strata secret put), and have the playbook read it there",
        )


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """How a node fares that has not had it."""

    tries: int
    after: float
    """When it is tried again (Unix seconds)."""
    why: str


class Had(msgspec.Struct, frozen=True, kw_only=True):
    """Who has had a layer as it is now."""

    digest: str
    done: Runs = ()
    """Uids."""
    failures: Mapping[int, Failure] = {}
    """Uid → how it fares."""
    trouble: str = ""
    """Why it cannot be run at all."""
    after: float = 0.0
    """When it is tried again, then."""


class NodeFailure(Out, frozen=True, kw_only=True):
    """A node on which a playbook failed."""

    node: str
    tries: int
    after: float
    why: str


class PlaybookView(Out, frozen=True, kw_only=True):
    """A layer, and how far it is."""

    name: str
    select: str
    url: str
    commit: str
    path: str
    vars: Mapping[str, str]
    batch: int
    timeout: float
    nodes: int
    done: int
    failing: int
    waiting: int
    """Nodes that are to have it: next, or when they are back."""
    trouble: str


class PlaybookDetail(PlaybookView, frozen=True, kw_only=True):
    """And who fails."""

    failures: tuple[NodeFailure, ...]


class Again(In, frozen=True, kw_only=True):
    """Have it run once more on these nodes, now."""

    select: SelectText
