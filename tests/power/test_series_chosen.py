"""Which telemetry store a controller uses is the site's to say."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import numpy as np
import psycopg
import pytest

from strata.core.errors import BadRequest
from strata.daemon.settings import Settings
from strata.power.layer import series_of
from strata.power.series.postgres import SCHEMA
from strata.power.series.records import Samples
from strata.power.settings import PowerSettings


@pytest.mark.slow
@pytest.mark.server
async def test_samples_of_two_controllers_are_in_the_sites_database(database: str, tmp_path: Path) -> None:
    host = dict(part.split("=", 1) for part in database.split())["host"]
    url = f"postgresql:///postgres?host={host}&user=strata"
    now = float(int(time.time()))
    async with contextlib.AsyncExitStack() as parts:
        series = []
        for name in ("one", "two"):
            settings = Settings(state_dir=tmp_path / name, controller_id=name, power=PowerSettings(telemetry=url))
            settings.check()
            settings.state_dir.mkdir()
            series.append(series_of(settings))
            await series[-1].start()
            parts.push_async_callback(series[-1].close)
        uids = np.array([1, 2])
        await series[0].append([Samples(metric="power", time=now, uids=uids, values=np.array([100.0, 200.0]))])
        await series[0].flush()
        found = await series[1].latest("power", uids, 60)
        assert found.values.tolist() == [100.0, 200.0]
        assert not (tmp_path / "one" / "telemetry.db").exists()
        with psycopg.connect(database) as db:
            assert db.execute(f"SELECT count(DISTINCT writer) FROM {SCHEMA}.journal".encode()).fetchone() == (1,)


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("mysql://host/db", "not postgresql://"),
        ("postgresql://ada:secret@host/db", "for all to see"),
        ("postgresql://host/db?password=secret", "for all to see"),
    ],
)
def test_an_address_that_cannot_be_is_refused_and_never_repeats_a_password(
    tmp_path: Path, address: str, why: str
) -> None:
    with pytest.raises(BadRequest, match=why) as caught:
        Settings(state_dir=tmp_path, power=PowerSettings(telemetry=address)).check()
    assert "secret" not in str(caught.value)
