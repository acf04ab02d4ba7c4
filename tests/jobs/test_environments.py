"""Work environments: versions, what is derived, and that nothing counts that was not tested."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from container_support import small_image

from strata.core.errors import BadRequest, Denied, NotFound, Refused
from strata.daemon.running import running
from strata.daemon.settings import Settings
from strata.fleet.access.principal import LOCAL_ADMIN, Principal
from strata.fleet.settings import ListenSettings
from strata.hardware.settings import HardwareSettings
from strata.jobs.containers.records import Bind
from strata.jobs.environments.files import read_environments
from strata.jobs.environments.records import (
    Environment,
    EnvironmentSpec,
    Promotion,
    Version,
    container,
    derive,
    pinned,
    promote,
)
from strata.jobs.environments.service import EnvironmentService

BASE = EnvironmentSpec(
    image="pytorch:2",
    modules=("ucx",),
    binds=(Bind(source="/scratch"), Bind(source="/sw", read_only=True)),
    env={"A": "1", "B": "1"},
    home="user",
    devices=("given",),
    defaults={"cores": 4},
    test=("true",),
)
DIGEST = f"sha256:{'a' * 64}"


def an_environment(spec: EnvironmentSpec) -> Environment:
    version = Version(number=1, spec=spec, whole=derive(None, spec), author="alice", time=1.0)
    return Environment(name="pytorch", owner="alice", versions=(version,))


def test_what_is_derived_says_more_or_something_else_and_keeps_the_rest() -> None:
    more = EnvironmentSpec(
        based_on="x", modules=("cuda", "ucx"), binds=(Bind(source="/sw"),), env={"B": "2"}, writable=True
    )
    whole = derive(BASE, more)
    assert whole.image == "pytorch:2" and whole.modules == ("ucx", "cuda") and whole.env == {"A": "1", "B": "2"}
    assert whole.binds == (Bind(source="/scratch"), Bind(source="/sw")), "what it says of a place rules"
    assert (whole.home, whole.writable, whole.test, whole.based_on) == ("user", True, ("true",), "")


def test_a_job_gets_the_container_of_its_environment_and_what_it_says_rules() -> None:
    made = container(BASE, runtime="podman", home="none")
    assert made is not None and (made.image, made.runtime, made.home) == ("pytorch:2", "podman", "none")
    assert container(EnvironmentSpec(modules=("gcc",))) is None, "on the node itself"


def test_a_version_counts_only_after_its_test_has_passed_and_pins_the_image_that_was_tested() -> None:
    tested = Promotion(version=1, passed=True, digest=DIGEST)
    done = promote(an_environment(BASE), tested, "alice", 2.0)
    assert done.current == 1 and pinned(done.version()).image == f"pytorch:2@{DIGEST}"
    with pytest.raises(Refused, match="test failed"):
        promote(an_environment(BASE), msgspec.structs.replace(tested, passed=False), "alice", 2.0)
    with pytest.raises(Refused, match="has no test"):
        promote(an_environment(msgspec.structs.replace(BASE, test=())), tested, "alice", 2.0)
    with pytest.raises(BadRequest, match="which image"):
        promote(an_environment(BASE), Promotion(version=1, passed=True), "alice", 2.0)
    with pytest.raises(NotFound, match="no version 7; there are 1"):
        promote(an_environment(BASE), Promotion(version=7, passed=True), "alice", 2.0)


def test_the_examples_of_the_page_can_be_read() -> None:
    text = (Path(__file__).parents[2] / "docs/how-to/examples/environments.yaml").read_text()
    found = read_environments(text, "environments.yaml")
    assert sorted(found) == ["mpi", "pydata", "pytorch", "spark"] and all(spec.test for spec in found.values())
    with pytest.raises(BadRequest, match="imagee"):
        read_environments("name: x\nimagee: y\n", "file")


@pytest.mark.slow
@pytest.mark.server
async def test_an_environment_is_put_tested_promoted_used_and_derived_by_commands(tmp_path: Path) -> None:
    settings = Settings(
        state_dir=tmp_path / "state",
        controller_id="c1",
        layers=("jobs",),
        listen=ListenSettings(tls=False),
        hardware=HardwareSettings(poll=False, consoles=False),
    )
    image = small_image(tmp_path / "image")
    told = os.environ | {"STRATA_CONTAINERS": str(tmp_path / "images"), "STRATA_STATE": str(settings.state_dir)}

    def strata(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "strata.cli", "environment", *words]
        return subprocess.run(command, env=told, capture_output=True, text=True, timeout=240, check=False)

    async def said(*words: str, status: int = 0) -> str:
        done = await asyncio.to_thread(strata, *words)
        assert done.returncode == status, (words, done.stdout, done.stderr)
        return done.stdout + done.stderr

    spec = {"name": "small", "image": f"oci:{image}", "env": {"MINE": "yes"}, "test": ["/bin/sh", "-c", 'test "$MINE"']}
    file = tmp_path / "small.yaml"
    async with running(settings) as fleet:
        file.write_text(json.dumps({**spec, "test": ["/bin/sh", "-c", "exit 3"]}))
        await said("put", str(file))
        assert "test failed" in await said("promote", "small", "--runtime", "bubblewrap", status=3)
        file.write_text(json.dumps(spec))
        await said("put", str(file))
        shown = json.loads(await said("promote", "small", "--runtime", "bubblewrap", "--json"))
        assert (shown["current"], shown["promoted"], shown["versions"][-1]["tested"]["runtime"]) == (
            2,
            True,
            "bubblewrap",
        )
        await said("derive", "small", "mine", "--env", "MORE=too")
        program = ("/bin/sh", "-c", 'echo "$MINE $MORE"; exit 5')
        both = await said("run", "mine", "--runtime", "bubblewrap", "--", *program, status=5)
        assert both == "yes too\n"
        await _rules_hold(fleet.of(EnvironmentService))


async def _rules_hold(service: EnvironmentService) -> None:
    """Of others, of tags that move, of parents that go."""
    bob = Principal(name="bob", role="viewer")
    with pytest.raises(Denied, match="local-admin's"):
        await service.put(bob, "small", BASE, None)
    mine = await service.put(bob, "bobs", EnvironmentSpec(based_on="small"), None)
    assert mine.owner == "bob" and mine.versions[0].parent == "small@2"
    with pytest.raises(BadRequest, match="from itself"):
        await service.put(bob, "bobs", EnvironmentSpec(based_on="bobs"), None)
    await service.delete(LOCAL_ADMIN, "small", None)
    assert (await service.show(bob, "bobs")).whole.env == {"MINE": "yes"}, "what was derived stays"
    await service.put(bob, "named", EnvironmentSpec(image="pytorch:2", test=("true",)), None)
    with pytest.raises(NotFound):  # nobody could get what was tested
        await service.promote(bob, "named", Promotion(version=1, passed=True, digest=DIGEST))
