"""The ``$filter`` language: comparisons of a resource's properties, joined by ``and``, ``or``, ``not``. Pure.

or      = and {"or" and}
and     = not {"and" not}
not     = ["not"] ("(" or ")" | operand compare operand)
compare = "eq" | "ne" | "gt" | "ge" | "lt" | "le"
operand = 'text' | number | true | false | null | Path/To.Property
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from strata.core.errors import BadRequest

Test = Callable[[Mapping[str, Any]], bool]
_Value = Callable[[Mapping[str, Any]], Any]

LONGEST = 2000
DEEPEST = 20

_TOKEN = re.compile(
    r"""\s*(?:(?P<mark>[()])|'(?P<text>(?:[^']|'')*)'|(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![\w/])"""
    r"""|(?P<word>[A-Za-z@_][\w@.\-]*(?:/[\w@.\-]+)*))"""
)
_LITERALS = {"true": True, "false": False, "null": None}
_ORDERED: dict[str, Callable[[Any, Any], bool]] = {
    "gt": operator.gt,
    "ge": operator.ge,
    "lt": operator.lt,
    "le": operator.le,
}
_COMPARISONS = frozenset(_ORDERED) | {"eq", "ne"}


def compile_filter(text: str) -> Test:
    """The test that ``text`` describes; ``BadRequest`` says where it goes wrong."""
    if len(text) > LONGEST:
        raise BadRequest(f"a filter has at most {LONGEST} characters", where="$filter")
    parser = _Parser(_tokens(text))
    test = parser.either(0)
    if parser.left:
        raise BadRequest(f"expected 'and' or 'or', found {parser.left[0][1]!r}", where="$filter")
    return test


def value_at(resource: Any, path: tuple[str, ...]) -> Any:
    """What stands at a path of property names; nothing there is None."""
    for name in path:
        if not isinstance(resource, Mapping):
            return None
        resource = resource.get(name)
    return resource


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    place = 0
    text = text.rstrip()
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None or match.lastgroup is None:
            raise BadRequest(f"cannot read it from {text[place : place + 20]!r} on", where="$filter")
        found.append((match.lastgroup, match[match.lastgroup]))
        place = match.end()
    return found


class _Parser:
    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self.left = tokens

    def either(self, depth: int) -> Test:
        if depth > DEEPEST:
            raise BadRequest(f"parentheses are nested more than {DEEPEST} deep", where="$filter")
        tests = [self._both(depth)]
        while self._take("word", "or"):
            tests.append(self._both(depth))
        return tests[0] if len(tests) == 1 else lambda resource: any(test(resource) for test in tests)

    def _both(self, depth: int) -> Test:
        tests = [self._one(depth)]
        while self._take("word", "and"):
            tests.append(self._one(depth))
        return tests[0] if len(tests) == 1 else lambda resource: all(test(resource) for test in tests)

    def _one(self, depth: int) -> Test:
        negated = False
        while self._take("word", "not"):
            negated = not negated
        if self._take("mark", "("):
            test = self.either(depth + 1)
            if not self._take("mark", ")"):
                raise BadRequest("a parenthesis is not closed", where="$filter")
        else:
            test = self._comparison()
        return (lambda resource: not test(resource)) if negated else test

    def _comparison(self) -> Test:
        a = self._operand()
        kind, name = self.left.pop(0) if self.left else ("", "")
        if kind != "word" or name not in _COMPARISONS:
            raise BadRequest(f"expected one of {', '.join(sorted(_COMPARISONS))}, found {name!r}", where="$filter")
        b = self._operand()
        if name == "eq":
            return lambda resource: _equal(a(resource), b(resource))
        if name == "ne":
            return lambda resource: not _equal(a(resource), b(resource))
        compare = _ORDERED[name]
        return lambda resource: _ordered(compare, a(resource), b(resource))

    def _operand(self) -> _Value:
        if not self.left:
            raise BadRequest("it ends where a property or a value is expected", where="$filter")
        kind, found = self.left.pop(0)
        constant: Any
        if kind == "text":
            constant = found.replace("''", "'")
        elif kind == "number":
            constant = float(found)
        elif kind == "word" and found in _LITERALS:
            constant = _LITERALS[found]
        elif kind == "word" and found not in _COMPARISONS:
            path = tuple(found.split("/"))
            return lambda resource: value_at(resource, path)
        else:
            raise BadRequest(f"expected a property or a value, found {found!r}", where="$filter")
        return lambda _: constant

    def _take(self, kind: str, token: str) -> bool:
        if self.left and self.left[0] == (kind, token):
            self.left.pop(0)
            return True
        return False


def _equal(a: Any, b: Any) -> bool:
    # In JSON true is not 1.
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


def _ordered(compare: Callable[[Any, Any], bool], a: Any, b: Any) -> bool:
    """What cannot be compared is not in any order."""
    if isinstance(a, bool) or isinstance(b, bool):
        return False
    numbers = isinstance(a, int | float) and isinstance(b, int | float)
    return compare(a, b) if numbers or (isinstance(a, str) and isinstance(b, str)) else False
