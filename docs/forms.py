"""Markdown of the pages that are made from the code."""

from __future__ import annotations

from collections.abc import Iterable

MARK = "<!-- Made by docs/generate.py from the code. Do not edit; run `make docs`. -->\n"


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    heads = list(heads)
    lines = [" | ".join(heads), " | ".join("---" for _ in heads)]
    lines += [" | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) for row in rows]
    return "\n".join(f"| {line} |" for line in lines) + "\n"


def code(text: object) -> str:
    """Text in code type, or a dash."""
    return f"`{text}`" if text not in ("", None, (), frozenset()) else "-"


def words(text: str) -> str:
    """A docstring as one line of Markdown."""
    return " ".join(text.replace("``", "`").split())
