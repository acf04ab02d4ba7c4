"""Layers laid over each other: what a container engine would see, and what hostile layers cannot do."""

from __future__ import annotations

import io
import tarfile

import pytest

from strata.core.errors import BadRequest
from strata.provisioning.images.tree import Tree
from support.image_support import Entry, file, folder, hardlink, layer, symlink


def tree(*layers: tuple[Entry, ...], **bounds: int) -> Tree:
    made = Tree(**bounds)
    for number, entries in enumerate(layers):
        with tarfile.open(fileobj=io.BytesIO(layer(*entries)), mode="r:") as tar:
            made.apply(number, tar)
    return made


def paths(made: Tree) -> list[str]:
    return [path for path, _ in made.walk()]


def test_an_upper_layer_hides_adds_and_removes() -> None:
    lower = (folder("etc"), file("etc/a", b"1"), file("etc/b"), folder("opt/x"), file("opt/x/y"))
    upper = (file("etc/a", b"22"), file("etc/.wh.b"), file("opt/.wh.x"), file("usr/new"))
    made = tree(lower, upper)
    assert paths(made) == ["etc", "etc/a", "opt", "usr", "usr/new"]
    assert dict(made.walk())["etc/a"].layer == 1


def test_whiteouts_are_about_lower_layers_wherever_they_stand() -> None:
    made = tree((file("d/old"),), (file("d/new"), file("d/.wh..wh..opq"), file("e"), file(".wh.e")))
    assert paths(made) == ["d", "d/new", "e"]


def test_a_hard_link_keeps_its_bytes_when_its_target_is_replaced_above() -> None:
    made = tree((file("a", b"old"), hardlink("b", "a")), (file("a", b"newer"),))
    found = dict(made.walk())
    assert (found["b"].layer, found["b"].size, found["a"].layer) == (0, 3, 1)


def test_paths_go_through_links_of_lower_layers_as_they_would_on_disk() -> None:
    made = tree(
        (folder("usr/bin"), symlink("bin", "usr/bin"), symlink("up", "../../usr")), (file("bin/ls"), file("up/x"))
    )
    assert paths(made) == ["bin", "up", "usr", "usr/bin", "usr/bin/ls", "usr/x"]


def test_a_directory_replaces_a_link_and_a_file_replaces_a_directory() -> None:
    made = tree((symlink("bin", "usr/bin"), folder("d"), file("d/f")), (folder("bin"), file("bin/x"), file("d", b"z")))
    assert paths(made) == ["bin", "bin/x", "d"]


def test_the_last_of_two_entries_of_one_path_counts() -> None:
    made = tree((file("a", b"1"), file("./a", b"333"), file("/a", b"22")))
    assert dict(made.walk())["a"].size == 2


def test_devices_are_left_out_and_counted() -> None:
    made = tree((("dev/null", {"type": tarfile.CHRTYPE}), ("dev/sda", {"type": tarfile.BLKTYPE}), file("ok")))
    assert (paths(made), made.left_out) == (["dev", "ok"], 2)


def test_only_harmless_attributes_are_kept() -> None:
    given = {f"SCHILY.xattr.{name}": "v" for name in ("user.a", "security.capability", "trusted.overlay.opaque")}
    made = tree((file("f", pax_headers=given),))
    assert sorted(dict(made.walk())["f"].xattrs) == ["security.capability", "user.a"]


def test_links_in_a_circle_lead_nowhere() -> None:
    made = tree((symlink("a", "b"), symlink("b", "a")), (file("a/x"),))
    assert paths(made) == ["a", "a/x", "b"]


@pytest.mark.parametrize(
    "entry",
    [
        file("../etc/passwd"),
        file("a/../../b"),
        hardlink("a", "../../etc/shadow"),
        hardlink("a", "/etc/shadow"),
        file("x" * 256),
        file("/".join("d" * 201)),
        file("a\nb"),
        ("a", {"type": b"Z"}),
    ],
    ids=["parent", "inner parent", "link out", "link to nothing", "long name", "deep", "line break", "unknown type"],
)
def test_what_no_image_needs_is_refused_with_its_place(entry: Entry) -> None:
    with pytest.raises(BadRequest, match="layer 1"):
        tree((entry,))


def test_bombs_are_bounded() -> None:
    with pytest.raises(BadRequest, match="more than 3 files"):
        tree(tuple(file(f"f{n}") for n in range(4)), most_entries=3)
    with pytest.raises(BadRequest, match="unpacked"):
        tree((file("big", b"x" * 2000), file("big", b"x" * 2000)), most_bytes=3000)
