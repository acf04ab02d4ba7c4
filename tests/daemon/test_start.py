"""What the start of a service leaves for later."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from strata.core.errors import Unavailable
from strata.daemon import running
from strata.daemon.settings import Settings


async def test_cycles_are_searched_for_once_it_serves_and_not_while_it_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    collecting = {}

    class Broken(asyncio.Event):
        async def wait(self) -> Literal[True]:
            collecting["serving"] = gc.isenabled()
            return await super().wait()

    broken = Broken()
    broken.set()  # so that it ends

    @contextlib.asynccontextmanager
    async def opened(*_: Any) -> AsyncIterator[Any]:
        collecting["starting"] = gc.isenabled()
        yield SimpleNamespace(controller=SimpleNamespace(broken=broken, trouble="the end of this test"))

    monkeypatch.setattr(running, "running", opened)
    try:
        with pytest.raises(Unavailable, match="the end of this test"):
            await running._serve(Settings(state_dir=tmp_path), (), None)
    finally:
        gc.unfreeze()
    assert collecting == {"starting": False, "serving": True}
