"""YAML read as text, lists and mappings: ``off`` stays the word "off", and a key that occurs twice is an error."""

from __future__ import annotations

from typing import Any

import yaml

from strata.core.errors import BadRequest

_LONGEST = 1_000_000


def tree(text: str, source: str) -> Any:
    """What ``text`` says, every scalar as text; nothing at all is ``""``. Raises ``BadRequest`` that names the line."""
    if len(text) > _LONGEST:
        raise BadRequest(f"{len(text)} characters; at most {_LONGEST} are read", where=source)
    try:
        found = yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{source}, line {mark.line + 1}, column {mark.column + 1}" if mark else source
        raise BadRequest(f"not YAML: {error.problem}", where=place) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise BadRequest(f"not YAML: {str(error)[:120]}", where=source) from None
    return "" if found is None else found


class _Loader(yaml.BaseLoader):
    """Makes text, lists and mappings; a key that occurs twice is an error, not the last one's win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(None, None, "a key must be plain text", key.start_mark)
            if key.value in seen:
                raise yaml.MarkedYAMLError(None, None, f"key {key.value[:60]!r} occurs twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)
