"""Which failures count: those of a check that most other nodes pass, once the others have been heard. Pure.

A check that fails everywhere at once says more of the check, or of what all nodes share, than of any node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple


class Distrust(NamedTuple):
    """So many nodes of so many fail a check; where that is too many, no further one counts."""

    failing: int
    of: int


class _Seen:
    """One check over all nodes."""

    def __init__(self) -> None:
        self.runs: set[str] = set()
        self.failing: dict[str, float] = {}
        """Node → since when."""
        self.counted: set[str] = set()
        self.distrust: Distrust | None = None


class Judge:
    """Weighs what nodes say. ``most``: percent of the nodes that run a check, of which more may not fail it at once.
    ``settles``: seconds after which all nodes have had the time to say whether they fail a check. ``others``: how many
    nodes that are not heard here fail a check, and run it."""

    def __init__(
        self,
        clock: Callable[[], float],
        most: Callable[[], float],
        settles: Callable[[str], float],
        others: Callable[[str], Distrust] = lambda check: Distrust(0, 0),
    ) -> None:
        self._clock, self._most, self._settles, self._others = clock, most, settles, others
        self._checks: dict[str, _Seen] = {}

    def heard(self, node: str, runs: Collection[str], failing: Collection[str]) -> None:
        """A node says which checks it runs and which of them it fails."""
        now = self._clock()
        for name in {*runs, *failing}:
            seen = self._checks.setdefault(name, _Seen())
            seen.runs.add(node)
            if name in failing:
                seen.failing.setdefault(node, now)
        for name, seen in list(self._checks.items()):
            if node in seen.runs and name not in runs and name not in failing:
                seen.runs.discard(node)
                if not seen.runs:
                    del self._checks[name]
            if name not in failing and seen.failing.pop(node, None) is not None:
                seen.counted.discard(node)

    def gone(self, node: str) -> None:
        """Nobody speaks for the node any more."""
        self.heard(node, (), ())

    def decide(self) -> set[str]:
        """Weigh anew; the nodes that count as failing, or not, since this."""
        now, changed = self._clock(), set[str]()
        for name, seen in self._checks.items():
            elsewhere, before = self._others(name), seen.distrust
            whole = Distrust(len(seen.failing) + elsewhere.failing, len(seen.runs) + elsewhere.of)
            too_many = whole.failing > max(1, int(whole.of * self._most() / 100))
            seen.distrust = whole if too_many else None
            if too_many != (before is not None):
                changed.update(seen.failing)
            if too_many or len(seen.counted) == len(seen.failing):
                continue
            settled = now - self._settles(name)
            ripe = {node for node, since in seen.failing.items() if since <= settled} - seen.counted
            seen.counted |= ripe
            changed |= ripe
        return changed

    def counts(self, check: str, node: str) -> bool:
        """Whether the node is held to fail it."""
        seen = self._checks.get(check)
        return seen is not None and node in seen.counted

    def failing(self, check: str) -> Mapping[str, float]:
        """The nodes that fail a check, and since when."""
        seen = self._checks.get(check)
        return seen.failing if seen is not None else {}

    @property
    def shares(self) -> Mapping[str, Distrust]:
        """Of each check, how many of the nodes that are heard here fail it, and run it."""
        return {name: Distrust(len(seen.failing), len(seen.runs)) for name, seen in self._checks.items()}

    @property
    def distrusted(self) -> Mapping[str, Distrust]:
        """The checks that too many fail."""
        return {name: seen.distrust for name, seen in self._checks.items() if seen.distrust is not None}
