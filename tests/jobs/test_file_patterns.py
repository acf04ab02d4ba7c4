"""Patterns in the paths of a job's files: the same names wherever it runs, or a refusal in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from strata.core.errors import BadRequest
from strata.jobs.submission.patterns import filled
from strata.jobs.submission.records import JobDocument
from strata.jobs.submission.targets import check
from strata.schedulers.jobs import Array
from support.job_site import ALICE, job_site

ARRAY = Array(first=1, last=2)


def job(**more: Any) -> JobDocument:
    return JobDocument(command="true", **more)


def test_what_is_known_before_the_job_begins_is_filled_in_and_the_index_is_left() -> None:
    found = filled(job(name="fit", stdout="/o/%j.%u.%x", stderr="/e/%A", stdin="/in"), "k2j9", "ada")
    assert (found.stdout, found.stderr, found.stdin) == ("/o/k2j9.ada.fit", "/e/k2j9", "/in")
    assert filled(job(stdout="/100%%/50%%j"), "k2j9", "ada").stdout == "/100%/50%j"
    assert filled(job(stdout="/%x/%A_%a", array=ARRAY), "k2j9", "ada").stdout == "/strata-k2j9/k2j9_%a"


@pytest.mark.parametrize("field", ["stdin", "stdout", "stderr"])
@pytest.mark.parametrize(
    ("path", "array", "words"),
    [
        ("/out.%N", None, "has %N in it, which Strata does not fill in"),
        ("/100%", None, "has % in it"),
        ("/%%a", None, "has %%a in it"),
        ("/%%%u", None, "has %%% in it"),
        ("/%4j", None, "has %4 in it"),
        ("/out.%a", None, "the job is none"),
        ("/out.%j", ARRAY, "%j"),
    ],
)
def test_what_cannot_be_filled_in_is_refused(field: str, path: str, array: Array | None, words: str) -> None:
    with pytest.raises(BadRequest) as refused:
        check(job(array=array, **{field: path}), 10)
    assert refused.value.where == field and words in refused.value.detail and refused.value.hint


@pytest.mark.slow
@pytest.mark.server
async def test_files_on_this_machine_are_named_so_and_the_log_is_found_there(open_dir: Path) -> None:
    async with job_site(open_dir) as site:
        home, account = site.people["alice"].home, site.people["alice"].name
        said = JobDocument(
            script="#!/bin/sh\necho out; echo err >&2\n",
            name="fit",
            stdout=f"{home}/%x.%j",
            stderr=f"{home}/%u.100%%",
        )
        one = await site.jobs.submit(ALICE, said)
        many = await site.jobs.submit(ALICE, job(name="fit", stdout=f"{home}/%x.%A_%a", array=ARRAY))
        for found in (one, many):
            await site.ended(ALICE, found.id)
        made = {path.name for path in Path(home).iterdir() if path.is_file()}
        assert made == {f"fit.{one.id}", f"{account}.100%", f"fit.{many.id}_1", f"fit.{many.id}_2"}
        assert await site.printed(ALICE, one.id) == "out\n"
        assert (await site.jobs.log(ALICE, one.id, stream="stderr")).text == "err\n"
