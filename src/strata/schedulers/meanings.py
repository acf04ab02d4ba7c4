"""How schedulers write ids of jobs, and what the words of their commands mean: made of patterns, for all alike."""

from __future__ import annotations

import re
from collections.abc import Callable

from strata.core.errors import BadRequest


def ids(scheduler: str, form: re.Pattern[str], example: str) -> Callable[[str], str]:
    """Tells an id, and no more than that, from what is none (``BadRequest``)."""

    def job_id(text: str) -> str:
        if not form.match(text):
            raise BadRequest(f"not an id of a job in {scheduler}: {text[:40]!r}", hint=example)
        return text

    return job_id


def says(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    """Whether a command that failed says something like that."""
    return lambda said: pattern.search(said) is not None
