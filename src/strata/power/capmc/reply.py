"""Replies as CAPMC writes them: an ``e`` and an ``err_msg`` always, lists of nodes built by columns."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

_encode = msgspec.json.Encoder().encode

EINVAL = errno.EINVAL
EBADE = errno.EBADE
NO_DATA = 66
"""What CAPMC calls ENODATA, whatever this system's number of it is."""
SUCCESS = "Success"
UNDEFINED = "Undefined NID"
MANY = 5000
"""Nodes of a reply that is not written in the event loop any more."""

T = TypeVar("T")


class Reply(msgspec.Struct, frozen=True):
    """What goes out."""

    status: int
    body: bytes


class Refusal(Exception):
    """A request that is not done. ``more``: what the reply says beyond ``e`` and ``err_msg``."""

    def __init__(
        self, status: int, message: str, *, e: int | None = None, more: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.reply = reply(e=status if e is None else e, err_msg=message, status=status, **(more or {}))


def reply(*, e: int = 0, err_msg: str = "", status: int = 200, **more: Any) -> Reply:
    return Reply(status, _encode({"e": e, "err_msg": err_msg, **more}))


def columns(parts: Mapping[str, bytes], *, e: int = 0, err_msg: str = "", **more: Any) -> Reply:
    """A reply some of whose members are JSON text already."""
    head = _encode({"e": e, "err_msg": err_msg, **more})[:-1]
    return Reply(200, b"".join([head, *(b',"%s":%s' % (key.encode(), text) for key, text in parts.items()), b"}"]))


async def aside(count: int, work: Callable[[], T]) -> T:
    """Do work on so many nodes without keeping everybody else waiting. It may use nothing that others change."""
    return await asyncio.to_thread(work) if count > MANY else work()


def integers(values: Iterable[int]) -> bytes:
    return b"[" + ",".join(map(str, values)).encode() + b"]"


def objects(texts: Iterable[str]) -> bytes:
    """A JSON list of members that are JSON text already."""
    return b"[" + ",".join(texts).encode() + b"]"


def quoted(text: str) -> str:
    return _encode(text).decode()


def said(number: int) -> str:
    """What the system calls an error."""
    return os.strerror(errno.ENODATA if number == NO_DATA else number)


def of_nids(errors: Mapping[int, str], e: int) -> list[dict[str, Any]]:
    """The ``nids`` of a failure."""
    return [{"nid": nid, "e": e, "err_msg": why} for nid, why in errors.items()]


def undefined(nids: Iterable[int]) -> Refusal:
    """Some NIDs are nobody's: told in the reply, with HTTP's blessing."""
    return Refusal(200, said(EINVAL), e=EINVAL, more={"nids": of_nids(dict.fromkeys(nids, UNDEFINED), EINVAL)})
