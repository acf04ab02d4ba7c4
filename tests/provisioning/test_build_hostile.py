"""Builds of recipes, scripts and parents that mean harm: nothing outside the image is read, written or left running."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import subprocess
import tarfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from strata.core.errors import BadRequest
from strata.provisioning.images.build import build as building
from strata.provisioning.images.build import steps as commands
from strata.provisioning.images.build.network import services_in, way_out
from strata.provisioning.images.layers import unpack
from support.image_support import Site, a_system, an_image, file, folder, layer, symlink

pytestmark = pytest.mark.slow

MMDEBSTRAP = """#!/bin/sh -eu
# As much of it as matters: reads its sources, a mirror and a key, and makes a system.
for argument; do case $argument in */root) root=$argument;; *sources.list) cat "$argument";; esac; done
cat {key}
mkdir "$root"
cp {mirror}/Release "$root"
! cat {safe}/secret
! ls /home /srv /var/log
"""
SECRET = b"only root of the machine reads this"


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    made = Site(tmp_path / "site")
    await made.images.start()
    yield made
    await made.images.stop()
    await made.store.close()


@pytest.fixture
def safe(tmp_path: Path) -> Path:
    """A folder of the machine's root."""
    folder = tmp_path / "safe"
    folder.mkdir(mode=0o700)
    (folder / "secret").write_bytes(SECRET)
    (folder / "secret").chmod(0o600)
    return folder


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process of the machine's root."""
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def newest_layer(site: Site, reference: str, tmp_path: Path) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
    """What the last layer of an image holds."""
    made = site.images.catalogue.find(reference)
    plain = tmp_path / f"{reference}.tar"
    unpack(site.images.shelf.blob(made.layers[-1].digest), plain, diff_id="", most=1 << 30)
    found = {}
    with tarfile.open(plain) as tar:
        for entry in tar:
            body = tar.extractfile(entry) if entry.isreg() else None
            found[entry.name.removeprefix("./")] = (entry, body.read() if body else b"")
    return found


async def test_no_process_of_a_script_lives_on_into_the_next(site: Site) -> None:
    await site.take(an_image(a_system()), "base:1")
    recipe = """
from: base:1
run:
  - "busybox setsid busybox sleep 4711 > /dev/null 2>&1 & busybox sleep 4712 &"
  - "busybox ps | busybox grep 'sleep 471[12]' && exit 3 || true"
"""
    await site.build("child:1", recipe)


async def test_what_a_script_leaves_running_cannot_smuggle_files_of_the_machine_in(
    site: Site, safe: Path, tmp_path: Path
) -> None:
    await site.take(an_image(a_system()), "base:1")
    recipe = f"""
from: base:1
run:
  - |
    for i in $(busybox seq 200); do mkdir /d$i; echo mine > /d$i/secret; done
    busybox setsid sh -c '
      while :; do for i in $(busybox seq 200); do
        busybox mv /d$i /was; busybox ln -s {safe} /d$i; rm /d$i; busybox mv /was /d$i
      done; done' > /dev/null 2>&1 &
"""
    await site.build("child:1", recipe)
    found = newest_layer(site, "child:1", tmp_path)
    assert sum(name.endswith("/secret") for name in found) >= 199  # one may be away just now
    assert not [name for name, (_, content) in found.items() if SECRET in content]


async def test_a_script_cannot_change_the_kernel_of_the_machine(site: Site) -> None:
    await site.take(an_image(a_system()), "base:1")
    files = ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/swappiness", "/sys/module/kernel/parameters/initcall_debug")
    assert all(Path(path).exists() for path in files)
    # What is there already, so that a failing test harms nobody.
    tries = "\n".join(f'  - "v=$(cat {path}); (echo $v > {path}) && exit 3 || true"' for path in files)
    await site.build("child:1", f"from: base:1\nrun:\n{tries}\n")


async def test_a_script_has_no_rights_over_the_machine(
    site: Site, safe: Path, bystander: subprocess.Popen[bytes]
) -> None:
    await site.take(an_image(a_system()), "base:1")
    recipe = f"""
from: base:1
run:
  - "busybox mknod /sda b 8 0 && exit 3 || true"
  - "mkdir /m; busybox mount -t tmpfs x /m && exit 4 || true"
  - "busybox unshare -r -m busybox true && exit 5 || true"
  - "for p in /proc/[0-9]*; do cat $p/root{safe}/secret $p/cwd{safe}/secret && exit 6 || true; done"
  - "for f in /proc/[0-9]*/fd/*; do cat $f/secret && exit 7 || true; done"
  - "cat /proc/1/environ && exit 8 || true"
  - "busybox kill -9 {bystander.pid} && exit 9 || true"
  - "busybox kill -9 1; busybox kill -INT 1; busybox kill -TERM 1 || true"
  - "cat /proc/kcore > /dev/null && exit 10 || true; test -z \\"$(cat /proc/keys)\\""
  - "busybox hostname outside && exit 11 || true; test $(busybox hostname) = localhost"
"""
    await site.build("child:1", recipe)
    assert bystander.poll() is None


def connects_to(places: list[tuple[str, int]]) -> str:
    """A shell script that tries all of them, and ends well if nobody answers."""
    tries = [
        f"busybox timeout 10 busybox nc {host} {port} < /dev/null && exit {number}"
        for number, (host, port) in enumerate(places, 3)
    ]
    return "; ".join((*tries, "true"))


@pytest.mark.parametrize("name", ["recipe.yaml", "Containerfile"])
async def test_a_build_reaches_nothing_that_listens_on_the_machine(site: Site, name: str) -> None:
    await site.take(an_image(a_system()), "base:1")
    with contextlib.ExitStack() as open_:
        hidden = open_.enter_context(socket.socket(socket.AF_UNIX))
        hidden.bind("\0strata-test-neighbour")
        hidden.listen()
        local, anywhere = (open_.enter_context(socket.create_server((at, 0))) for at in ("127.0.0.1", "0.0.0.0"))
        ports = local.getsockname()[1], anywhere.getsockname()[1]
        own = [link.split()[3].partition("/")[0] for link in addresses()]
        script = connects_to([(host, port) for port in ports for host in ("127.0.0.1", "198.18.255.2", *own)])
        script += "; busybox grep strata-test-neighbour /proc/net/unix && exit 99 || true"
        text = (
            f"from: base:1\nrun: ['{script}']\n" if name == "recipe.yaml" else f"FROM localhost/base:1\nRUN {script}\n"
        )
        await site.build("child:1", text, name=name)
        for listener in (local, anywhere, hidden):
            listener.setblocking(False)
            with pytest.raises(BlockingIOError):
                listener.accept()


def addresses() -> list[str]:
    command = ["ip", "-4", "-o", "address", "show", "scope", "global"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()


async def test_a_mirror_of_packages_on_the_machine_itself_is_reached_and_nothing_beside_it(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.take(an_image(a_system()), "base:1")
    mirror = await asyncio.start_server(_answer, "127.0.0.1", 0)
    beside = await asyncio.start_server(_answer, "127.0.0.1", 0)
    here, there = (server.sockets[0].getsockname()[1] for server in (mirror, beside))
    apt = tmp_path / "apt"
    apt.mkdir()
    (apt / "sources.list").write_text(f"deb http://localhost:{here}/debian bookworm main\n")
    monkeypatch.setattr(building, "_APT", apt)
    fetch = f"busybox wget -q -O /got http://127.0.0.1:{here}/Release; {connects_to([('127.0.0.1', there)])}"
    async with mirror, beside:
        release = await site.build("child:1", f"from: base:1\nrun: ['{fetch}']\n")
    assert site.contents(release, "got") == b"packages"


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.0 200 OK\r\nContent-Length: 8\r\n\r\npackages")
    await writer.drain()
    writer.close()


def test_networks_that_others_have_on_the_machine_outlive_a_build() -> None:
    name = f"beside-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run([*way_out((), ()), "ip", "link"], check=True)
        subprocess.run(["ip", "netns", "exec", name, "ip", "link"], check=True)
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


def test_lists_of_package_sources_name_services() -> None:
    text = """
deb [signed-by=/k.gpg] http://localhost:3142/debian bookworm main
URIs: https://mirror.site/debian HTTP://user:word@[::1]:8080/debian file:///srv/mirror
"""
    assert [str(one) for one in services_in(text)] == ["localhost:3142", "mirror.site:443", "::1:8080"]


async def test_a_script_gets_nothing_from_the_service_but_what_a_build_needs(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRATA_TOKEN", "hunter2")
    await site.take(an_image(a_system()), "base:1")
    scripts = "busybox env > /env; busybox grep SigIgn /proc/self/status > /ignored; ls /proc/self/fd > /open"
    release = await site.build("child:1", f"from: base:1\nrun: ['{scripts}']\n")
    of_the_c_library = 1 << 31 | 1 << 32  # its two signals are whatever they were: it lets nobody set them
    assert int(site.contents(release, "ignored").split()[1], 16) & ~of_the_c_library == 0
    assert site.contents(release, "open").split() == [b"0", b"1", b"2", b"3"]  # the last is the folder itself
    names = {line.partition(b"=")[0] for line in site.contents(release, "env").splitlines()}
    assert names <= {b"PATH", b"LANG", b"HOME", b"DEBIAN_FRONTEND", b"PWD", b"SHLVL", b"OLDPWD", b"_"}


@pytest.mark.parametrize("name", ["usr/sbin/policy-rc.d", "etc/resolv.conf"])
async def test_a_link_where_a_build_puts_a_file_of_its_own_is_left_alone(site: Site, safe: Path, name: str) -> None:
    target = safe / "made"
    parent = an_image(a_system(folder("usr"), folder("usr/sbin"), symlink(name, str(target))))
    await site.take(parent, "trap:1")
    release = await site.build("child:1", "from: trap:1\nrun: ['busybox touch /ran']\n")
    assert not target.exists()
    assert f"{name} -> {target}" in site.listed(release)


@pytest.mark.parametrize("name", ["usr", "usr/sbin", "etc"])
async def test_folders_that_are_links_lead_nowhere_outside(site: Site, safe: Path, name: str) -> None:
    (safe / "sbin").mkdir()
    before = sorted(safe.rglob("*"))
    await site.take(an_image(a_system(), layer(symlink(name, str(safe)))), "trap:1")
    await site.build("child:1", "from: trap:1\nrun: ['busybox touch /ran']\n")
    assert sorted(safe.rglob("*")) == before


@pytest.mark.parametrize("name", ["proc", "sys", "dev"])
async def test_nothing_is_mounted_where_a_link_of_the_parent_leads(site: Site, safe: Path, name: str) -> None:
    await site.take(an_image(a_system(symlink(name, str(safe)))), "trap:1")
    with pytest.raises(BadRequest, match=f"its /{name} is not a directory"):
        await site.build("child:1", "from: trap:1\nrun: ['busybox touch /ran']\n")
    assert [path.name for path in safe.iterdir()] == ["secret"]


async def test_owners_modes_and_capabilities_are_those_that_the_image_has(site: Site, tmp_path: Path) -> None:
    # Version 2: without the id of a user namespace, as files of a machine have it. CAP_NET_RAW.
    capability = struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0)
    headers = {"SCHILY.xattr.security.capability": capability.decode("utf-8", "surrogateescape")}
    parent = a_system(
        file("kept", b"k", uid=0, gid=0),
        file("theirs", b"t", uid=1000, gid=100, mode=0o4755),
        file("large", b"l", uid=2_000_000_000, gid=100_000),
        file("ping", b"p", mode=0o755, pax_headers=headers),
    )
    await site.take(an_image(parent), "base:1")
    recipe = """
from: base:1
files: [{path: /put, content: x, owner: "70000:7"}]
run:
  - "busybox touch /root-made /user-made; busybox chown 12:34 /user-made; busybox mv /ping /pong"
  - "busybox mv /large /larger; busybox mv /theirs /also-theirs"
"""
    release = await site.build("child:1", recipe)
    found = newest_layer(site, "child:1", tmp_path)
    owners = {name: (entry.uid, entry.gid) for name, (entry, _) in found.items() if entry.isfile()}
    assert owners == {
        **dict.fromkeys((".wh.large", ".wh.ping", ".wh.theirs", "pong", "root-made"), (0, 0)),
        "put": (70000, 7),
        "user-made": (12, 34),
        "larger": (2_000_000_000, 100_000),
        "also-theirs": (1000, 100),
    }
    assert found["also-theirs"][0].mode == 0o4755
    assert found["pong"][0].pax_headers["SCHILY.xattr.security.capability"].encode("utf-8", "surrogateescape") == (
        capability
    )
    assert "-rwsr-xr-x 1000/100" in site.listed(release)


async def test_owners_that_no_build_can_have_are_named(site: Site) -> None:
    await site.take(an_image(a_system(file("far", b"f", uid=3_000_000_000))), "base:1")
    with pytest.raises(BadRequest, match=r"the parent image could not be made: .*far"):
        await site.build("child:1", "from: base:1\n")


async def test_debian_is_made_from_what_the_machines_sources_name_and_sees_nothing_else(
    site: Site, safe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "mmdebstrap"
    program.parent.mkdir()
    program.write_text(MMDEBSTRAP.format(mirror=tmp_path / "mirror", key=tmp_path / "key.gpg", safe=safe))
    program.chmod(0o755)
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror/Release").write_text("of the mirror")
    (tmp_path / "key.gpg").write_text("key")
    apt = tmp_path / "apt"
    apt.mkdir()
    sources = apt / "sources.list"
    sources.write_text(f"deb [signed-by={tmp_path}/key.gpg] file:{tmp_path}/mirror bookworm main\n")
    sources.chmod(0o600)  # it may hold a password
    monkeypatch.setattr(building, "_APT", apt)
    monkeypatch.setattr(commands, "PATH", f"{program.parent}:{commands.PATH}")
    release = await site.build("d:1", "from: debian\nsuite: bookworm\n")
    assert site.contents(release, "Release") == b"of the mirror"
    assert "-rw-r--r-- 0/0" in site.listed(release)


async def test_no_process_of_a_containerfiles_step_lives_on_into_the_next(site: Site) -> None:
    await site.take(an_image(a_system()), "base:1")
    text = """
FROM localhost/base:1
RUN busybox setsid busybox sleep 4711 > /dev/null 2>&1 & busybox sleep 4712 > /dev/null 2>&1 &
RUN busybox ps | busybox grep 'sleep 471[12]' && exit 3 || true
RUN test $$ = 1 || test $(busybox ps | busybox wc -l) -le 6
"""
    await site.build("child:1", text, name="Containerfile")


async def test_a_containerfile_reaches_nothing_of_the_machine(
    site: Site, safe: Path, tmp_path: Path, bystander: subprocess.Popen[bytes]
) -> None:
    await site.take(an_image(a_system()), "base:1")
    pattern = "/proc/sys/kernel/core_pattern"
    text = f"""
FROM localhost/base:1
RUN v=$(cat {pattern}); (echo $v > {pattern}) && exit 3 || true
RUN for p in /proc/[0-9]*; do cat $p/root{safe}/secret $p/cwd{safe}/secret && exit 4 || true; done
RUN busybox kill -9 {bystander.pid} && exit 5 || true
RUN for p in /proc/[0-9]*; do (echo x > $p/root{safe}/written) && exit 6 || true; done
RUN busybox grep -q ' 0  *4294967295$' /proc/self/uid_map && exit 8 || true
RUN busybox mknod /sda b 8 0 && busybox head -c 1 /sda && exit 7 || true
RUN for i in $(busybox seq 50); do mkdir /d$i; echo mine > /d$i/secret; done; \\
  busybox setsid sh -c 'while :; do for i in $(busybox seq 50); do \\
    busybox mv /d$i /was; busybox ln -s {safe} /d$i; rm /d$i; busybox mv /was /d$i; \\
  done; done' > /dev/null 2>&1 &
"""
    await site.build("child:1", text, name="Containerfile")
    found = newest_layer(site, "child:1", tmp_path)
    assert sum(name.endswith("/secret") for name in found) >= 49  # one may be away just now
    assert not [name for name, (_, body) in found.items() if SECRET in body]
    said = site.log.read_text()
    assert "STEP 8/8" in said
    assert "exit status" not in said
    assert [path.name for path in safe.iterdir()] == ["secret"]
    assert bystander.poll() is None
    assert not left_running(safe)


def left_running(mark: Path) -> list[str]:
    """Processes of the machine whose arguments name the path."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(mark).encode() in path.read_bytes():
                found.append(path.parent.name)
    return found
