"""The reader of foreign tars: what honest programs write is read as they meant it, and nothing else is."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.core.errors import BadRequest
from strata.provisioning.images.tarball import Body, Entry, entries
from support.hostile_tars import END, header, number, padded, pax, sparse
from support.image_support import file, layer


def read(data: bytes) -> list[tuple[Entry, bytes]]:
    source = io.BytesIO(data)
    return [(one, Body(source, one.at, one.size, one.pieces).read()) for one in entries(source)]


@pytest.mark.parametrize("form", ["v7", "ustar", "gnu", "posix"])
def test_what_tar_writes_is_read_as_the_standard_library_reads_it(tmp_path: Path, form: str) -> None:
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    (root / "folder/ä").write_bytes(b"x" * 1000)
    (root / "link").symlink_to("folder")
    (root / "hard").hardlink_to(root / "folder/ä")
    if form in ("gnu", "posix"):
        (root / ("n" * 200)).write_bytes(b"long")
        (root / "far").symlink_to("t" * 150)
        with (root / "holes").open("wb") as holes:
            for at in range(0, 2_000_000, 100_000):
                holes.seek(at)
                holes.write(b"data")
            holes.truncate(3_000_000)
    made = tmp_path / "made.tar"
    options = ["-S"] if form in ("gnu", "posix") else []
    subprocess.run(["tar", f"--format={form}", *options, "-C", root, "-cf", made, "."], check=True)
    with tarfile.open(made) as tar:
        told = [(m.name.strip("./"), m.linkname, m.mode, m.uid, int(m.mtime), m.size if m.isreg() else 0) for m in tar]
        bodies = [taken.read() if (m.isreg() and (taken := tar.extractfile(m))) else b"" for m in tar]
    found = read(made.read_bytes())
    assert [(e.name.strip("./"), e.target, e.mode, e.uid, e.mtime, e.size) for e, _ in found] == told
    assert [body for _, body in found] == bodies


@pytest.mark.parametrize("version", ["0.0", "0.1", "1.0"])
def test_every_way_to_write_a_sparse_file_is_read(tmp_path: Path, version: str) -> None:
    with (tmp_path / "holes").open("wb") as holes:
        for at in range(0, 5_000_000, 100_000):
            holes.seek(at)
            holes.write(b"data")
    made = tmp_path / "made.tar"
    command = ["tar", "--format=posix", "-S", f"--sparse-version={version}", "-C", tmp_path, "-cf", made, "holes"]
    subprocess.run(command, check=True)
    [(entry, body)] = read(made.read_bytes())
    assert (entry.name, entry.stored < 1_000_000) == ("holes", True)
    assert body == (tmp_path / "holes").read_bytes()


def test_attributes_owners_and_times_of_pax_headers_count() -> None:
    given = pax(("SCHILY.xattr.user.a", "v"), ("uid", "3000000000"), ("mtime", "12.75"), ("path", "etc/ü"))
    [(entry, body)] = read(
        pax(("comment", "x"), ("gid", "7"), kind=b"g") + given + header("short", size=3) + padded(b"abc")
    )
    assert (entry.name, entry.uid, entry.gid, entry.mtime, entry.xattrs) == (
        "etc/ü",
        3_000_000_000,
        7,
        12,
        {"user.a": "v"},
    )
    assert body == b"abc"


def test_what_follows_the_end_of_an_archive_is_not_of_it() -> None:
    assert [e.name for e, _ in read(header("a") + END + header("b") + b"garbage")] == ["a"]


HOSTILE = {
    "a negative size": header("a", size=number(-512)),
    "a size of letters": header("a", size=b"what\0       "),
    "a size beyond all bounds": header("a", size=number(1 << 80)),
    "a negative size in a pax header": pax(("size", "-512")) + header("a"),
    "a size of digits that are none": pax(("size", "١٢")) + header("a"),
    "a pax header of a gibibyte": header("pax", b"x", size=1 << 30) + bytes(4096),
    "a name of a gibibyte": header("long", b"L", size=1 << 30) + bytes(4096),
    "a pax header without end": header("pax", b"x", size=512) + b"9999 path=a\n".ljust(512, b"a"),
    "a pax header of length zero": header("pax", b"x", size=512) + padded(b"0 path=a\n"),
    "a thousand headers of one entry": pax(("path", "a")) * 1000 + header("a"),
    "a thousand headers of all entries": pax(("uid", "1"), kind=b"g") * 1000 + header("a"),
    "a path for all entries": pax(("path", "a"), kind=b"g") + header("a"),
    "nothing after a name": pax(("path", "a")) + END,
    "an end in the middle of a file": header("a", size=4096) + bytes(1024),
    "an end in the middle of a header": header("a") + header("b")[:100],
    "a damaged header": header("a") + header("b").replace(b"b", b"c", 1) + END,
    "an unknown type": header("a", b"Z"),
    "an unknown type that hides a size": header("a", b"M", size=number(-1)),
    "pieces that overlap": sparse("a", 4096, [(0, b"x" * 100), (50, b"y" * 100)]),
    "pieces outside of the file": sparse("a", 100, [(0, b"x" * 100), (1 << 40, b"y" * 100)]),
    "a map that does not end": pax(
        ("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0"), ("GNU.sparse.realsize", "9")
    ) + header("a", size=512) + padded(b"99999\n1\n"),
    "a map of too many pieces": pax(
        ("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0"), ("GNU.sparse.realsize", "9")
    ) + header("a", size=512) + padded(b"99999999\n1\n"),
    "half a map": pax(("GNU.sparse.map", "0,1,2"), ("GNU.sparse.size", "9")) + header("a", size=1) + padded(b"x"),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_a_header_that_cannot_be_is_refused_with_what_to_do(what: str) -> None:
    with pytest.raises(BadRequest, match="not a sound tar archive") as refused:
        read(HOSTILE[what])
    assert refused.value.where.startswith("archive")
    assert refused.value.hint


SOUND = layer(file("etc/a", b"x" * 700, pax_headers={"SCHILY.xattr.user.a": "v"}), file("b" * 120, b"y")) + sparse(
    "s", 4096, [(512, b"z" * 512)]
)


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, len(SOUND) - 1), st.integers(0, 255)), max_size=8), st.booleans())
@settings(max_examples=200, deadline=None)
def test_any_damage_is_refused_or_read_to_an_end(changes: list[tuple[int, int]], fix_sums: bool) -> None:
    data = bytearray(SOUND)
    for at, value in changes:
        data[at] = value
    if fix_sums:
        for at in range(0, len(data), 512):
            if data[at + 257 : at + 262] == b"ustar":
                data[at + 148 : at + 156] = b" " * 8
                data[at + 148 : at + 156] = b"%06o\0 " % sum(data[at : at + 512])
    source = io.BytesIO(bytes(data))
    at = -1
    try:
        for entry in entries(source):
            assert at < entry.at <= len(data), "it goes back"
            assert entry.stored <= len(data)
            at = entry.at
    except BadRequest:
        pass
