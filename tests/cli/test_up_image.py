"""The demo image of ``strata up`` against a real repository: shown while it is built, kept, and never half made."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from strata.cli.client import Client
from strata.cli.output import Output
from strata.cli.transport import Credentials, Endpoint
from strata.cli.up import image as up_image
from strata.cli.up.image import Image
from support.image_site import ImageSite

pytestmark = pytest.mark.slow

RECIPE = """
from: scratch
files:
  - {path: /bin/sh, source: sh, mode: "0755"}
  - {path: /bin/busybox, source: sh, mode: "0755"}
run: [RUN]
"""


@pytest.fixture
def site(short_dir: Path) -> Iterator[ImageSite]:
    with ImageSite(short_dir) as made:
        yield made


@pytest.fixture
def client(site: ImageSite) -> Iterator[Client]:
    found = Client(Endpoint(f"unix:{site.directory / 'admin.sock'}"), Credentials())
    yield found
    found.close()


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe that takes no time, and a cache of its own."""
    path = tmp_path / "recipe.yaml"
    (tmp_path / "sh").write_bytes(Path("/bin/busybox").read_bytes())
    path.write_text(RECIPE.replace("RUN", "echo hello"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return path


def kept(tmp_path: Path) -> list[str]:
    return [path.suffix for path in (tmp_path / "cache" / "strata" / "images").iterdir()]


def test_the_image_is_built_once_step_by_step_and_imported_from_then_on(
    site: ImageSite, client: Client, recipe: Path, tmp_path: Path
) -> None:
    said = io.StringIO()
    up_image.make(Output(stderr=said), client, Image("demo", recipe))
    lines = said.getvalue().splitlines()
    assert lines[0].startswith("building the demo image")
    assert "image demo:1: hello" in lines
    assert "image demo:1: making the squashfs" in lines
    assert client.get("/v1/images/demo/1")["serial"] == 1
    assert kept(tmp_path) == [".tar"]

    again = io.StringIO()
    up_image.make(Output(stderr=again), client, Image("demo", recipe))
    assert again.getvalue() == ""
    client.request("DELETE", "/v1/images/demo/1")
    up_image.make(Output(stderr=again), client, Image("demo", recipe))
    assert "building" not in again.getvalue()
    assert client.get("/v1/images/demo/1")["serial"] == 2


def test_interrupted_the_build_is_cancelled_and_can_be_begun_again(
    site: ImageSite, client: Client, recipe: Path, tmp_path: Path
) -> None:
    whole = recipe.read_text()
    recipe.write_text(RECIPE.replace("RUN", "echo asleep; busybox sleep 4712"))

    class Impatient(io.StringIO):
        def write(self, text: str) -> int:
            if "asleep" in text:
                raise KeyboardInterrupt
            return super().write(text)

    with pytest.raises(KeyboardInterrupt):
        up_image.make(Output(stderr=Impatient()), client, Image("demo", recipe))
    deadline = time.monotonic() + 60
    while list((site.directory / "images" / "work").iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    recipe.write_text(whole)
    up_image.make(Output(stderr=io.StringIO()), client, Image("demo", recipe))
    assert client.get("/v1/images/demo/1")["serial"] == 1
    assert kept(tmp_path) == [".tar"]
