"""Rules that every store shares: what a key may be, where a prefix ends, what a transaction may hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from strata.core.errors import BadRequest, Compacted, Conflict, Refused
from strata.store.protocol import Op

MAX_KEY_BYTES = 1024


def check_key(key: str) -> None:
    """Raise ``BadRequest`` unless ``key`` can be stored: 1 to 1024 bytes of text without control characters."""
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        size = 0
    if not 0 < size <= MAX_KEY_BYTES or any(c < " " or c == "\x7f" for c in key):
        raise BadRequest(f"a key is 1 to {MAX_KEY_BYTES} bytes of printable text", where=repr(key)[:80])


def check_txn(ops: Sequence[Op], expect: Mapping[str, int] | None, max_ops: int) -> None:
    """Raise ``BadRequest`` unless a store can try the transaction."""
    if len(ops) > max_ops:
        raise BadRequest(
            f"{len(ops)} operations in one transaction; this store takes {max_ops}", hint="split the transaction"
        )
    for op in ops:
        check_key(op.key)
    if len({op.key for op in ops}) != len(ops):
        seen: set[str] = set()
        twice = next(op.key for op in ops if op.key in seen or seen.add(op.key))  # type: ignore[func-returns-value]
        raise BadRequest("occurs twice in one transaction", where=twice)
    for key in expect or ():
        check_key(key)


def end_of(prefix: str) -> str | None:
    """The first text above everything that begins with ``prefix``; None when there is no such text."""
    while prefix:
        last = ord(prefix[-1])
        if last < 0x10FFFF:
            # Surrogates are no characters and cannot be encoded.
            return prefix[:-1] + chr(0xE000 if last == 0xD7FF else last + 1)
        prefix = prefix[:-1]
    return None


def conflict(key: str, expected: int, found: int) -> Conflict:
    """The error for a key that is not at the revision that the caller expected."""
    if not found:
        detail = f"is gone; expected at revision {expected}"
    elif not expected:
        detail = f"exists already, at revision {found}"
    else:
        detail = f"was changed at revision {found}; expected revision {expected}"
    return Conflict(detail, revision=found, where=key, hint="read it again, then decide again")


def compacted(asked: int, oldest: int) -> Compacted:
    """The error for a reader who asks for what is no longer kept."""
    return Compacted(
        f"revision {asked} is no longer kept; the oldest is {oldest}",
        oldest=oldest,
        hint="list again, then watch from the revision of that list",
    )


def in_future(asked: int, newest: int) -> BadRequest:
    """The error for a revision that does not exist yet."""
    return BadRequest(f"revision {asked} is in the future; the newest is {newest}")


def not_empty(key: str) -> Refused:
    """The error for a restore into a store that holds something."""
    return Refused(
        "the store is not empty, and would be replaced",
        by="restore",
        where=key,
        hint="restore into an empty store, or with --overwrite",
    )
