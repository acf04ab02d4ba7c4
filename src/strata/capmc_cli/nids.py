"""Lists of NIDs as people write them: ``1,4,5,7-10``."""

from __future__ import annotations

from collections.abc import Iterable

MOST = 1_000_000


def parse(text: str) -> list[int]:
    """The numbers; ``ValueError`` says which part is none."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"invalid nid{' range' if dash else ''}: {part.strip()[:40]}")
        low, high = int(first), int(last) if dash else int(first)
        if high < low or high - low >= MOST:
            raise ValueError(f"invalid nid range: {part.strip()[:40]}")
        found.extend(range(low, high + 1))
        if len(found) > MOST:
            raise ValueError(f"invalid nid range: more than {MOST} nids")
    return found


def fold(nids: Iterable[int]) -> str:
    """The shortest list that says the same."""
    runs: list[list[int]] = []
    for nid in sorted(set(nids)):
        if runs and nid == runs[-1][1] + 1:
            runs[-1][1] = nid
        else:
            runs.append([nid, nid])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
