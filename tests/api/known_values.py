"""Makes Schemathesis' requests be about things that exist: random names alone would see little but 404.

Only well-formed requests are changed; what was made wrong on purpose stays as it is. Which ones, and what they
become, follows from the request itself, so that a run can be repeated.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import schemathesis
from schemathesis.generation import GenerationMode

Choices = Mapping[str, Sequence[Any]]
"""Name of a parameter or field → values that mean something to the service. Before a path's parameter may stand the
path's beginning, and a space."""


def fill_in(
    case: schemathesis.Case,
    path: Choices,
    other: Choices,
    headers: Sequence[Mapping[str, str]] = ({},),
    share: float = 0.75,
) -> None:
    """Put values that exist into the path, the query and the body of ``share`` of all well-formed requests."""
    if case.meta is None or case.meta.generation.mode is not GenerationMode.POSITIVE:
        return
    draw = random.Random(f"{case.method} {case.path} {case.path_parameters!r} {case.query!r} {case.body!r}")
    if draw.random() > share:
        return
    for name in case.path_parameters or {}:
        found = [
            key for key in path if key == name or (key.endswith(f" {name}") and case.path.startswith(key.split()[0]))
        ]
        if found:
            case.path_parameters[name] = draw.choice(path[max(found, key=len)])
    case.headers.update(draw.choice(headers))
    for part in (case.query, case.body):
        _fill(part, other, draw.choice)
    if isinstance(case.body, dict) and "name" in case.body and "name" in (case.path_parameters or {}):
        case.body["name"] = case.path_parameters["name"]


def _fill(part: Any, choices: Choices, choose: Callable[[Sequence[Any]], Any]) -> None:
    if isinstance(part, list):
        for item in part:
            _fill(item, choices, choose)
    elif isinstance(part, dict):
        for name, value in part.items():
            if name in choices:
                part[name] = choose(choices[name])
            else:
                _fill(value, choices, choose)
