"""A command on many nodes, by the agents that are attached here or to other controllers: answers as they come.

To another controller it is one request; its answer is a line of JSON for each node. Whoever stops reading stops the
command, here and there.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from strata.core.errors import OutcomeUnknown, StrataError
from strata.core.input.decoding import UNREADABLE, decoded
from strata.fleet.peers.client import PeerClient
from strata.fleet.peers.peers import Peer
from strata.provisioning.agents.agent import Command
from strata.provisioning.agents.hub import Hub
from strata.provisioning.agents.wire import Result

ROUTE = "exec"

SILENT = "its agent gave no answer"

_SENT_AT_ONCE = 500
_BREATH = 15.0  # seconds of silence after which an empty line tells that the command is still being waited for


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be run."""

    argv: tuple[str, ...]
    where: str
    timeout: Annotated[float, Meta(gt=0, le=3600)]
    stdin: bytes = b""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What one node answered; ``result`` None: nothing, and ``error`` says why."""

    node: str
    result: Result | None = None
    error: str = ""


class _Ask(msgspec.Struct, frozen=True, kw_only=True):
    order: Order
    nodes: tuple[str, ...]


class _Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    answer: Answer
    same: bool = False
    """Its output is that of the line before: a fleet mostly says the same."""


_encode = msgspec.json.Encoder().encode
_ask = msgspec.json.Decoder(_Ask).decode
_line = msgspec.json.Decoder(_Line).decode


async def on_agents(hub: Hub, names: Sequence[str], order: Order) -> AsyncIterator[Answer]:
    """Have it run by the agents that are attached here."""
    body: dict[str, Any] = {"argv": list(order.argv), "where": order.where}
    if order.stdin:
        body["stdin"] = base64.b64encode(order.stdin).decode()
    ended: asyncio.Queue[Command] = asyncio.Queue()
    running: set[Command] = set()
    try:
        for place, name in enumerate(names):
            try:
                command = hub.send(name, "exec", body, timeout=order.timeout)
            except StrataError as error:
                yield Answer(node=name, error=error.detail)
                continue
            running.add(command)
            command.result.add_done_callback(partial(_note, ended, command))
            if place % _SENT_AT_ONCE == _SENT_AT_ONCE - 1:
                await asyncio.sleep(0)
        while running:
            command = await ended.get()
            running.discard(command)
            result = command.result.result()
            yield Answer(node=command.node, result=result, error="" if result else SILENT)
    finally:
        for command in running:
            hub.cancel(command)


def _note(ended: asyncio.Queue[Command], command: Command, _: object) -> None:
    ended.put_nowait(command)


async def on_peer(client: PeerClient, peer: Peer, names: Sequence[str], order: Order) -> AsyncIterator[Answer]:
    """Have it run by the agents of another controller."""
    body = _encode(_Ask(order=order, nodes=tuple(names)))
    output = b""
    async with contextlib.aclosing(client.lines(peer, ROUTE, body, silence=4 * _BREATH)) as lines:  # type: ignore[type-var]
        async for line in lines:
            try:
                told = _line(line)
            except UNREADABLE:
                raise OutcomeUnknown(f"the answer of controller {peer.controller} cannot be read") from None
            answer = told.answer
            if answer.result is not None:
                output = output if told.same else answer.result.output
                answer = msgspec.structs.replace(answer, result=msgspec.structs.replace(answer.result, output=output))
            elif answer.error:
                answer = msgspec.structs.replace(answer, error=f"{answer.error} (controller {peer.controller})")
            yield answer


async def for_peer(hub: Hub, body: bytes) -> AsyncIterator[bytes]:
    """The other end of ``on_peer``."""
    asked = decoded(_ask, body)
    answers = on_agents(hub, asked.nodes, asked.order)
    output: bytes | None = None
    following = asyncio.ensure_future(anext(answers, None))
    try:
        while True:
            done, _ = await asyncio.wait({following}, timeout=_BREATH)
            if not done:
                yield b"\n"
                continue
            answer = following.result()
            if answer is None:
                return
            same = False
            if (result := answer.result) is not None:
                same, output = result.output == output, result.output
                if same:
                    answer = msgspec.structs.replace(answer, result=msgspec.structs.replace(result, output=b""))
            yield _encode(_Line(answer=answer, same=same)) + b"\n"
            following = asyncio.ensure_future(anext(answers, None))
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await answers.aclose()  # type: ignore[attr-defined]
