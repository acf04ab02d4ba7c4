"""Every write that somebody asked for is in the audit log under an action of one form, which the reference lists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import strata

SOURCES = Path(strata.__file__).parent
REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "audit-actions.md"
FORM = re.compile(r"[a-z][a-z-]*\.[a-z][a-z_-]*")


def written() -> dict[str, str]:
    """Action → file, of every text that stands as the action of a commit."""
    found = {}
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr in ("commit", "commit_many") and len(node.args) > 1:
                action = node.args[1]
                if isinstance(action, ast.Constant) and isinstance(action.value, str):
                    found[action.value] = str(path.relative_to(SOURCES))
    return found


@pytest.mark.slow
def test_actions_are_a_kind_and_a_verb() -> None:
    assert len(written()) > 20
    assert {action: where for action, where in written().items() if not FORM.fullmatch(action)} == {}


@pytest.mark.slow
def test_the_reference_lists_every_action() -> None:
    listed = REFERENCE.read_text()
    assert {action: where for action, where in written().items() if f"`{action}`" not in listed} == {}
