"""How schedulers write ids, and what the answers of their commands mean: for all alike."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from strata.core.errors import BadRequest, DeviceError
from strata.core.input.foreign import read_json


def ids(scheduler: str, form: re.Pattern[str], example: str) -> Callable[[str], str]:
    """Tells an id, and no more than that, from what is none (``BadRequest``)."""

    def job_id(text: str) -> str:
        if not form.match(text):
            raise BadRequest(f"not an id of a job in {scheduler}: {text[:40]!r}", hint=example)
        return text

    return job_id


def given(what: str, command: str, form: re.Pattern[str]) -> Callable[[str], str]:
    """Finds the id of what ``command`` has made, where its answer has ``form`` somewhere."""

    def found_id(said: str) -> str:
        found = form.search(said)
        if found is None:
            raise DeviceError(f"no id of a {what}", node=command, reply=said[:200])
        return found["id"]

    return found_id


def read_reply(command: str, said: str, empty: Any) -> Any:
    """The JSON that ``command`` has printed; ``empty``, if that was nothing."""
    if not said.strip():
        return empty
    try:
        return read_json(said.encode()).value
    except ValueError as error:
        raise DeviceError(str(error), node=command, reply=said[-200:]) from None


def says(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    """Whether a command that failed says something like that."""
    return lambda said: pattern.search(said) is not None
