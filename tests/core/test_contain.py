"""A fault in the work for one node is that node's result."""

from __future__ import annotations

import logging

import pytest

from strata.core.errors import DeviceError, InternalFault
from strata.core.fault_isolation import contained, fault_of


def test_what_is_no_error_of_ours_becomes_one_and_its_traceback_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR), pytest.raises(InternalFault) as told, contained("http://b1"):
        b"\xae".decode()
    assert str(told.value).startswith("http://b1: internal error while talking to the BMC: UnicodeDecodeError (")
    assert [record.exc_info is not None for record in caplog.records] == [True]


def test_an_error_of_ours_stays_what_it_is() -> None:
    wrong = DeviceError("no answer")
    assert fault_of(wrong, "http://b1") is wrong


def test_a_secret_in_what_was_raised_is_not_told() -> None:
    told = str(fault_of(ValueError("password=hunter2 is no number\x1b"), "n1", whom="its agent"))
    assert "hunter2" not in told and "\x1b" not in told and "its agent" in told
