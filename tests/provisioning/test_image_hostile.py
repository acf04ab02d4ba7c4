"""Hostile archives against the whole of it: what each costs is bounded, it is refused in words, and nothing is left."""

from __future__ import annotations

import asyncio
import gzip
import io
import os
import socket
import subprocess
import sys
import tarfile
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from strata.core.errors import BadRequest, Unavailable
from strata.fleet import disk
from strata.provisioning import worker
from strata.provisioning.images import unpacking
from strata.provisioning.images.build.recipe import parse_recipe
from strata.provisioning.images.shelf import Shelf
from strata.provisioning.images.squashing import Order
from strata.provisioning.images.tree import Tree
from support.hostile_tars import END, header, number, pax, sparse
from support.image_support import (
    Site,
    an_image,
    digest,
    file,
    folder,
    hardlink,
    image_blobs,
    layer,
    oci_archive,
    symlink,
)

pytestmark = pytest.mark.slow

MIB = 1 << 20
LOOPS = gzip.compress(header("usr", size=number(-512)), mtime=0)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    made = Site(tmp_path)
    await made.images.start()
    yield made
    await made.images.stop()
    await made.store.close()


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    made = Shelf(tmp_path / "shelf")
    made.open()
    return made


def left_over(site: Site) -> list[Path]:
    """What an import that was refused left behind, but for its log."""
    root = site.images.shelf.root
    return [path for name in ("work", "squashfs", "chunks", "listings") for path in (root / name).iterdir()]


# By way of a small process: the kernel counts what a process was before it became another program.
MEASURE = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stderr=subprocess.DEVNULL)
_, _, usage = os.wait4(process.pid, 0)
process.returncode = 0
print(f"\\n{usage.ru_maxrss}", end="")
"""


class Cost(msgspec.Struct):
    """What a worker said, and what it took."""

    reply: dict[str, object]
    memory: int


def press(shelf: Shelf, archive: bytes, limits: worker.Limits | None = None) -> Cost:
    """Have an archive pressed in a worker of which the kernel says what it took."""
    upload = shelf.root / "uploads/given"
    upload.write_bytes(archive)
    with shelf.workplace() as work:
        order = Order(root=str(shelf.root), work=str(work), archive=str(upload))
        question = msgspec.json.encode({"type": "press", "order": order})
        limits = limits or unpacking.limits(len(archive), file=order.most)
        done = subprocess.run(
            [sys.executable, "-c", MEASURE, *worker.command("strata.provisioning.images.unpacking", limits)],
            input=question,
            capture_output=True,
            check=True,
            env={**os.environ, "PYTHONPATH": str(Path(worker.__file__).parents[2])},
        )
        said, _, memory = done.stdout.rpartition(b"\n")
    return Cost(msgspec.json.decode(said), int(memory) << 10)


def many(count: int) -> bytes:
    """A system of so many empty files."""
    return header("usr", b"5") + b"".join(header(f"usr/{n}") for n in range(count)) + END


def a_system(data: bytes) -> bytes:
    """An OCI archive whose layer is ``data``, as it is."""
    blobs, manifest = image_blobs(data)
    return oci_archive(blobs, manifest)


def maze(files: int) -> bytes:
    """A system in which each path goes through forty links, each by hundreds of folders."""
    links = [symlink(f"l{n}", f"l{n - 1}/" + "d/../" * 700) for n in range(1, 39)]
    return layer(folder("usr"), folder("d"), folder("l0/d"), *links, *(file(f"l38/{n}") for n in range(files)))


def deep() -> bytes:
    """Folders in folders, by way of links to the deepest."""
    down = "/".join("d" * 150)
    return layer(folder(down), symlink("l", down), folder(f"l/{down}"), symlink("m", f"l/{down}"), file("m/x"))


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "a negative size": (lambda: LOOPS, "cannot be: negative"),
    "a negative size in a layer": (lambda: a_system(header("etc/a", size=number(-512))), "cannot be: negative"),
    "a pax header of a gibibyte": (lambda: header("usr", b"x", size=1 << 30) + bytes(MIB), "more than 1024 KiB"),
    "a name of a gibibyte, compressed": (
        lambda: gzip.compress(header("usr", b"L", size=200 * MIB) + bytes(200 * MIB), 1, mtime=0),
        "more than 1024 KiB",
    ),
    "zeros that grow a thousand times": (
        lambda: gzip.compress(bytes(260 * MIB), 9, mtime=0),
        "grows to more than 256 MiB",
    ),
    "holes of a tebibyte": (lambda: a_system(sparse("etc/a", 1 << 40, [(0, b"x")])), "more than 65536 MiB"),
    "holes of two gibibytes": (lambda: a_system(sparse("etc/a", 2 << 30, [(0, b"x")])), "MiB of holes"),
    "a thousand headers of one entry": (lambda: pax(("path", "usr")) * 1000 + header("a"), "headers that speak of one"),
    "a path out of the root": (lambda: a_system(layer(file("../../outside"))), "leaves the image"),
    "a hard link out of the root": (lambda: a_system(layer(hardlink("a", "../../etc/shadow"))), "leaves the image"),
    "a hard link through a link": (
        lambda: a_system(layer(symlink("a", "/etc"), hardlink("b", "a/shadow"))),
        "hard link to what is no file",
    ),
    "folders without end through links": (lambda: a_system(deep()), "too deep"),
    "another compression": (lambda: b"\xfd7zXZ\0" + bytes(100), "compressed by xz"),
    "garbage after gzip": (lambda: gzip.compress(layer(folder("usr")), mtime=0) + b"garbage", "cannot be unpacked"),
    "half of a gzip": (
        lambda: gzip.compress(layer(folder("usr"), file("usr/a", os.urandom(5000))))[:3000],
        "cannot be unpacked",
    ),
    "a json of many brackets": (
        lambda: layer(file("oci-layout"), file("index.json", b'{"manifests":' + b"[" * MIB)),
        "index: cannot be read",
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_archive_is_refused_and_costs_little_memory(shelf: Shelf, what: str) -> None:
    make, why = HOSTILE[what]
    cost = press(shelf, make())
    assert cost.reply["kind"] == "BadRequest", cost.reply
    assert why in f"{cost.reply.get('where', '')}: {cost.reply['error']}"
    assert cost.memory < 200 * MIB
    assert not any((shelf.root / "squashfs").iterdir())


async def test_the_smallest_archive_that_looped_for_ever_is_refused_in_words(site: Site) -> None:
    assert len(LOOPS) < 120
    with pytest.raises(BadRequest, match="not a sound tar archive: a size that cannot be") as refused:
        await site.take(LOOPS, "a:1")
    assert refused.value.hint == "make the archive again"
    assert left_over(site) == []


async def test_the_service_goes_on_while_an_archive_is_read(site: Site) -> None:
    turns = 0

    async def tick() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    ticking = asyncio.create_task(tick())
    await site.take(maze(200), "a:1")
    ticking.cancel()
    # Seconds of Python: a thread of this process that read it would let others have a turn every few milliseconds.
    assert turns > 10_000


def test_memory_is_bounded_whatever_is_read(shelf: Shelf) -> None:
    limits = worker.Limits(memory=72 * MIB, cpu=60, wall=240, file=1 << 30)
    cost = press(shelf, a_system(many(100_000)), limits)
    assert "more than 72 MiB of memory" in str(cost.reply["error"])
    assert cost.memory < 72 * MIB


def test_a_file_in_an_archive_takes_half_a_kilobyte_of_memory() -> None:
    data = io.BytesIO(many(5000))
    with tarfile.open(fileobj=data, mode="r:") as tar:
        tracemalloc.start()
        try:
            tree = Tree()
            tree.apply(0, tar)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert len(list(tree.walk())) == 5001
    assert peak / 5000 < 600


def test_processor_time_is_bounded_whatever_is_read(shelf: Shelf) -> None:
    cost = press(shelf, maze(2_000), worker.Limits(memory=1 << 30, cpu=2, wall=240, file=1 << 30))
    assert "more than 2 s of processor time" in str(cost.reply["error"])


async def test_a_worker_that_takes_too_long_is_killed_with_all_that_it_started(shelf: Shelf) -> None:
    upload = shelf.root / "uploads/given"
    upload.write_bytes(many(50_000))
    before = children()
    limits = worker.Limits(memory=1 << 30, cpu=60, wall=0.5, file=1 << 30)
    module = "strata.provisioning.images.unpacking"
    with shelf.workplace() as work:
        question = {"type": "press", "order": Order(root=str(shelf.root), work=str(work), archive=str(upload))}
        with pytest.raises(BadRequest, match=r"not read within 0\.5 s") as refused:
            await worker.ask(module, question, object, limits, about="archive")
        assert "hostile" in refused.value.hint
        task = asyncio.create_task(worker.ask(module, question, object, unpacking.limits(0), about="archive"))
        async with asyncio.timeout(60):
            while children() == before:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
    assert children() == before


def children() -> set[int]:
    """Processes of ours, and theirs."""
    found, ask = set(), [os.getpid()]
    while ask:
        for task in Path(f"/proc/{ask.pop()}/task").glob("*/children"):
            new = {int(child) for child in task.read_text().split()} - found
            found |= new
            ask += new
    return found


def test_nothing_but_files_is_in_reach_of_a_worker() -> None:
    code = (
        "import os, socket, pathlib; from strata.provisioning import worker\n"
        "def work(question):\n"
        "    lines = pathlib.Path('/proc/thread-self/status').read_text().splitlines()\n"
        "    status = dict(line.split(':\\t', 1) for line in lines)\n"
        "    return [os.getuid(), status['CapEff'], [name for _, name in socket.if_nameindex()], os.getpid()]\n"
        "worker.answer(str, work, nobody=lambda question: question == 'nobody')\n"
    )
    command = worker.command("none", worker.Limits(memory=1 << 30, cpu=5, wall=60, file=0))[:-2]
    found = {}
    for who in ("files", "nobody"):
        done = subprocess.run(
            [*command, "-c", code],
            input=msgspec.json.encode(who),
            capture_output=True,
            check=True,
            env={**os.environ, "PYTHONPATH": str(Path(worker.__file__).parents[2])},
        )
        found[who] = msgspec.json.decode(done.stdout)["value"]
    rights = 1 << 0 | 1 << 1 | 1 << 3 | 1 << 6 | 1 << 7  # chown, dac_override, fowner, setgid, setuid
    assert found["files"] == [0, f"{rights:016x}", ["lo"], 1]
    assert found["nobody"] == [65534, f"{0:016x}", ["lo"], 1]
    assert len(socket.if_nameindex()) >= 1


async def test_links_out_of_the_root_lead_into_it(site: Site, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    entries = (
        folder(str(outside)),
        symlink("a", str(outside)),
        file("a/owned", b"x"),
        file("/etc/owned"),
        folder("usr"),
    )
    release = await site.take(an_image(layer(*entries)), "a:1")
    assert list(outside.iterdir()) == []
    command = ["unsquashfs", "-ll", str(site.images.shelf.squashfs(release.squashfs))]
    shown = (await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)).stdout
    assert f"squashfs-root{outside}/owned" in shown
    assert "squashfs-root/etc/owned" in shown


async def test_what_honest_programs_write_in_odd_ways_is_taken(site: Site) -> None:
    data = layer(folder("usr"), file("usr/a", b"1" * 2000))
    members = gzip.compress(data[:1000], mtime=0) + gzip.compress(data[1000:], mtime=0)
    parallel = await site.take(members, "a:1")
    trailing = await site.take(data + b"left by a tape", "b:1")
    sparsely = await site.take(a_system(sparse("usr/h", MIB, [(0, b"1" * 10), (MIB - 10, b"2" * 10)]) + END), "c:1")
    assert parallel.squashfs == trailing.squashfs
    made = site.images.catalogue.find("c:1")
    assert (sparsely.size < MIB, made.unpacked) == (True, MIB)


def test_the_disk_is_never_filled(shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = Shelf(tmp_path / "small")
    small.root.mkdir()
    with a_disk(small.root, "64m"):
        small.open()
        assert "error" not in press(small, a_system(layer(folder("usr"), file("usr/a", b"x" * MIB)))).reply
        cost = press(small, a_system(layer(folder("usr"), file("usr/a", b"y" * (40 * MIB)))))
        assert cost.reply["kind"] == "Unavailable"
        assert "of 64 MiB are free, and 32 MiB have to stay free" in str(cost.reply["error"])
        assert cost.reply["hint"] == "make room: strata image gc"
        assert list((small.root / "work").iterdir()) == []
    monkeypatch.setattr(disk, "LEAST", 1 << 60)
    monkeypatch.setattr(disk, "MOST", 1 << 60)
    with (
        pytest.raises(Unavailable, match="there is no room for 1 bytes on the disk"),
        (tmp_path / "log").open("w+b") as source,
    ):
        source.write(b"x")
        source.seek(0)
        shelf.add_stream(source, most=10)
    assert list((shelf.root / "work").iterdir()) == []


@contextmanager
def a_disk(place: Path, size: str) -> Iterator[None]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", place], check=True)


BOMB = "\n".join(["a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40)), "run: *a39"])


@pytest.mark.parametrize(
    ("context", "why"),
    [
        (gzip.compress(header("recipe.yaml", size=number(-512))), "a size that cannot be"),
        (layer(symlink("recipe.yaml", "/etc/passwd")), "only plain files"),
        (layer(hardlink("recipe.yaml", "/etc/passwd")), "only plain files"),
        (layer(file("/recipe.yaml")), "only plain files"),
        (layer(file("../recipe.yaml")), "only plain files"),
        (layer(file("a"), file("a/recipe.yaml")), "a file and a directory"),
        (layer(file("/".join("d" * 300))), "too long"),
        (layer(file("recipe.yaml", b"#" * (2 * MIB))), "larger than 1024 KiB"),
        (layer(file("Containerfile", b"#" * (2 * MIB))), "larger than 1024 KiB"),
        (layer(file("recipe.yaml", BOMB.encode())), "aliases"),
        (gzip.compress(bytes(260 * MIB), 1), "grows to more"),
        (sparse("big", 1 << 40, []), "more than 4096 MiB"),
    ],
    ids=[
        "loop",
        "link",
        "hard link",
        "absolute",
        "parent",
        "both",
        "deep",
        "recipe",
        "file",
        "aliases",
        "bomb",
        "holes",
    ],
)
async def test_a_hostile_build_is_refused_before_anything_is_unpacked(site: Site, context: bytes, why: str) -> None:
    ident = await site.images.uploads.begin()
    await site.images.uploads.write(ident, 0, context)
    with pytest.raises(BadRequest, match=why):
        await site.images.build("alice", ident, "a:1", site.log)
    assert left_over(site) == []


def test_a_recipe_of_aliases_is_refused_with_its_line() -> None:
    with pytest.raises(BadRequest, match="aliases") as refused:
        parse_recipe(BOMB)
    assert refused.value.where == "recipe, line 2"


async def test_nothing_that_others_wrote_is_read_in_the_service(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*arguments: object) -> None:
        raise AssertionError("an archive was read in the service")

    monkeypatch.setattr(unpacking.archive, "told_in", never)
    monkeypatch.setattr(unpacking, "do_press", never)
    monkeypatch.setattr(unpacking.compare, "compare", never)
    monkeypatch.setattr(unpacking, "write_sound_context", never)
    one = await site.take(an_image(layer(folder("usr"))), "a:1")
    two = await site.take(an_image(layer(folder("usr"), file("usr/a"))), "b:1")
    assert (await site.images.diff("a:1", "b:1")).added == 1
    exported = b"".join([piece async for piece in await site.images.export("b:1")])
    assert await site.take(exported, "b:1") == two
    (site.directory / "context").write_bytes(layer(file("recipe.yaml", b"from: scratch")))
    with site.images.shelf.workplace() as work:
        sound = await unpacking.sound_context(site.directory / "context", work, site.log)
        with tarfile.open(sound) as tar:
            assert tar.getnames() == ["recipe.yaml"]
    assert digest(site.images.shelf.squashfs(one.squashfs).read_bytes()) == one.squashfs


async def test_an_upload_cannot_begin_before_its_beginning(site: Site) -> None:
    ident = await site.images.uploads.begin()
    with pytest.raises(BadRequest, match="before the beginning"):
        await site.images.uploads.write(ident, -1, b"x")
