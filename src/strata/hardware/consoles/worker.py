"""Searches console logs in a process of its own, so that no pattern, however wicked, can hold up the service.

Started by ``ConsoleSearch`` with a question on standard input: one JSON object, then a node's name on each line.
Answers with one JSON array for each hit, and an object at the end (or when the pattern is wrong). Whoever asked kills
it when its time is up. Standard library only: it starts in a few hundredths of a second.
"""

from __future__ import annotations

import json
import re
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from strata.hardware.consoles.files import Line, directory_of, lines, segments

_MEMORY = 2**30
_MOST_HITS = 20_000


def main() -> None:
    """Answer the question."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    question = json.loads(sys.stdin.readline())
    try:
        matches = _matcher(question["text"], question["regex"])
    except (re.error, RecursionError, OverflowError, MemoryError) as wrong:
        print(json.dumps({"wrong": str(wrong)[:200]}), flush=True)
        return
    found, whole = 0, True
    for name in sys.stdin:
        node, count = name.rstrip("\n"), 0
        for line in _newest_first(Path(question["root"]), node, question):
            if not matches(line.text):
                continue
            if count >= question["limit"] or found >= _MOST_HITS:
                whole = False
                break
            count, found = count + 1, found + 1
            # At once: what was found counts even if there is no time for the rest.
            print(json.dumps([node, *line]), flush=True)
    print(json.dumps({"whole": whole}), flush=True)


def _matcher(text: str, regex: bool) -> Callable[[str], Any]:
    if regex:
        return re.compile(text, re.IGNORECASE).search
    wanted = text.casefold()
    return lambda line: wanted in line.casefold()


def _newest_first(root: Path, node: str, question: dict[str, Any]) -> Iterator[Line]:
    since, until = question["since"] or 0.0, question["until"] or float("inf")
    for segment in reversed(segments(directory_of(root, node))):
        try:
            if segment.path.stat().st_mtime < since:
                return  # it was last written before, and so were all that are older
        except FileNotFoundError:
            continue
        for line in reversed(list(lines(segment))):
            if since <= line.time <= until:
                yield line


if __name__ == "__main__":
    main()
