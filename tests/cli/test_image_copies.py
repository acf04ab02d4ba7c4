"""``strata image`` with several controllers: on how many of them an image is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_support import Run

from support.image_site import ImageSite
from support.image_support import an_image, file, folder, layer

pytestmark = pytest.mark.slow


@pytest.fixture
def site(short_dir: Path, run: Run, tmp_path: Path) -> Iterator[ImageSite]:
    archive = tmp_path / "base.tar"
    archive.write_bytes(an_image(layer(folder("etc"), file("etc/motd", b"hello"))))
    with ImageSite(short_dir) as made:
        assert run("image", "import", archive, "--name", "debian", "--tag", "12").code == 0
        yield made


def test_it_is_told_on_how_many_controllers_an_image_is(site: ImageSite, run: Run) -> None:
    site.copies = (("alpha", "beta"), ("gamma",))
    listed = run("image", "list")
    assert listed.lines[0].endswith("CONTROLLERS")
    assert listed.lines[1].endswith("2 of 3")
    assert "2 of 3: alpha, beta; not yet on gamma" in run("image", "show", "debian:12").out
    shown = run("image", "show", "debian:12", "--json").json
    assert (shown["on"], shown["not_on"]) == (["alpha", "beta"], ["gamma"])
    site.copies = ((), ("alpha", "beta"))
    assert "none; not yet on alpha, beta" in run("image", "show", "debian:12").out


def test_nothing_is_said_of_it_where_there_is_only_one(site: ImageSite, run: Run) -> None:
    site.copies = (("alpha",), ())
    assert "CONTROLLERS" not in run("image", "list").out
    assert "controllers" not in run("image", "show", "debian:12").out
    assert run("image", "list", "--columns", "name,controllers").lines[1].split() == ["debian", "1", "of", "1"]
