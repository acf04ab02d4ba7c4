"""Every store, behind one fixture."""

import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(
    params=["memory", "sqlite", pytest.param("etcd", marks=[pytest.mark.server, pytest.mark.slow])],
)
def kind(request: pytest.FixtureRequest) -> str:
    """Which store."""
    return str(request.param)


@pytest.fixture
def store_url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store."""
    if kind == "etcd":
        return str(request.getfixturevalue("etcd_cluster").url(f"test-{uuid.uuid4().hex}"))
    return {"memory": "memory:", "sqlite": f"sqlite:{tmp_path / 'store.db'}"}[kind]


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[object]:
    """An empty store."""
    from strata.store.open import open_store

    opened = open_store(store_url)
    yield opened
    await opened.close()
