"""Options in a scheduler's own words (``native``): handed on, but for those by which we would lose the job. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from strata.core.errors import BadRequest
from strata.schedulers.jobs import Work


def check_long(native: Sequence[str], ours: Sequence[str], short: str = "", flags: str = "") -> tuple[str, ...]:
    """Options of a command that reads them as GNU's getopt does, one word each. ``ours``: names that Strata sets;
    ``short``: the same as letters; ``flags``: letters that take no value, so that others may follow them."""
    for word in native:
        if not word.startswith("-") or word in ("-", "--"):
            raise BadRequest(
                f"not an option of one word: {word[:60]!r}", where="native", hint="write --name=value, or -nVALUE"
            )
        name = word[2:].partition("=")[0] if word.startswith("--") else ""
        # getopt takes a name that is cut short.
        if name and any(own.startswith(name) for own in ours):
            raise _set_by_us(word)
        letters = "" if name else word[1:]
        for at, letter in enumerate(letters):
            if letter in short:
                raise _set_by_us(word)
            if letter not in flags:
                break
            if at + 1 < len(letters) and letters[at + 1] == "-":
                raise BadRequest(f"not an option: {word[:60]!r}", where="native")
    return tuple(native)


def check_single(native: Sequence[str], ours: Sequence[str], values: dict[str, int]) -> tuple[str, ...]:
    """Options of a command whose options have one dash and their values in the words behind them (``-l h_rt=60``).
    ``values``: how many words follow each that may be used."""
    left = list(native)
    while left:
        option = left.pop(0)
        if option in ours:
            raise _set_by_us(option)
        if option not in values:
            raise BadRequest(
                f"not an option that Strata hands on: {option[:60]!r}",
                where="native",
                hint=f"one of {' '.join(sorted(values))}, each with its value as a word of its own",
            )
        count = values[option]
        if len(left) < count:
            raise BadRequest(f"{option} has no value", where="native")
        del left[:count]
    return tuple(native)


def fitting_name(work: Work) -> str:
    """The name of a job, as schedulers that take few letters have it; it may be empty."""
    return _UNFIT.sub("_", work.name)[:_LONGEST_NAME]


def check_key(work: Work, scheduler: str) -> None:
    """Refuse a key that would not come back as it is: the job would not be found by it. Raises ``BadRequest``."""
    if _UNFIT.search(work.key) or not work.key:
        raise BadRequest(f"not a job key that {scheduler} can keep: {work.key[:60]!r}", where="key")


_UNFIT = re.compile(r"[^A-Za-z0-9_.-]")
_LONGEST_NAME = 200


def plain(work: Work, field: str, value: str | None) -> str:
    """A name that stands in a list of options or in a text of the scheduler's: without what could end it there."""
    found = value or ""
    if not found or found.startswith("-") or not found.isprintable() or any(letter in _BREAKS for letter in found):
        raise BadRequest(f"not a name that a scheduler takes: {found[:60]!r} (job {work.key})", where=field)
    return found


_BREAKS = " \t,;'\"\\$`&|<>()=%*?#!"


def _set_by_us(word: str) -> BadRequest:
    return BadRequest(
        f"{word[:60]} is set by Strata", where="native", hint="say it in the job's own fields, or leave it out"
    )
