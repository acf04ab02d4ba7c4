"""The API over the real service, not a fake: Schemathesis."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
from real_service import Bridge
from schema_checks import ask_and_check, examples, schema_of

from strata.api.app import openapi_schema
import os
from real_service import real_service

BRIDGE = Bridge(Path(tempfile.mkdtemp()), os.environ.get("STORE", "memory:"))
SCHEMA = schema_of(BRIDGE)


@SCHEMA.parametrize()
@examples(int(os.environ.get("EXAMPLES", "10")))
def test_no_request_gets_a_server_error_or_an_undocumented_answer(case: schemathesis.Case) -> None:
    ask_and_check(case)
