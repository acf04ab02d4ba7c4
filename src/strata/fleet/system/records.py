"""What is shown of the service itself: store, model, status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from strata.core.state import State
from strata.core.texts import Out

Json = Annotated[Any, Meta(description="any JSON")]


class BackupView(Out, frozen=True, kw_only=True):
    """A backup that was written."""

    path: str
    revision: int
    bytes: int


class StoreCheck(Out, frozen=True, kw_only=True):
    """What is wrong with the stored data; empty ``problems``: sound."""

    ok: bool
    problems: tuple[str, ...]
    revision: int


class ModelView(Out, frozen=True, kw_only=True):
    """The declared world: variables, mutations, guards and budgets as in a model file."""

    variables: Mapping[str, Json]
    mutations: Mapping[str, Json]
    guards: Mapping[str, Json]
    budgets: Mapping[str, Json]


class ShardView(Out, frozen=True, kw_only=True):
    """A part of the fleet and who leads it. ``epoch`` 0: nobody."""

    shard: int
    leader: str
    epoch: int


class CanaryView(Out, frozen=True, kw_only=True):
    """A node on which is tried what no node is ready with yet, and how many others wait for it."""

    node: str
    waiting: int


class StatusView(Out, frozen=True, kw_only=True):
    """The fleet and its controller at a glance."""

    version: str
    controller: str
    started: float
    nodes: int
    by_state: Mapping[State, int]
    queue: Mapping[str, int]
    """Engine: ``ready`` to act, ``waiting``, ``in_flight``, ..."""
    shards: tuple[ShardView, ...]
    freezes: int
    holds: int
    canaries: tuple[CanaryView, ...]
    troubles: tuple[str, ...]
    """What keeps this controller from doing its work: the store takes no writes, its disk is full."""
    revision: int
    """The states show everything that was said up to here."""
    unled: int = 0
    """Nodes that no controller looks after: nothing is done with them, and what is shown of them grows old."""
    layers: tuple[str, ...] = ()
    """Which layers run here: what belongs to others is answered with 503."""
    as_of: float | None = None
    """Up to when it is known what became of those."""
