"""Fixtures of the power layer's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from strata.power.series.postgres import SCHEMA
from strata.power.series.series import Series
from support.postgres import Postgres, binaries, postgres

Maker = Callable[..., Series]


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """A real PostgreSQL. A test that harms it starts it again."""
    if binaries() is None:
        pytest.fail("PostgreSQL is not installed: make setup")
    with postgres() as server:
        yield server


@pytest.fixture
def database(postgres_server: Postgres) -> str:
    """The address of a database without telemetry."""
    with psycopg.connect(postgres_server.address, autocommit=True) as db:
        db.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE".encode())
    return postgres_server.address


@pytest.fixture(params=["file", pytest.param("postgres", marks=pytest.mark.server)])
def make_series(request: pytest.FixtureRequest, tmp_path: Path) -> Maker:
    """Makes series over the same telemetry, again and again; times need not be near the present."""
    if request.param == "file":
        return lambda **options: _series(Series.in_file, tmp_path / "telemetry.db", **options)
    database: str = request.getfixturevalue("database")

    def make(*, writer: str = "a", **options: Any) -> Series:
        return _series(Series.in_postgres, database, writer, **options)

    return make


def _series(maker: Callable[..., Series], *where: object, **options: Any) -> Series:
    return maker(*where, **{"clock": lambda: 4e9, "lateness": 30.0, "hold": 30.0, **options})
