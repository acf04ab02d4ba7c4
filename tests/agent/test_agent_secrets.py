"""A secret's way to its node, by the real agent and the real service: it is there, and it is nowhere else."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import logging
import secrets
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from agent_process import agent_process, make_image
from test_agent_attaches import NODE, Site, run_on, until, want

from strata.agent.errors import Refused, Unreachable
from strata.agent.host.secrets import Secrets
from strata.agent.paths import Paths
from strata.api.nginx import Nginx
from strata.core import logs
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.access.sealing import Seal
from strata.platform.config.service import ConfigService
from strata.platform.secrets.delivery import ROUTE
from strata.platform.secrets.service import SecretService
from strata.provisioning.agents.door import AgentDoor
from strata.provisioning.personalities.records import Member, Mount, PersonalitySpec
from strata.provisioning.personalities.service import PersonalityService
from strata.store.dump import write_dump
from support.agent_site import AgentSite

OTHER = "n00002"
READ = (
    "/v1/secrets",
    "/v1/secrets/canary",
    "/v1/secrets/canary/status",
    "/v1/secret-identity",
    "/v1/audit",
    "/v1/nodes",
    f"/v1/nodes/{NODE}",
    f"/v1/nodes/{NODE}/agent",
    f"/v1/nodes/{NODE}/history",
    f"/v1/nodes/{NODE}/why",
    f"/v1/nodes/{OTHER}/agent",
    "/v1/status",
    "/v1/config",
    "/metrics",
)

# the agent's part alone


class Controller:
    """Answers as the service does, or not at all."""

    def __init__(self) -> None:
        self.answer: dict[str, Any] = {"secrets": {}, "keep": [], "again": 0}
        self.asked: list[dict[str, str]] = []
        self.error: Exception | None = None

    def give(self, **given: str) -> None:
        made = {
            name: {"stamp": f"{name}-1", "value": base64.b64encode(value.encode()).decode(), "uid": 0, "gid": 0}
            for name, value in given.items()
        }
        self.answer = {"secrets": made, "keep": [], "again": 0}

    def __call__(self, question: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(question["have"])
        if self.error is not None:
            raise self.error
        return self.answer


@pytest.fixture
def controller() -> Controller:
    return Controller()


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(run=tmp_path / "run")


def held_by(paths: Paths, controller: Controller) -> tuple[Secrets, list[str]]:
    said: list[str] = []
    return Secrets(paths, controller, said.append, lambda: None), said


def test_a_secret_is_for_its_owner_alone_and_goes_when_it_is_not_the_nodes_any_more(
    paths: Paths, controller: Controller
) -> None:
    kept, said = held_by(paths, controller)
    controller.give(munge="the value", other="x")
    controller.answer["secrets"]["other"]["gid"] = 12
    kept.fetch()
    file = paths.secrets / "munge"
    assert file.read_text() == "the value"
    assert stat.S_IMODE(file.stat().st_mode) == 0o400
    assert (stat.S_IMODE((paths.secrets / "other").stat().st_mode), (paths.secrets / "other").stat().st_gid) == (
        0o440,
        12,
    )
    assert stat.S_IMODE(paths.secrets.stat().st_mode) == 0o711
    assert kept.held() == {"munge": "munge-1", "other": "other-1"}
    assert "the value" not in "".join(said) + paths.secret_stamps.read_text()

    again, _ = held_by(paths, controller)  # started again: what it holds is known
    controller.answer = {"secrets": {}, "keep": ["munge"], "again": 0}
    again.fetch()
    assert controller.asked[-1] == {"munge": "munge-1", "other": "other-1"}
    assert [one.name for one in paths.secrets.iterdir()] == ["munge"]
    assert again.held() == {"munge": "munge-1"}


def test_a_file_that_somebody_removed_is_asked_for_again(paths: Paths, controller: Controller) -> None:
    kept, _ = held_by(paths, controller)
    controller.give(munge="the value")
    kept.fetch()
    (paths.secrets / "munge").unlink()
    kept.fetch()
    assert controller.asked[-1] == {}
    assert (paths.secrets / "munge").read_text() == "the value"


@pytest.mark.parametrize("error", [Unreachable("nobody"), Refused(403, "no"), Refused(503, "later")])
def test_what_a_node_has_stays_while_nobody_answers(paths: Paths, controller: Controller, error: Exception) -> None:
    kept, _ = held_by(paths, controller)
    controller.give(munge="the value")
    kept.fetch()
    controller.error = error
    with pytest.raises(type(error)):
        kept.fetch()
    assert (paths.secrets / "munge").read_text() == "the value"
    assert kept.held() == {"munge": "munge-1"}


@pytest.mark.parametrize("name", ["../boot.json", ".hidden", "a/b", ""])
def test_a_name_that_leads_elsewhere_is_refused(paths: Paths, controller: Controller, name: str) -> None:
    kept, _ = held_by(paths, controller)
    controller.give(munge="x")
    controller.answer["secrets"] = {name: controller.answer["secrets"]["munge"]}
    with pytest.raises(Unreachable, match="invalid name"):
        kept.fetch()
    assert not paths.boot.exists()
    assert [*paths.secrets.iterdir()] == []


@pytest.mark.parametrize("one", [{}, {"value": "?", "uid": 0, "gid": 0, "stamp": "1"}, None])
def test_an_answer_that_makes_no_sense_costs_nothing_that_is_there(
    paths: Paths, controller: Controller, one: Any
) -> None:
    kept, _ = held_by(paths, controller)
    controller.give(munge="the value")
    kept.fetch()
    controller.answer["secrets"] = {"other": one}
    with pytest.raises(Unreachable, match="came damaged"):
        kept.fetch()
    assert [file.name for file in paths.secrets.iterdir()] == ["munge"]


# all of it


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    made = Site(tmp_path)
    await made.identity.start()
    nginx = Nginx(made.door)
    await nginx.start()
    yield made
    await nginx.stop()
    await made.identity.stop()
    await made.store.close()


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """Everything that is logged, before anything is blacked out."""
    root = logging.getLogger()
    before = (list(root.handlers), root.level)
    stream = io.StringIO()
    logs.setup(form="json", level="debug", stream=stream)
    root.addHandler(logging.StreamHandler(stream))
    root.setLevel(logging.DEBUG)
    yield stream
    root.handlers, root.level = before


async def strata(served: AgentSite, *words: str, given: str = "") -> str:
    """A command, as a person runs it; all that it printed."""
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).parent / "strata"), "--url", f"unix:{served.admin}", *words,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said = (await process.communicate(given.encode()))[0].decode()
    assert process.returncode == 0, said
    return said


def forms(value: str) -> list[bytes]:
    """A value as it may be found: plain, and inside of base64, wherever it begins there."""
    shifted = (base64.b64encode(b"x" * shift + value.encode()) for shift in range(3))
    return [value.encode(), value.encode().hex().encode(), *(text[4:-4] for text in shifted)]


def processes() -> bytes:
    """What every process of the machine was started with."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                found.append((place / name).read_bytes())
            except OSError:
                continue  # it has ended
    return b"\n".join(found)


@pytest.mark.slow
@pytest.mark.server
async def test_a_canary_is_on_its_node_and_nowhere_else(site: Site, log: io.StringIO, tmp_path: Path) -> None:
    canaries = [f"CANARY-{secrets.token_hex(16)}" for _ in range(2)]
    said: list[str] = []
    async with site.serving(nodes=2) as served:
        fleet = served.service
        fleet.put(served.hub)
        fleet.put(Seal.load(tmp_path / "secrets.key", make=True))
        await fleet.keep(fleet.put(ConfigService(fleet)))
        await fleet.keep(fleet.put(SecretService(fleet)))
        with agent_process(tmp_path / "own") as own, agent_process(tmp_path / "other") as other:
            own.start(await site.boot())
            other.start(await site.boot(OTHER))
            await until(lambda: served.hub.attached(NODE) and served.hub.attached(OTHER), 120)
            site.publish("demo:1", make_image(tmp_path / "image", "exec /bin/sleep 1000\n"), 1)
            member = Member(
                name="system",
                release="demo:1",
                argv=("/bin/sh", "/service"),
                mounts=(Mount(source=str(own.run / "secrets"), target="/run/secrets"),),
            )
            await served.services.get(PersonalityService).put(
                LOCAL_ADMIN, "compute", PersonalitySpec(members=(member,)), None
            )
            await want(served, power="on", os="up", image="compute", personality="active")
            await until(lambda: served.fact(NODE, "personality") == "active", 120)
            assert (await run_on(served, "/bin/ls", "/run/secrets")).output == ""
            said.append(await strata(served, "secret", "init"))
            place = own.run / "secrets" / "canary"
            put = ("secret", "put", "canary", "--select", NODE, "--json")
            said.append(await strata(served, *put, given=canaries[0]))
            await until(lambda: place.is_file() and place.read_text() == canaries[0], 120)
            assert stat.S_IMODE(place.stat().st_mode) == 0o400
            said.append(await strata(served, "secret", "rotate", "canary", "--wait", "--json", given=canaries[1]))
            assert json.loads(said[-1])["status"]["current"] == NODE
            assert place.read_text() == canaries[1]

            assert (await run_on(served, "/bin/test", "-s", "/run/secrets/canary")).exit == 0, "its personality has it"
            of_other = await served.services.get(AgentDoor).more[ROUTE](OTHER, b"{}")
            assert json.loads(of_other) == {"secrets": {}, "keep": [], "again": 0.0}
            transport = httpx.AsyncHTTPTransport(uds=str(served.admin))
            async with httpx.AsyncClient(transport=transport, base_url="http://strata") as client:
                answers = [await client.get(path) for path in READ]
            assert [(a.url.path, a.status_code) for a in answers if a.status_code != 200] == []
            said += [await strata(served, *words) for words in (("secret", "list"), ("secret", "show", "canary"))]
            entries = (await site.store.range("")).entries
            write_dump(tmp_path / "backup", await site.store.revision(), entries)
            running = processes()
            files = [file for file in tmp_path.rglob("*") if file.is_file() and file != place]
            everything = {
                "answers": b"".join(answer.content for answer in answers),
                "another node's answer": of_other,
                "commands": "".join(said).encode(),
                "processes": running,
                "the log": log.getvalue().encode(),
                "the store": b"".join(entry.value for entry in entries),
                **{str(file): file.read_bytes() for file in files},
            }
            assert str(tmp_path / "own" / "run" / "secrets.json") in everything
            assert str(tmp_path / "backup") in everything and len(everything["the log"]) > 1000
            found = [
                where for where, text in everything.items() for one in canaries for form in forms(one) if form in text
            ]
            assert found == []

            await fleet.of(SecretService).delete(LOCAL_ADMIN, "canary")
            await until(lambda: not place.exists(), 120)
            await fleet.stop()
    assert site.alarms == []
