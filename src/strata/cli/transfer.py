"""Large files to the service and back: in pieces up, as a stream down. Never wholly in memory."""

from __future__ import annotations

import http.client
import tarfile
import time
from types import TracebackType
from typing import IO, TYPE_CHECKING, cast

from strata.cli.client import Client, problem
from strata.cli.progress import Meter
from strata.cli.words import segment
from strata.core.errors import OutcomeUnknown, StrataError

if TYPE_CHECKING:
    from strata.cli.output import Output

PIECE = 8 << 20
_AT_ONCE = 1 << 20
"""Bytes whose sending is nothing to tell of."""
_TRIES = 4
_LIMIT = 300.0


class Upload:
    """A file to write to, whose bytes are at the service when the context ends well, and nowhere when it does not."""

    def __init__(self, client: Client, out: Output, title: str) -> None:
        self._client = client
        self._meter = Meter(out, title)
        self._buffer = bytearray()
        self._sent = 0
        self.total = 0
        """Bytes in all, where that is known."""
        self.ident = ""

    def __enter__(self) -> Upload:
        self.ident = self._client.post("/v1/image-uploads")["id"]
        self._meter.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._flush(0)
        finally:
            self._meter.__exit__(kind, error, trace)
            if kind is not None:
                self._client.delete(f"/v1/image-uploads/{segment(self.ident)}")

    def write(self, data: bytes) -> int:
        """Take bytes; they are sent a piece at a time."""
        self._buffer += data
        self._flush(PIECE)
        return len(data)

    def tar(self) -> tarfile.TarFile:
        """An archive to add files to, which goes up as it is written."""
        return tarfile.open(fileobj=cast("IO[bytes]", self), mode="w|")

    def _flush(self, least: int) -> None:
        while self._buffer and len(self._buffer) >= least:
            piece = bytes(self._buffer[:PIECE])
            self._send(piece)
            del self._buffer[: len(piece)]
            self._sent += len(piece)
            self._tell()

    def _tell(self) -> None:
        """How much is sent; nothing of what is sent at once."""
        if self._sent <= _AT_ONCE:
            return
        if self.total:
            self._meter.update(self._sent >> 20, self.total >> 20, "MiB")
        else:
            self._meter.update(0, 0, f"{self._sent >> 20} MiB")

    def _send(self, piece: bytes) -> None:
        """A piece that is sent twice is no harm, so a lost answer is not one either."""
        path = f"/v1/image-uploads/{segment(self.ident)}?offset={self._sent}"
        for attempt in range(1, _TRIES + 1):
            try:
                _exchange(self._client, "PUT", path, piece)
                return
            except (http.client.HTTPException, OSError) as error:
                if attempt == _TRIES:
                    raise OutcomeUnknown(f"the upload broke off: {error}", hint="try again") from None
                time.sleep(attempt)


def download(client: Client, path: str, into: IO[bytes]) -> int:
    """Write the answer to ``into``; its bytes."""
    connection = client.endpoint.connect(client.credentials, _LIMIT)
    try:
        connection.request("GET", path, headers=client.credentials.headers())
        reply = connection.getresponse()
        if reply.status != 200:
            raise _error(reply, path)
        size = 0
        try:
            while piece := reply.read(1 << 20):
                into.write(piece)
                size += len(piece)
        except http.client.HTTPException:
            raise StrataError("the service ended the transfer in the middle", where=path, hint="try again") from None
        return size
    finally:
        connection.close()


def _exchange(client: Client, method: str, path: str, body: bytes) -> None:
    connection = client.endpoint.connect(client.credentials, _LIMIT)
    try:
        headers = {"Content-Type": "application/octet-stream", **client.credentials.headers()}
        connection.request(method, path, body=body, headers=headers)
        reply = connection.getresponse()
        if reply.status != 200:
            raise _error(reply, path)
        reply.read()
    finally:
        connection.close()


def _error(reply: http.client.HTTPResponse, path: str) -> StrataError:
    import json

    try:
        told = json.loads(reply.read(1 << 20))
    except ValueError:
        told = None
    return problem(reply.status, told, where=path)
