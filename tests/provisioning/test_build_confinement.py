"""What runs apart from the machine: whom the machine takes it for, what it can open, and when it is over."""

from __future__ import annotations

import os
import socket
import struct
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from strata.core.errors import BadRequest, StrataError, Unavailable
from strata.provisioning.images.build.confinement import apart, build_ids, enter, run_program
from strata.provisioning.images.build.furnish import write_layer
from strata.provisioning.images.build.syscalls import open_beneath


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder of a build's root, below one that is the machine's root's alone."""
    made = tmp_path / "place"
    made.mkdir()
    tmp_path.chmod(0o700)
    build_ids().give(made)
    return made


def refused(open_it: Callable[[], object]) -> bool:
    try:
        open_it()
    except PermissionError:
        return True
    return False


def test_its_root_is_nobody_outside(place: Path) -> None:
    def work() -> int:
        Path("made").touch()
        os.chown("made", 7, 8)
        return os.getuid() + os.getgid()

    assert apart(place, work) == 0
    made = (place / "made").stat()
    ids = build_ids()
    assert (made.st_uid, made.st_gid) == (ids.user + 7, ids.group + 8)
    assert ids.user > 0


def test_a_folder_of_the_machine_that_it_gets_hold_of_opens_nothing(place: Path, tmp_path: Path) -> None:
    safe = tmp_path / "safe"
    safe.mkdir(mode=0o700)
    (safe / "secret").write_text("secret")
    (safe / "secret").chmod(0o600)
    held = os.open(safe, os.O_RDONLY | os.O_DIRECTORY)
    file = os.open(safe / "secret", os.O_WRONLY)

    def work() -> int:
        tries: list[Callable[[], object]] = [
            lambda: os.open("secret", os.O_RDONLY, dir_fd=held),
            lambda: os.open("new", os.O_WRONLY | os.O_CREAT, dir_fd=held),
            lambda: os.fchmod(file, 0o666),
            lambda: os.fchdir(held),
        ]
        return sum(not refused(one) for one in tries)

    try:
        assert apart(place, work, kept=[held, file]) == 0
    finally:
        os.close(held)
        os.close(file)
    assert [path.name for path in safe.iterdir()] == ["secret"]


def test_it_keeps_no_descriptor_that_it_is_not_given(place: Path) -> None:
    held = os.open("/", os.O_RDONLY)
    os.set_inheritable(held, True)

    def work() -> int:
        try:
            os.fstat(held)
        except OSError:
            return 0
        return 1

    try:
        assert apart(place, work) == 0
    finally:
        os.close(held)


def test_who_is_asked_by_it_over_a_socket_sees_that_it_is_not_root(place: Path) -> None:
    name = f"\0strata-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()

        def work() -> None:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(name)

        apart(place, work)
        peer, _ = server.accept()
        with peer:
            _, user, group = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    ids = build_ids()
    assert (user % 2**32, group % 2**32) == (ids.user, ids.group)


def test_nothing_is_imported_from_a_foreign_tree(place: Path) -> None:
    lib = place / "usr/lib/python3"
    lib.mkdir(parents=True)
    (lib / "a_trap.py").write_text("open('/sprung', 'w')")
    build_ids().give(place / "usr", place / "usr/lib", lib, lib / "a_trap.py")

    def work() -> None:
        enter()
        sys.path.insert(0, "/usr/lib/python3")
        __import__("a_trap")

    with pytest.raises(Unavailable, match=r"Import|ModuleNotFound"):
        apart(place, work)
    assert not (place / "sprung").exists()


@pytest.mark.slow
def test_every_process_has_ended_when_it_is_over(place: Path) -> None:
    read, write = os.pipe()

    def work() -> int:
        for _ in range(20):
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    while True:
                        os.write(write, b".")
                os._exit(0)
        return 5

    assert apart(place, work, kept=[write]) == 5
    os.close(write)
    with os.fdopen(read, "rb") as rest:
        assert set(rest.read()) <= {ord(".")}  # ends: nobody holds the other side any more


@pytest.mark.slow
def test_its_errors_are_told_as_they_are(place: Path) -> None:
    def work() -> None:
        raise BadRequest("wrong", where="here", hint="do this")

    with pytest.raises(BadRequest) as told:
        apart(place, work)
    assert (told.value.detail, told.value.where, told.value.hint) == ("wrong", "here", "do this")
    with pytest.raises(StrataError, match="ended early"):
        apart(place, lambda: os._exit(3))


def test_a_place_that_is_a_link_is_not_entered(place: Path) -> None:
    (place / "root").symlink_to("/")
    with pytest.raises(Unavailable, match="root"):
        apart(place / "root", lambda: None)


@pytest.mark.slow
def test_a_program_that_is_not_there_is_named(place: Path) -> None:
    def work() -> int:
        enter(alive=True)
        return run_program(["/bin/none"], {}, reduced=True)

    with pytest.raises(Unavailable, match="/bin/none"):
        apart(place, work)


@pytest.mark.parametrize(
    ("table", "first", "length"),
    [
        ("         0          0 4294967295\n", 1 << 31, (1 << 31) - 1),
        ("0 100000 1000000000\n", 500_000_000, 500_000_000),
        ("0 1000 1\n1 100000 400000\n", 200_001, 200_000),
    ],
)
def test_builds_have_the_upper_half_of_all_ids(table: str, first: int, length: int, tmp_path: Path) -> None:
    for kind in ("uid", "gid"):
        (tmp_path / f"{kind}_map").write_text(table)
    assert build_ids(tmp_path) == (first, first, length)


def test_where_ids_are_few_nothing_is_built(tmp_path: Path) -> None:
    for kind in ("uid", "gid"):
        (tmp_path / f"{kind}_map").write_text("0 100000 65536\n")
    with pytest.raises(Unavailable, match="too few ids"):
        build_ids(tmp_path)


def test_a_layer_holds_links_and_never_what_they_lead_to(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("secret")
    root = tmp_path / "root"
    root.mkdir()
    (root / "folder").symlink_to(tmp_path / "outside")
    (root / "file").symlink_to(tmp_path / "outside/secret")
    with (tmp_path / "layer").open("xb") as layer:
        write_layer(root, {}, layer)
    with tarfile.open(tmp_path / "layer") as tar:
        assert {entry.name: entry.issym() for entry in tar} == {"./folder": True, "./file": True}
    (tmp_path / "also").symlink_to(root)
    with pytest.raises(OSError, match="also"), (tmp_path / "other").open("xb") as layer:
        write_layer(tmp_path / "also", {}, layer)


@pytest.mark.parametrize(
    "path", ["link/secret", "link", "inner/../../outside/secret", "/etc/hostname", "inner/up/secret"]
)
def test_nothing_is_opened_that_is_not_beneath(path: str, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("secret")
    root = tmp_path / "root"
    (root / "inner").mkdir(parents=True)
    (root / "inner/file").write_text("fine")
    (root / "link").symlink_to("../outside")
    (root / "inner/up").symlink_to("..")
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.close(open_beneath(folder, "inner/file", os.O_RDONLY))
        with pytest.raises(OSError, match=path.replace(".", r"\.")):
            open_beneath(folder, path, os.O_RDONLY)
    finally:
        os.close(folder)
