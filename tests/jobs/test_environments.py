"""Work environments: versions, what is derived, and that nothing counts that was not tested."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from container_support import USER, becoming, give, small_image, strata

from strata.core.errors import BadRequest, Conflict, Denied, NotFound, Refused
from strata.fleet.access.principal import Principal
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
from strata.jobs.resources import Asked
from strata.provisioning.images.service import ImageService
from support.job_site import ALICE, BOB, OPERATOR, job_site

BASE = EnvironmentSpec(
    image="pytorch:2",
    modules=("ucx",),
    binds=(Bind(source="/scratch"), Bind(source="/sw", read_only=True)),
    env={"A": "1", "B": "1"},
    home="user",
    devices=("given",),
    defaults=Asked(cores=4, memory=16384),
    test=("true",),
)
OWNER = USER + 1
"""Not the user of other tests, who see to it that nothing of theirs is left."""
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


@pytest.fixture
def own_service(open_dir: Path) -> Iterator[Path]:
    """The home of a user who runs a service of their own: nobody starts a container as root."""
    if os.geteuid():
        pytest.skip("only root can become somebody else")
    home, log_file = open_dir / "home", open_dir / "log"
    home.mkdir()
    small_image(home / "image")
    give(home, OWNER)
    command = [sys.executable, "-m", "strata.cli", "serve", "jobs", "--config", os.devnull, "--listen", "127.0.0.1:0"]
    told = {"PATH": os.environ["PATH"], "HOME": str(home), "STRATA_STATE": str(home / "s")}
    with log_file.open("wb") as log:
        process = subprocess.Popen([*becoming(OWNER), *command], env=told, stdout=log, stderr=log, cwd="/")
    try:
        deadline = time.monotonic() + 120
        while not (home / "s/url").exists():
            assert process.poll() is None and time.monotonic() < deadline, log_file.read_text()[-3000:]
            time.sleep(0.05)
        yield home
    finally:
        process.terminate()
        process.wait(120)


@pytest.mark.slow
@pytest.mark.server
def test_an_environment_is_put_tested_promoted_used_and_derived_by_commands(own_service: Path) -> None:
    def said(*words: str, status: int = 0) -> str:
        done = strata(own_service, "environment", *words, env={"STRATA_STATE": str(own_service / "s")}, user=OWNER)
        assert done.returncode == status, (words, done.stdout, done.stderr)
        return done.stdout + done.stderr

    test = ["/bin/sh", "-c", 'test "$MINE"']
    spec = {"name": "small", "image": f"oci:{own_service}/image", "env": {"MINE": "yes"}, "test": test}
    file = own_service / "small.yaml"
    file.write_text(json.dumps({**spec, "test": ["/bin/sh", "-c", "exit 3"]}))
    said("put", str(file))
    assert "test failed" in said("promote", "small", status=3)
    file.write_text(json.dumps(spec))
    said("put", str(file))
    shown = json.loads(said("promote", "small", "--runtime", "bubblewrap", "--json"))
    assert (shown["current"], shown["promoted"]) == (2, True)
    assert shown["versions"][-1]["tested"]["runtime"] == "bubblewrap"
    said("derive", "small", "mine", "--env", "MORE=too")
    assert said("run", "mine", "--", "/bin/sh", "-c", 'echo "$MINE $MORE"; exit 5', status=5) == "yes too\n"


class Repository(ImageService):
    """One image, whatever it is called."""

    def __init__(self) -> None:
        self.stands_for = DIGEST

    async def show(self, who: Principal, name: str, tag: str) -> Any:
        return SimpleNamespace(image=self.stands_for)


async def test_whose_environments_are_and_what_becomes_of_those_that_derive_from_them(open_dir: Path) -> None:
    async with job_site(open_dir) as site:
        service = await site.fleet.keep(EnvironmentService(site.fleet))
        await service.put(ALICE, "base", EnvironmentSpec(image="pytorch:2", env={"A": "1"}, test=("true",)), None)
        with pytest.raises(Denied, match="alice's"):
            await service.put(BOB, "base", BASE, None)
        with pytest.raises(Refused, match="no version of base has been promoted"):
            await service.put(BOB, "bobs", EnvironmentSpec(based_on="base"), None)
        repository = Repository()
        site.fleet.put(repository, ImageService)
        tested = Promotion(version=1, passed=True, digest=DIGEST)
        repository.stands_for = f"sha256:{'b' * 64}"
        with pytest.raises(Conflict, match="stands for sha256:bbb"):
            await service.promote(ALICE, "base", tested)
        repository.stands_for = DIGEST
        await service.promote(ALICE, "base", tested)
        bobs = await service.put(BOB, "bobs", EnvironmentSpec(based_on="base"), None)
        assert bobs.owner == "bob" and bobs.versions[0].parent == "base@1"
        with pytest.raises(BadRequest, match="from itself"):
            await service.put(BOB, "bobs", EnvironmentSpec(based_on="bobs"), None)
        await service.put(OPERATOR, "base", EnvironmentSpec(image="other:1", test=("true",)), None)
        assert (await service.show(BOB, "base")).whole.image == f"pytorch:2@{DIGEST}", "what was promoted counts"
        await service.delete(OPERATOR, "base", None)
        assert (await service.show(BOB, "bobs")).whole.env == {"A": "1"}, "what was derived stays"
