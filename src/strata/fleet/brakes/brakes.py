"""Holds, freezes and limits as they stand, and whom they keep from being acted on."""

from __future__ import annotations

import numpy as np

from strata.core.node import Freeze, Hold, Limit
from strata.fleet.columns import NOBODY, Indices, Mask, grown
from strata.fleet.groups.groups import Groups
from strata.fleet.nodes.roster import Roster
from strata.fleet.registry.changes import Touched


class Brakes:
    """What people have put on to keep the automation away. Masks are valid until the next change."""

    def __init__(self, roster: Roster, groups: Groups) -> None:
        self.holds: dict[str, Hold] = {}
        """By node name."""
        self.freezes: dict[str, Freeze] = {}
        """By scope: ``fleet``, ``group:NAME`` or ``node:NAME``."""
        self.limits: dict[str, Limit] = {}
        """By what set them: ``rollout:NAME``."""
        self._roster = roster
        self._groups = groups
        self._held: Mask = np.zeros(0, dtype=np.bool_)
        self._frozen: Mask = np.zeros(0, dtype=np.bool_)

    @property
    def held(self) -> Mask:
        """Nodes that a person took out of automation."""
        return self._held[: self._roster.size]

    @property
    def frozen(self) -> Mask:
        """Nodes for which nothing may be started."""
        return self._frozen[: self._roster.size]

    def frozen_by(self, index: int) -> str:
        """The widest scope that freezes a node; empty: none."""
        if "fleet" in self.freezes:
            return "fleet"
        if not self._frozen[index]:
            return ""
        scopes = [f"group:{name}" for name in self._groups.of(index)] + [f"node:{self._roster.names[index]}"]
        return next((scope for scope in scopes if scope in self.freezes), "")

    def settle_holds(self, touched: Touched, fresh: Indices) -> Indices:
        """Look again who is held; the nodes that were held or released, or whose hold has another reason."""
        self._held = grown(self._held, self._roster.size)
        nodes = {index for name in touched.holds if (index := self._roster.find(name)) >= 0}.union(fresh.tolist())
        if not nodes:
            return fresh
        at = np.array(sorted(nodes), dtype=np.int64)
        names = [self._roster.names[index] for index in at.tolist()]
        new = np.fromiter((name in self.holds for name in names), dtype=np.bool_, count=len(at))
        spoken_of = np.fromiter((name in touched.holds for name in names), dtype=np.bool_, count=len(at))
        changed: Indices = at[(self._held[at] != new) | spoken_of]
        self._held[at] = new
        return self._roster.living(changed)

    def settle_freezes(self, touched: Touched, fresh: Indices) -> Indices:
        """Look again who is frozen; the nodes whose brake went on or off."""
        size = self._roster.size
        self._frozen = grown(self._frozen, size)
        if not touched.freezes and not (self.freezes and (len(fresh) or touched.groups)):
            return NOBODY
        new = self._roster.alive if "fleet" in self.freezes else np.zeros(size, dtype=np.bool_)
        for scope in self.freezes:
            kind, _, name = scope.partition(":")
            if kind == "group" and name in self._groups:
                new = new | self._groups.mask(name)
            elif kind == "node" and (index := self._roster.find(name)) >= 0:
                new[index] = True
        changed = np.flatnonzero(self.frozen != new)
        self._frozen[:size] = new
        return self._roster.living(changed)
