"""A PDU with eight outlets for trying it: writes its port into the file that it is given, and remembers what is on."""

import asyncio
import sys
from pathlib import Path

is_on: dict[str, bool] = {}


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    order, _, outlet = (await reader.readline()).decode().strip().partition(" ")
    if order in ("on", "off"):
        is_on[outlet] = order == "on"
        said = "ok"
    else:
        said = "on" if is_on.get(outlet) else "off"
    writer.write(f"{said}\n".encode())
    await writer.drain()
    writer.close()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    Path(sys.argv[1]).write_text(str(server.sockets[0].getsockname()[1]))
    await server.serve_forever()


asyncio.run(main())
