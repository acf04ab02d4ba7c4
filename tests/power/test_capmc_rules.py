"""A site's own advice to schedulers: the file, and the service that was told of it."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import msgspec
import pytest

from strata.core.errors import BadRequest
from strata.daemon.running import running
from strata.daemon.settings import Settings
from strata.fleet.settings import ListenSettings
from strata.hardware.settings import HardwareSettings
from strata.power.capmc.rules import Rules, read_rules
from strata.power.settings import PowerSettings
from support.capmc_site import run_command


@pytest.mark.parametrize("head", ["", "[node_rules]\n", "; of the site\n[rules]\n\n"])
def test_what_a_file_names_is_so_and_the_rest_is_as_ever(tmp_path: Path, head: str) -> None:
    path = tmp_path / "rules.ini"
    path.write_text(f"{head}min_off_time = 1800\nmax_on_req_count: 50\n", encoding="utf-8")
    assert read_rules(path) == Rules(min_off_time=1800, max_on_req_count=50)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"min_off_time = soon", "not a whole number from -1: 'soon'"),
        (b"min_off_time = -2", "not a whole number"),
        (b"min_off_time = 99999999999", "not a whole number"),
        (b"min_of_time = 1", "no such rule: min_of_time"),
        (b"[a]\nmin_off_time = 1\n[b]\nmin_off_time = 2", "is there twice"),
        (b"min_off_time = 1\nmin_off_time = 2", "not an INI file"),
        (b"{}", "not an INI file"),
        (b"\xff\xfe", "not an INI file"),
        (b"#" * 100_000, "longer than"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_file_that_is_wrong_is_named_with_what_is_wrong_before_anything_starts(
    tmp_path: Path, text: bytes | None, why: str
) -> None:
    path = tmp_path / "rules.ini"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(BadRequest, match=why) as error:
        read_rules(path)
    assert str(path) in str(error.value)


@pytest.mark.slow
@pytest.mark.server
async def test_a_scheduler_is_told_the_rules_of_the_site(tmp_path: Path) -> None:
    path = tmp_path / "rules.ini"
    path.write_text("latency_node_on = 240\n", encoding="utf-8")
    settings = Settings(
        state_dir=tmp_path / "s",
        layers=("power",),
        listen=ListenSettings(tls=False),
        hardware=HardwareSettings(consoles=False, poll=False),
        power=PowerSettings(rules=path),
    )
    settings.state_dir.mkdir(mode=0o700)
    async with running(settings):
        environment = {**os.environ, "OS_SERVICE_URL": f"unix:{settings.admin_socket}"}
        status, out, err = await asyncio.to_thread(run_command, "capmc", ("node_rules",), environment, None)
    assert (status, err) == (0, "")
    rules = msgspec.structs.asdict(Rules(latency_node_on=240))
    assert json.loads(out) == {"e": 0, "err_msg": "", **rules}
