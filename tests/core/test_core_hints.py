"""What errors tell people to do: it must reach them whole."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import strata
from strata.core.redact import redact


def hints(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        given = isinstance(node, ast.keyword) and node.arg == "hint"
        named = isinstance(node, ast.Assign) and [getattr(one, "id", "") for one in node.targets] == ["hint"]
        if (given or named) and isinstance(node, ast.keyword | ast.Assign):
            yield node.value


def test_no_hint_reads_like_a_secret_that_would_be_blacked_out() -> None:
    found = []
    for file in Path(strata.__file__).parent.rglob("*.py"):
        for hint in hints(ast.parse(file.read_text(encoding="utf-8"))):
            parts = [one.value for one in ast.walk(hint) if isinstance(one, ast.Constant)]
            found += [part for part in parts if isinstance(part, str)]
    assert len(found) > 100
    assert [text for text in found if redact(text) != text] == []
