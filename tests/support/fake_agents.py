"""Agents that run on no node: they speak the wire over the service's own socket, and behave badly when told to."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp

Json = dict[str, Any]

FRONT_SECRET = "as nginx would say it"
"""What services of these tests know nginx by."""


def node_headers(name: str, serial: str) -> dict[str, str]:
    """What nginx says of a node's certificate."""
    return {
        "X-Strata-Client-Verify": "SUCCESS",
        "X-Strata-Client-Serial": serial,
        "X-Strata-Client-DN": f"OU=role:node,CN={name},O=Strata",
    }


class FakeAgent:
    """One agent. ``run`` until cancelled."""

    def __init__(self, http: aiohttp.ClientSession, name: str, serial: str = "A1", *, generation: int = 1) -> None:
        self.http = http
        self.name = name
        self.serial = serial
        self.generation = generation
        self.boot_id = str(uuid.uuid4())
        self.started = 1000.0
        self.seq = 0
        self.wait = 5.0
        self.profile = "default@abc"
        self.set: Json = {"name": "", "digest": "", "state": "idle", "reason": "", "members": []}
        self.loaded: list[str] = []
        self.metrics: Json = {}
        self.took: list[Json] = []
        """Every command that it carried out, in order."""
        self.results: list[Json] = []
        self.lose_replies = 0
        """Replies that never reach it."""
        self.refuse: Callable[[Json], str] = lambda command: ""
        """Says why a command fails."""
        self.silent = False
        """It takes commands and never answers them."""
        self.output = b"hello\n"
        self._known: set[str] = set()
        self._doing: list[str] = []

    def body(self) -> Json:
        self.seq += 1
        return {
            "generation": self.generation,
            "boot_id": self.boot_id,
            "seq": self.seq,
            "wait": self.wait,
            "state": {
                "uptime": 5.0,
                "agent": {"version": "1", "started": self.started, "cpu_s": 0.1},
                "profile": self.profile,
                "set": self.set,
                "loaded": self.loaded,
                "health": {"ok": True, "problems": []},
                "metrics": self.metrics,
            },
            "results": self.results,
            "doing": self._doing,
        }

    async def post(self, route: str, body: Json) -> tuple[int, Json]:
        headers = node_headers(self.name, self.serial)
        async with self.http.post(f"http://strata/agent/v1/{route}", json=body, headers=headers) as reply:
            return reply.status, await reply.json()

    async def exchange(self) -> tuple[int, Json]:
        """One exchange, and what it brings is done."""
        status, reply = await self.post("exchange", self.body())
        if self.lose_replies and (reply.get("commands") or status != 200):
            self.lose_replies -= 1
            return status, {}
        if status == 200:
            acked = reply["acked"]
            self.results = [result for result in self.results if result["id"] not in acked]
            self._doing = [ident for ident in self._doing if ident not in acked]
            for command in reply["commands"]:
                self._take(command)
        return status, reply

    async def run(self) -> None:
        """Go on like an agent: back-off when nobody answers."""
        pause = 0.01
        while True:
            try:
                status, reply = await self.exchange()
                pause = 0.01 if status == 200 else min(1.0, pause * 2)
                await asyncio.sleep(reply.get("pause", 0) if status == 200 else pause)
            except (TimeoutError, aiohttp.ClientError, OSError):
                await asyncio.sleep(pause)
                pause = min(1.0, pause * 2)

    def _take(self, command: Json) -> None:
        if command["id"] in self._known:
            return
        self._known.add(command["id"])
        self._doing.append(command["id"])
        self.took.append(command)
        if self.silent:
            return
        error = self.refuse(command)
        result: Json = {"id": command["id"], "ok": not error, "error": error}
        if not error:
            getattr(self, f"_{command['kind']}")(command, result)
        self.results.append(result)

    def _load(self, command: Json, _: Json) -> None:
        self.loaded.append(command["set"]["digest"])
        self.set |= {"name": command["set"]["name"], "digest": command["set"]["digest"], "state": "idle"}

    def _start(self, command: Json, _: Json) -> None:
        assert command["digest"] == self.set["digest"]
        self.set["state"] = "active"

    def _stop(self, _: Json, __: Json) -> None:
        self.set["state"] = "idle"

    def _switch(self, command: Json, _: Json) -> None:
        self._load(command, {})
        self.set["state"] = "active"

    def _exec(self, _: Json, result: Json) -> None:
        result |= {"exit": 0, "output": base64.b64encode(self.output).decode(), "truncated": False}

    def _cancel(self, command: Json, _: Json) -> None:
        self._doing = [ident for ident in self._doing if ident != command["of"]]

    def _limits(self, _: Json, result: Json) -> None:
        result["output"] = base64.b64encode(json.dumps({"governor": "performance"}).encode()).decode()


@contextlib.asynccontextmanager
async def running(*agents: FakeAgent) -> AsyncIterator[None]:
    """The agents at work, for the length of the block."""
    tasks = [asyncio.create_task(agent.run()) for agent in agents]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def http_over(path: Path) -> aiohttp.ClientSession:
    """A client of the service at a local socket."""
    headers = {"X-Strata-Front-Secret": FRONT_SECRET}
    return aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path), limit=0), headers=headers)


class CrowdAgent(asyncio.Protocol):
    """An agent that does no more than it must: thousands of them fit into a test."""

    def __init__(self, name: str, serial: str = "A1") -> None:
        headers = {
            **node_headers(name, serial),
            "X-Strata-Front-Secret": FRONT_SECRET,
            "Host": "strata",
            "Content-Type": "application/json",
        }
        self._head = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
        self._seq = 0
        self._received = b""
        self._transport: asyncio.Transport | None = None
        self.done = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask([])

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found or len(body) < int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]):
            return
        self._received = b""
        assert head.startswith(b"HTTP/1.1 200"), (head, body)
        told = json.loads(body)["commands"]
        self.done += len(told)
        output = base64.b64encode(b"hello\n").decode()
        self._ask([{"id": command["id"], "ok": True, "exit": 0, "output": output} for command in told])

    def _ask(self, results: list[Json]) -> None:
        self._seq += 1
        state = {"agent": {"version": "1", "started": 1.0}, "profile": "default@abc"}
        request = {"generation": 1, "boot_id": "b", "seq": self._seq, "wait": 20, "state": state, "results": results}
        body = json.dumps(request).encode()
        assert self._transport is not None
        head = f"POST /agent/v1/exchange HTTP/1.1\r\n{self._head}Content-Length: {len(body)}\r\n\r\n"
        self._transport.write(head.encode() + body)

    def leave(self) -> None:
        if self._transport is not None:
            self._transport.abort()


@contextlib.asynccontextmanager
async def crowd(path: Path, names: list[str]) -> AsyncIterator[list[CrowdAgent]]:
    """Many agents at the socket at ``path``, for the length of the block."""
    loop = asyncio.get_running_loop()
    agents = [CrowdAgent(name) for name in names]
    room = asyncio.Semaphore(200)  # the socket's backlog is not endless

    async def attach(agent: CrowdAgent) -> None:
        async with room:
            await loop.create_unix_connection(lambda: agent, str(path))

    await asyncio.gather(*(attach(agent) for agent in agents))
    try:
        yield agents
    finally:
        for agent in agents:
            agent.leave()
        await asyncio.sleep(0)
