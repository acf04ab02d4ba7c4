"""Columns of the fleet as they are at one moment, and what differs between two moments. Pure arrays: no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from strata.core import intset
from strata.core.distinct import distinct
from strata.core.intset import Runs
from strata.fleet.machine.records import MachineColumn

Codes = npt.NDArray[Any]


class Coded(NamedTuple):
    """One column: a code for each position, and the word of each code."""

    codes: Codes
    words: tuple[str, ...]


def in_runs(column: Coded) -> MachineColumn:
    """The column as runs; only words that some position has are told."""
    codes = column.codes
    if not len(codes):
        return MachineColumn(words=(), runs=())
    used = distinct(codes)
    begins = np.concatenate(([0], np.flatnonzero(codes[1:] != codes[:-1]) + 1))
    lengths = np.diff(begins, append=len(codes))
    pairs = np.stack((np.searchsorted(used, codes[begins]), lengths), axis=1)
    return MachineColumn(words=tuple(column.words[code] for code in used.tolist()), runs=tuple(pairs.ravel().tolist()))


def differences(before: Mapping[str, Coded], after: Mapping[str, Coded]) -> dict[str, dict[str, Runs]]:
    """What to tell somebody who knows ``before``. Codes of a column mean the same in both."""
    told: dict[str, dict[str, Runs]] = {}
    for name, column in after.items():
        changed = np.flatnonzero(column.codes != before[name].codes)
        if len(changed):
            codes = column.codes[changed]
            told[name] = {column.words[code]: intset.pack(changed[codes == code]) for code in distinct(codes).tolist()}
    return told
