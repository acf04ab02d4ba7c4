"""One word for one thing: what the glossary does not want is in no help, error, page or module."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docs_support import DOCS, ROOT

GLOSSARY = DOCS / "reference" / "glossary.md"
WHERE = [
    *(ROOT / "src").rglob("*.py"),
    *(page for page in DOCS.rglob("*.md") if page != GLOSSARY and page.parent.name != "decisions"),
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
]


def unwanted() -> dict[str, str]:
    """Word that is not used here → the one that is."""
    rows = re.findall(r"^\| ([^|]+) \|[^|]*\|([^|]*)\|$", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)
    return {word: row[0] for row in rows for word in re.findall(r"`([^`]+)`", row[1])}


def found(text: str) -> list[str]:
    """The unwanted words in a text, each with the line that it is in."""
    words = unwanted()
    pattern = re.compile("|".join(rf"\b{re.escape(word)}\b" for word in words), re.IGNORECASE)
    return [
        f"line {text.count(chr(10), 0, hit.start()) + 1}: {hit[0]!r}; say {words.get(hit[0].lower(), 'otherwise')!r}"
        for hit in pattern.finditer(text)
    ]


@pytest.mark.slow
def test_no_word_that_the_glossary_does_not_want_is_used() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in WHERE}
    assert not [f"{path.relative_to(ROOT)}, {hit}" for path, text in texts.items() for hit in found(text)]


def test_an_unwanted_word_is_noticed() -> None:
    assert len(unwanted()) > 10
    assert found("a\nthe node's controller") == ["line 2: \"node's controller\"; say 'BMC'"]


def test_the_glossary_has_each_word_once_and_in_order() -> None:
    for section in GLOSSARY.read_text(encoding="utf-8").split("\n## ")[1:]:
        words = [word.lower() for word in re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE)[1:]]
        words = [word for word in words if word != "---"]
        assert words == sorted(set(words), key=lambda word: word.replace("-", ""))


def test_every_file_is_looked_at() -> None:
    assert Path(__file__).parents[2] == ROOT and len(WHERE) > 400
