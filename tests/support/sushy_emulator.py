"""sushy-tools' emulator as a process of its own: a Redfish service that somebody else wrote."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from strata.api.nginx import free_port


@asynccontextmanager
async def sushy_emulator(directory: Path) -> AsyncIterator[str]:
    """The address of an emulator whose systems are fakes; it keeps its state in ``directory``."""
    command = Path(sys.executable).with_name("sushy-emulator")
    port = free_port("127.0.0.1")
    with (directory / "sushy.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(str(command), "--fake", "-i", "127.0.0.1", "-p", str(port)),
            env={**os.environ, "TMPDIR": str(directory)},
            stdout=log,
            stderr=log,
        )
    try:
        for _ in range(600):
            assert process.returncode is None, (directory / "sushy.log").read_text()
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
                continue
            writer.close()
            await writer.wait_closed()
            break
        yield f"http://127.0.0.1:{port}"
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
