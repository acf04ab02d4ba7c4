"""What most of the API's tests begin with."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from api_support import Service, open_service


@pytest.fixture
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    """Three nodes, no layer."""
    async with open_service(tmp_path_factory.mktemp("state")) as service:
        yield service


@pytest.fixture
async def client(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    """The local administrator."""
    async with service.client() as client:
        yield client
