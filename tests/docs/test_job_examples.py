"""What the pages on jobs show can be sent as it stands: the whole document, and the lines of Python."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
from docs_support import DOCS

from strata.client import Cluster
from strata.client.job import document_of
from strata.core.input.yamltree import Document
from strata.jobs.submission.records import JobDocument

EXAMPLES = DOCS / "how-to" / "examples"


def test_the_whole_document_has_every_field_and_every_one_is_accepted() -> None:
    text = (EXAMPLES / "whole-job.yaml").read_text(encoding="utf-8")
    found = Document(text, "whole-job.yaml").read(JobDocument)
    fields = set(JobDocument.__struct_fields__)
    written = set(re.findall(r"^(?:# )?([a-z_]+):", text, re.MULTILINE))
    assert written == fields
    assert set(found.resources.said) == set(found.resources.__struct_fields__)


class Told:
    """A job that was accepted, and that ends at once."""

    outcome = "done"

    def follow(self) -> list[str]:
        return ["text"]

    def wait(self) -> Told:
        return self


def test_the_lines_of_python_submit_a_document_that_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (DOCS / "how-to" / "run-jobs.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    sent: list[JobDocument] = []

    class Accepting:
        def submit(self, what: Any, **fields: Any) -> Told:
            sent.append(msgspec.convert(document_of(what, fields), JobDocument))
            return Told()

    stand_in = ModuleType("strata.client")
    stand_in.Cluster = Accepting  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "strata.client", stand_in)
    exec(program, {})
    assert sent[0].name == "first-try" and sent[0].resources.memory == 4096


def test_the_client_takes_the_token_of_a_file_as_the_command_line_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STRATA_TOKEN", raising=False)
    monkeypatch.setenv("STRATA_TOKEN_FILE", str(tmp_path / "token"))
    (tmp_path / "token").write_text("abc\n", encoding="utf-8")
    assert Cluster("unix:/nowhere")._wire._headers["Authorization"] == "Bearer abc"
