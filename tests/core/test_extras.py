"""Libraries that only some sites need: all are locked, and one that is missing is named with how to install it."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

from strata.core.errors import DeviceError, Unavailable
from strata.core.extras import needs
from strata.hardware.bmc.dialects import dialects
from strata.hardware.bmc.redfish.endpoint import Credentials
from strata.power.series.series import Series

ROOT = Path(__file__).parents[2]


def test_the_lock_holds_every_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras["all"] == [f"strata[{','.join(name for name in extras if name not in ('all', 'dev', 'docs'))}]"]
    locked = set(re.findall(r"^([\w.-]+)==", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    wanted = {re.split(r"[\[<>=]", one)[0] for name, some in extras.items() if name != "all" for one in some}
    assert {name.lower().replace("_", "-") for name in wanted} <= {name.lower().replace("_", "-") for name in locked}


def test_another_library_that_is_missing_is_not_blamed_on_this_one() -> None:
    with pytest.raises(ModuleNotFoundError), needs("psycopg", "postgres", "telemetry"):
        import strata_has_no_such_module  # type: ignore[import-not-found]  # noqa: F401


def test_telemetry_in_postgres_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "strata.power.series.postgres", raising=False)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(Unavailable, match=r"psycopg, which is not installed .*pip install 'strata\[postgres\]'"):
        Series.in_postgres("postgresql://nowhere/x", "c1")


def test_a_bmc_that_speaks_ipmi_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("pyghmi", "strata.hardware.bmc.ipmi."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyghmi", None)
    speaks = dialects(lambda _: Credentials("", ""))["ipmi"]
    with pytest.raises(DeviceError, match=r"pyghmi, which is not installed .*pip install 'strata\[ipmi\]'"):
        speaks.open("ipmi://10.0.0.1")
