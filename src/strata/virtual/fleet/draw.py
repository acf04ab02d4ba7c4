"""Chance by counting: a number in [0, 1) for (seed, stream, node, count), for many nodes at once.

There is no generator with a hidden state, so that what happens to one node does not depend on which others were
asked before it, nor on how a batch was cut.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_MASK = (1 << 64) - 1


class Stream(IntEnum):
    """What a draw is for; each is independent of the others."""

    PACE = 1
    """How fast a node is, for good."""
    DRAW = 2
    """How many watts it takes, for good."""
    BMC = 3
    """Whether its BMC is dead, for good."""
    NET = 4
    """What happens to a request under way."""
    FATE = 5
    """What becomes of an accepted action."""
    LAST = 6
    """How long an action takes."""
    HAZARD = 7
    """When something breaks by itself."""
    KIND = 8
    """What breaks."""
    JOB = 9
    """Whether a job runs."""
    LOOK = 10
    """What a look at the BMC gives."""
    AGENT = 11
    """Whether a look at the agent gives anything."""
    WIRE = 12
    """How a BMC's web server misbehaves."""
    METER = 13
    """Where a counter of energy stands, and when it or its BMC fails."""


def uniform(seed: int, stream: Stream, nodes: npt.NDArray[np.int64], counts: npt.NDArray[np.int64] | int = 0) -> Floats:
    """One number in [0, 1) per node; the same arguments always give the same numbers."""
    # Python's integers do the part that is the same for all, numpy's wrap-around the rest.
    base = _mix_int((seed * 0x9E3779B97F4A7C15 + int(stream) * 0xD1B54A32D192ED03) & _MASK)
    bits = nodes.astype(np.uint64)
    bits *= np.uint64(0xBF58476D1CE4E5B9)
    bits += np.uint64(base)
    _mix(bits)
    bits += np.asarray(counts).astype(np.uint64) * np.array([0x94D049BB133111EB], dtype=np.uint64)
    _mix(bits)
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(bits: npt.NDArray[np.uint64]) -> None:
    """SplitMix64's finaliser, in place."""
    bits ^= bits >> np.uint64(30)
    bits *= np.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> np.uint64(27)
    bits *= np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)


def _mix_int(bits: int) -> int:
    bits ^= bits >> 30
    bits = bits * 0xBF58476D1CE4E5B9 & _MASK
    bits ^= bits >> 27
    bits = bits * 0x94D049BB133111EB & _MASK
    return bits ^ bits >> 31
