"""Patterns in the paths of a job's files, as Slurm's users know them: filled in by Strata, so that one document gives
the same names wherever it runs. Pure.

``%a`` stays in the path: only whoever starts a task of an array knows its index.
"""

from __future__ import annotations

import re

import msgspec

from strata.core.errors import BadRequest
from strata.jobs.submission.records import JobDocument

FIELDS = ("stdin", "stdout", "stderr")
"""Of a document: paths with patterns in them."""
_PATTERN = re.compile(r"%(.?)")
_KNOWN = (
    "%j and %A (the job's id), %a (the index in the array), %u (the account), %x (the job's name), %% (a percent sign)"
)


def check_patterns(document: JobDocument) -> None:
    """Refuse what cannot be filled in. Raises ``BadRequest``."""
    array = document.array is not None
    for field in FIELDS:
        for found in _PATTERN.finditer(getattr(document, field) or ""):
            if found[1] not in tuple("jAaux%"):
                told = f"has {found[0]} in it, which Strata does not fill in"
                raise BadRequest(told, where=field, hint=f"what it fills in: {_KNOWN}")
            if found[1] == "%" and found.string.startswith(("a", "%"), found.end()):
                told = f"has %%{found.string[found.end()]} in it, which would read as %a, the index in an array"
                raise BadRequest(told, where=field, hint="let another letter follow the percent sign")
            if found[1] == "a" and not array:
                told = "has %a in it, the index in an array, and the job is none"
                raise BadRequest(told, where=field, hint="leave it out, or give an array")
            if found[1] == "j" and array:
                told = "has %j in it, which in an array is another number with each scheduler"
                raise BadRequest(told, where=field, hint="%A is the job's id, %a the index: out.%A_%a")


def filled(document: JobDocument, ident: str, account: str) -> JobDocument:
    """The document, with all that is known before the job begins in its paths."""
    values = {"j": ident, "A": ident, "u": account, "x": called(document, ident), "%": "%"}
    paths = {
        field: _PATTERN.sub(lambda found: values.get(found[1], found[0]), path)
        for field in FIELDS
        if (path := getattr(document, field)) is not None
    }
    return msgspec.structs.replace(document, **paths)


def called(document: JobDocument, ident: str) -> str:
    """The job's name, with a scheduler and in paths."""
    return document.name or f"strata-{ident}"
