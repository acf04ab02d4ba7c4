"""Reads the pages: their links, and the commands in their blocks with what is said about them.

A block is fenced with ``console`` (lines that begin with ``$ `` are commands, the rest is what they print) or ``sh``
(all lines are commands). A comment on the line before it may say ``not run: REASON`` or ``exit: CODE``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"])
TUTORIAL = DOCS / "tutorial" / "first-fleet.md"
HOW_TOS = sorted((DOCS / "how-to").glob("*.md"))

_COMMENT = re.compile(r"<!-- (not run|exit): ?(.*?) ?-->\Z")
_FENCE = re.compile(r"```(\w*)\s*\Z")
_LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")


class Command(NamedTuple):
    """A command line, and what the page shows that it prints (nothing: the page does not say)."""

    text: str
    shown: tuple[str, ...]


class Block(NamedTuple):
    """Commands that stand together."""

    page: Path
    line: int
    commands: tuple[Command, ...]
    not_run: str | None
    """Why it is not run; None: it is."""
    exit: int

    @property
    def place(self) -> str:
        """For messages."""
        return f"{self.page.name}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of commands of a page, in order."""
    lines = page.read_text(encoding="utf-8").splitlines()
    number = 0
    while number < len(lines):
        fence = _FENCE.match(lines[number])
        if not fence:
            number += 1
            continue
        end = next(n for n in range(number + 1, len(lines)) if lines[n].startswith("```"))
        if fence[1] in ("console", "sh"):
            said = _COMMENT.match(lines[number - 1]) if number else None
            yield Block(
                page,
                number + 1,
                tuple(_commands(fence[1], lines[number + 1 : end])),
                said[2] if said and said[1] == "not run" else None,
                int(said[2]) if said and said[1] == "exit" else 0,
            )
        number = end + 1


def _commands(kind: str, lines: list[str]) -> Iterator[Command]:
    if kind == "sh":
        yield from (Command(line, ()) for line in lines if line.strip())
        return
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield Command(lines[start][2:], tuple(line for line in lines[start + 1 : end] if line.strip()))


def unlike(shown: Sequence[str], printed: str) -> str:
    """How what was printed differs from what a page shows; empty: it is alike.

    Numbers, ids and spaces do not matter. Which lines come may depend on time: headings must be there, and one more.
    """
    found = {_masked(line) for line in printed.splitlines()}
    headings = [line for line in shown if re.fullmatch(r"[A-Z#][A-Z ]+", line)]
    missing = [line for line in headings if _masked(line) not in found]
    if missing:
        return f"no heading {missing[0]!r}"
    rest = [line for line in shown if line not in headings]
    if rest and not any(_masked(line) in found for line in rest):
        return f"nothing like {rest[0]!r}"
    return ""


def _masked(line: str) -> str:
    return " ".join(re.sub(r"\b[0-9a-f]{16}\b|\d+", "0", line).split())


_INNER = r"\$\((?:[^()]|\([^()]*\))*\)"
_REDIRECT = re.compile(r"\d?>&\d|\d?[<>]{1,2}\s*\S+")
_KEYWORDS = ("until", "while", "do", "then", "if")


def strata_words(command: str) -> Iterator[list[str]]:
    """The arguments of every ``strata`` in a command line. What the shell would put in is the word VALUE."""
    plain = re.sub(_INNER, "VALUE", re.sub(f'"{_INNER}"', "VALUE", command))
    lexer = shlex.shlex(_REDIRECT.sub(" ", plain), posix=True, punctuation_chars=";|&")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in (*lexer, ";"):
        if not set(word) <= set(";|&"):
            words += [] if not words and word in _KEYWORDS else [word]
            continue
        if words[:1] == ["strata"]:
            yield words[1:]
        words = []


def links(page: Path) -> Iterator[str]:
    """Where a page points, except to other sites."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in _LINK.findall(text):
        if not target.startswith(("http://", "https://")):
            yield target


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as they are made for Markdown."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    found = set()
    for heading in re.findall(r"^#{1,6} (.+)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        found.add(re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-"))
    return found
