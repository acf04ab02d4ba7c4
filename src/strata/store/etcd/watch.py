"""Watching etcd: one stream from one member, resumed at another where it broke off.

The position is a revision, so a resumed stream goes on with the first revision that was not handed out. A
member that falls silent is asked whether it still follows the leader; one that does not is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import aiohttp
import msgspec

from strata.core.errors import StrataError, Unavailable
from strata.store.etcd.gateway import Gateway, NotAsked, OutOfRange, Unanswered
from strata.store.etcd.wire import Names, RangeReply, WatchEvent, WatchLine, WatchResult, unseal
from strata.store.keys import compacted
from strata.store.protocol import Event

_LONGEST_LINE = 64 << 20


async def follow(
    gateway: Gateway, names: Names, prefix: str, start: int, offset: int
) -> AsyncGenerator[Sequence[Event], None]:
    """Changes under ``prefix`` from revision ``start`` on; ``Unavailable`` once the gateway is closed."""
    next_revision = start - offset
    while True:
        endpoint = gateway.current()
        try:
            async with aclosing(_stream(gateway, endpoint, names, prefix, next_revision)) as results:
                async for result in results:
                    if result.compact_revision:
                        raise compacted(next_revision + offset, result.compact_revision + 1 + offset)
                    events = [_event(names, e, offset) for e in result.events if e.kv.mod_revision >= next_revision]
                    # A reply's header is no position: it may be ahead of what was sent. Only events are.
                    if events:
                        next_revision = events[-1].revision - offset + 1
                        yield events
        except (NotAsked, Unanswered):
            gateway.leave(endpoint)
            await asyncio.sleep(gateway.settings.pause)


async def compacted_revision(gateway: Gateway, names: Names) -> int:
    """The revision before which etcd keeps nothing; 0 when it cannot be told. Only a watch tells it."""
    try:
        async with aclosing(_stream(gateway, gateway.current(), names, "", 1)) as results:
            async for result in results:
                if not result.created:
                    return result.compact_revision
    except (NotAsked, Unanswered):
        return 0
    return 0


def _event(names: Names, event: WatchEvent, offset: int) -> Event:
    key = names.ours(event.kv.key)
    value = None if event.type == "DELETE" else unseal(key, event.kv.value)
    return Event(event.kv.mod_revision + offset, key, value)


async def _stream(
    gateway: Gateway, endpoint: str, names: Names, prefix: str, start: int
) -> AsyncGenerator[WatchResult, None]:
    """The messages of one stream. Fragments are cut anew, so that no revision is split."""
    request = {
        "create_request": {
            "key": names.key(prefix),
            "range_end": names.end(prefix),
            # One earlier than wanted: etcd watches from the compacted revision itself, without its deletions.
            "start_revision": str(max(1, start - 1)),
            "progress_notify": True,
            "fragment": True,
        }
    }
    parts: list[WatchEvent] = []
    async with aclosing(_lines(gateway, endpoint, names, request)) as lines:
        async for line in lines:
            result = line.result
            if line.error is not None or result is None:
                raise Unanswered(f"{endpoint}: the watch ended: {line.error}")
            result.events = parts + result.events
            parts = []
            if result.fragment:
                # The last revision may go on in the next fragment; those before it are whole.
                last = result.events[-1].kv.mod_revision if result.events else 0
                parts = [e for e in result.events if e.kv.mod_revision == last]
                del result.events[len(result.events) - len(parts) :]
            yield result
            if result.canceled:
                raise Unanswered(f"{endpoint}: the watch was cancelled: {result.cancel_reason}")


async def _lines(gateway: Gateway, endpoint: str, names: Names, request: object) -> AsyncGenerator[WatchLine, None]:
    settings = gateway.settings
    decode = msgspec.json.Decoder(WatchLine, strict=False).decode
    try:
        async with asyncio.timeout(settings.attempt):
            answer = await gateway.session().post(
                f"http://{endpoint}/v3/watch", data=msgspec.json.encode(request), allow_redirects=False
            )
        async with answer:
            if answer.status != 200:
                raise Unanswered(f"{endpoint}: HTTP {answer.status}")
            pending = bytearray()
            while True:
                chunk = await _next_chunk(gateway, endpoint, names, answer)
                if not chunk:
                    raise Unanswered(f"{endpoint}: the stream ended")
                pending += chunk
                if len(pending) > _LONGEST_LINE:
                    raise Unavailable("a watch message of more than 64 MiB", where=f"etcd {endpoint}")
                if b"\n" in chunk:
                    *whole, rest = bytes(pending).split(b"\n")
                    pending = bytearray(rest)
                    for line in whole:
                        if line:
                            yield decode(line)
    except (TimeoutError, aiohttp.ClientError, OSError, msgspec.MsgspecError) as error:
        raise Unanswered(f"{endpoint}: {error or type(error).__name__}") from error
    except RuntimeError as error:
        gateway.closed_meanwhile(error)
        raise


async def _next_chunk(gateway: Gateway, endpoint: str, names: Names, answer: aiohttp.ClientResponse) -> bytes:
    """The next bytes; in silence, makes sure from time to time that the member is not cut off."""
    reading = asyncio.ensure_future(answer.content.readany())
    try:
        while True:
            done, _ = await asyncio.wait((reading,), timeout=gateway.settings.probe)
            if done:
                return await reading
            try:
                # A linearisable read: only a member that follows the leader can answer it.
                await gateway.once(endpoint, "/v3/kv/range", {"key": names.meta, "count_only": True}, RangeReply)
            except (StrataError, OutOfRange) as error:
                raise Unanswered(f"{endpoint}: {error}") from error
    finally:
        reading.cancel()
