"""``strata image`` against a real repository: what people type, and what they read."""

from __future__ import annotations

import json
import os
import random
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_support import Run

from strata.provisioning.images.commands.tags import short
from support.image_site import ImageSite
from support.image_support import an_image, file, folder, layer

pytestmark = pytest.mark.slow

BASE = layer(folder("etc"), file("etc/motd", b"hello"), file("bin/run", b"#!/bin/sh\n", mode=0o755))
MORE = layer(file("etc/issue", b"new"))


@pytest.fixture
def site(short_dir: Path) -> Iterator[ImageSite]:
    with ImageSite(short_dir) as made:
        yield made


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "base.tar"
    path.write_bytes(an_image(BASE))
    return path


@pytest.fixture
def later(tmp_path: Path) -> Path:
    path = tmp_path / "later.tar"
    path.write_bytes(an_image(BASE, MORE))
    return path


def test_an_image_is_imported_listed_and_shown(site: ImageSite, run: Run, archive: Path) -> None:
    done = run("image", "import", archive, "--name", "debian", "--tag", "12")
    assert done.code == 0, done.err
    assert "making the squashfs" in done.err
    assert "sending" not in done.err  # so little is sent at once
    assert run("image", "list", "--columns", "name,tag,serial").lines[1].split() == ["debian", "12", "1"]
    shown = run("image", "show", "debian:12", "--json").json
    assert (shown["argv"], shown["files"], shown["here"], len(shown["layers"])) == (["/bin/run"], 4, True, 1)
    assert "/bin/run" in run("image", "show", "debian:12").out
    assert list((site.directory / "images/uploads").iterdir()) == []


def test_a_layout_in_a_directory_is_imported_too(site: ImageSite, run: Run, archive: Path, tmp_path: Path) -> None:
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "layout")
    assert run("image", "import", tmp_path / "layout", "--name", "a").code == 0


def test_the_unpacked_directory_of_an_export_is_as_signed_as_the_file(
    site: ImageSite, run: Run, archive: Path, later: Path, tmp_path: Path
) -> None:
    run("image", "import", archive, "--name", "a")
    run("image", "export", "a:latest", tmp_path / "a.tar")
    with tarfile.open(tmp_path / "a.tar") as tar:
        tar.extractall(tmp_path / "layout")
    assert run("image", "import", tmp_path / "layout", "--name", "a", "--json").json["serial"] == 1
    run("image", "import", later, "--name", "a")
    done = run("image", "import", tmp_path / "layout", "--name", "a")
    assert done.code == 1
    assert "release 1 of a is offered, and 2 is known already" in done.err
    assert run("image", "import", tmp_path / "layout", "--name", "a", "--unsigned", "--json").json["serial"] == 3
    assert run("image", "show", "a", "--json").json["tag"] == "latest"


def test_a_large_archive_goes_up_in_pieces(site: ImageSite, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "large.tar"
    path.write_bytes(layer(folder("etc"), file("etc/noise", random.Random(1).randbytes(20 << 20))))
    done = run("image", "import", path, "--name", "large")
    assert done.code == 0, done.err
    assert "sending large.tar: 8/20 MiB" in done.err
    assert "sending large.tar: 20/20 MiB" in done.err
    assert run("image", "verify", "large").lines == ["large:latest is sound"]


def test_promotion_and_the_way_back(site: ImageSite, run: Run, archive: Path, later: Path) -> None:
    run("image", "import", archive, "--name", "sys", "--tag", "v1")
    assert run("image", "tag", "sys:v1", "sys:prod").code == 0
    run("image", "import", later, "--name", "sys", "--tag", "v2")
    assert run("image", "tag", "sys:v2", "sys:prod").code == 5
    assert run("image", "promote", "sys:v2", "sys:prod", "--json").json["serial"] == 4
    back = run("image", "promote", "sys@2", "sys:prod", "--json").json
    assert (back["serial"], back["image"]) == (5, run("image", "show", "sys:v1", "--json").json["image"])
    assert "sys@4 (prod)" in run("image", "show", "sys:prod").out


def test_differences_are_named_and_are_exit_code_1(site: ImageSite, run: Run, archive: Path, later: Path) -> None:
    run("image", "import", archive, "--name", "a", "--tag", "1")
    run("image", "import", later, "--name", "a", "--tag", "2")
    found = run("image", "diff", "a:1", "a:2")
    assert (found.code, found.lines) == (1, ["+ /etc/issue"])
    assert run("image", "diff", "a:1", "a@1").code == 0
    assert run("image", "diff", "a:1", "a:2", "--json").json["added"] == 1


def test_deleting_undeleting_and_collecting(site: ImageSite, run: Run, archive: Path) -> None:
    run("image", "import", archive, "--name", "a", "--tag", "1")
    assert run("image", "delete", "a:1").code == 0
    assert run("image", "show", "a:1").code == 1
    assert run("image", "undelete", "a:1", "--json").json["serial"] == 2
    run("image", "delete", "a:1")
    assert run("image", "gc", "--json").json["images"] == []
    dry = run("image", "gc", "--keep", "0s", "--dry-run").out
    assert "1 image" in dry
    assert "would be removed" in dry
    assert "removed" in run("image", "gc", "--keep", "0s").out
    assert list((site.directory / "images/squashfs").iterdir()) == []


def test_collecting_says_what_stays_because_nodes_run_it(site: ImageSite, run: Run, archive: Path) -> None:
    run("image", "import", archive, "--name", "a", "--tag", "1")
    shown = run("image", "show", "a:1", "--json").json
    run("image", "delete", "a:1")
    site.held = frozenset({shown["squashfs"]})
    done = run("image", "gc", "--keep", "0s")
    assert done.lines[0].startswith("0 images, 0 files")
    assert done.lines[1] == f"kept, because nodes run them: {short(shown['image'])}"
    assert run("image", "gc", "--keep", "0s", "--json").json["held"] == [shown["image"]]
    assert list((site.directory / "images/squashfs").iterdir()) != []


def test_an_image_that_nodes_may_run_is_not_deleted(site: ImageSite, run: Run, archive: Path) -> None:
    run("image", "import", archive, "--name", "a", "--tag", "1")
    site.used["a:1"] = ("compute", "login")
    refused = run("image", "delete", "a:1")
    assert refused.code == 3
    assert "the personality compute is made of it, and 1 more" in refused.err
    assert [item["tag"] for item in run("image", "list", "--json").json] == ["1"]


def test_an_export_can_be_verified_and_imported_elsewhere(
    site: ImageSite, run: Run, archive: Path, tmp_path: Path
) -> None:
    run("image", "import", archive, "--name", "a", "--tag", "1")
    out = tmp_path / "out.tar"
    assert run("image", "export", "a:1", out).code == 0
    with tarfile.open(out) as tar:
        release = tar.extractfile("release.json")
        assert release is not None
        assert json.loads(release.read())["name"] == "a"
    assert run("image", "import", out, "--name", "a", "--tag", "1", "--json").json["serial"] == 1  # it is that already
    assert site.alarms == []
    refused = run("image", "import", out, "--name", "a", "--tag", "2")
    assert (refused.code, "known already" in refused.err) == (1, True)
    assert [alarm.kind for alarm in site.alarms] == ["image-refused"]
    assert run("image", "import", out, "--name", "b", "--tag", "1", "--unsigned").code == 0


def test_what_is_wrong_is_said_with_its_place(site: ImageSite, run: Run, tmp_path: Path) -> None:
    bad = tmp_path / "bad.tar"
    bad.write_bytes(an_image(layer(file("../escape"))))
    found = run("image", "import", bad, "--name", "a")
    assert (found.code, "leaves the image" in found.err, "layer 1" in found.err) == (1, True, True)
    assert "no such file" in run("image", "import", "nothing.tar", "--name", "a").err
    assert run("image", "import", bad, "--name", "Bad Name").code == 1
    assert "no such image" in run("image", "show", "x:1").err
    assert run("image", "export", "x:1", tmp_path / "x.tar").code == 1
    assert not (tmp_path / "x.tar").exists()


def test_a_recipe_without_its_file_is_not_sent(site: ImageSite, run: Run, tmp_path: Path) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text("from: scratch\nfiles:\n  - {path: /etc/x, source: missing}\n")
    found = run("image", "build", recipe, "--name", "a")
    assert (found.code, "missing" in found.err) == (1, True)
    assert list((site.directory / "images/uploads").iterdir()) == []


def test_a_build_that_is_cancelled_ends_with_all_that_it_started(site: ImageSite, run: Run, tmp_path: Path) -> None:
    recipe = tmp_path / "r.yaml"
    program = Path("/bin/busybox").read_bytes()
    (tmp_path / "sh").write_bytes(program)
    nap = f"4711{os.getpid()}"  # seconds, and the only process with such a number
    recipe.write_text(
        "from: scratch\n"
        "files: [{path: /bin/sh, source: sh, mode: '0755'}, {path: /bin/busybox, source: sh, mode: '0755'}]\n"
        f"run: ['echo asleep; busybox sleep {nap}']\n"
    )
    work = run("image", "build", recipe, "--name", "a", "--no-wait", "--json").json
    log = site.directory / "images/logs" / work["log"]
    until(lambda: log.exists() and "asleep" in log.read_text())
    site.run(site.jobs.cancel(work["operation"]["id"], "alice"))
    until(lambda: site.run(site.jobs.show(work["operation"]["id"])).state == "cancelled")
    until(lambda: not list((site.directory / "images/work").iterdir()))
    until(lambda: not [path for path in Path("/proc").glob("[0-9]*/cmdline") if nap.encode() in _read(path)])


def until(condition: Callable[[], bool], limit: float = 60) -> None:
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
