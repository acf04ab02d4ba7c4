"""What simulated devices were told and took: the book that tests read to see that nothing was done twice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from strata.core.distinct import distinct

_FIELDS = np.dtype(
    [
        ("node", np.int64),
        ("epoch", np.int64),
        ("generation", np.int64),
        ("mutation", np.int8),
        ("time", np.float64),
        ("idle", np.bool_),
    ]
)


class Effects:
    """Every accepted action, in order of arrival. ``idle`` marks one that the node had already or was doing."""

    def __init__(self, mutations: Sequence[str]) -> None:
        self.mutations = tuple(mutations)
        self._rows = np.zeros(64, dtype=_FIELDS)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def rows(self) -> npt.NDArray[np.void]:
        """All rows (fields node, epoch, generation, mutation, time, idle); a view, not to be written."""
        return self._rows[: self._count]

    def add(
        self,
        nodes: npt.NDArray[np.int64],
        epochs: npt.NDArray[np.int64] | int,
        generation: npt.NDArray[np.int64] | int,
        mutation: int,
        time: float,
        idle: npt.NDArray[np.bool_],
    ) -> None:
        """Append one row per node. An epoch of -1 says that the action came without a fence."""
        end = self._count + len(nodes)
        if end > len(self._rows):
            grown = np.zeros(max(end, 2 * len(self._rows)), dtype=_FIELDS)
            grown[: self._count] = self._rows[: self._count]
            self._rows = grown
        part = self._rows[self._count : end]
        part["node"] = nodes
        part["epoch"] = epochs
        part["generation"] = generation
        part["mutation"] = mutation
        part["time"] = time
        part["idle"] = idle
        self._count = end

    def of(self, node: int) -> list[tuple[int, int, str]]:
        """What the node took: (epoch, generation, mutation), in order."""
        rows = self.rows[self.rows["node"] == node]
        return [
            (epoch, generation, self.mutations[mutation])
            for epoch, generation, mutation in zip(
                rows["epoch"].tolist(), rows["generation"].tolist(), rows["mutation"].tolist(), strict=True
            )
        ]

    def counts(self) -> dict[str, int]:
        """How often each mutation was accepted, over the fleet."""
        found = np.bincount(self.rows["mutation"], minlength=len(self.mutations))
        return {name: int(count) for name, count in zip(self.mutations, found, strict=True) if count}

    def twice(self) -> list[tuple[int, int, int]]:
        """(node, epoch, generation) that were carried out more than once. Empty is what a fence promises."""
        rows = self.rows[self.rows["epoch"] >= 0]
        order = np.lexsort((rows["generation"], rows["epoch"], rows["node"]))
        keys = np.stack([rows["node"], rows["epoch"], rows["generation"]], axis=1)[order]
        again = (keys[1:] == keys[:-1]).all(axis=1)
        return [(n, e, g) for n, e, g in np.unique(keys[1:][again], axis=0).tolist()]

    def idle(self) -> int:
        """How many were told to a node that had the result already, or was on its way to it."""
        return int(self.rows["idle"].sum())

    def repeated(self) -> dict[int, list[str]]:
        """Nodes that took some mutation more than once, and all that they took, in order."""
        width = len(self.mutations)
        keys, counts = np.unique(self.rows["node"] * width + self.rows["mutation"], return_counts=True)
        nodes = distinct(keys[counts > 1] // width).tolist()
        return {node: [mutation for _, _, mutation in self.of(node)] for node in nodes}
