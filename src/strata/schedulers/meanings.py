"""How schedulers write ids, and what the answers of their commands mean: for all alike."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from strata.core.errors import BadRequest, DeviceError, StrataError, Unavailable
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


def refused(scheduler: str, command: str, said: str, is_away: Callable[[str], bool]) -> StrataError:
    """What is raised where the command that submits a job failed and said this."""
    if is_away(said):
        return Unavailable(said, where=command, hint="whether the job was taken is not known: look at all jobs first")
    return BadRequest(said or f"{scheduler} does not take it, and does not say why", where=command)


def key_in(text: str, begins: str) -> str:
    """The key in what a job of ours bears; empty: it is none of ours."""
    return text.removeprefix(begins) if text.startswith(begins) else ""


def mebibytes(told: str) -> int | None:
    """``4gb``, ``3.8G``, ``512mb``; None: no size."""
    found = _SIZE.match(told)
    return int(float(found["number"]) * _UNITS[found["unit"].lower()]) if found else None


_SIZE = re.compile(r"(?P<number>[0-9]+(\.[0-9]+)?)(?P<unit>[kmgt]?)b?\Z", re.IGNORECASE)
_UNITS = {"": 2**-20, "k": 2**-10, "m": 1, "g": 2**10, "t": 2**20}


def says(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    """Whether a command that failed says something like that."""
    return lambda said: pattern.search(said) is not None
