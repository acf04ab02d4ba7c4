"""Repositories that mean harm: a clear error, and nothing of theirs runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import pytest

from strata.core.errors import BadRequest, NotFound, Refused, StrataError, Unavailable
from strata.platform.config.git import FetchLimits, Mirror, check_url, commit_of, read_commit
from strata.platform.config.reading import committed, configuration_of, read_files, read_repository
from support.site_repository import NODES, SiteRepository, small_site

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "url",
    [
        "ext::sh -c 'touch /tmp/x'",
        "ext::true",
        "fd::17",
        "--upload-pack=true",
        "-oProxyCommand=true",
        "ssh://-oProxyCommand=true/repository",
        "ssh://git@-oProxyCommand=true/repository",
        "ssh://-l@host/repository",
        "-oProxyCommand=true:repository",
        "git@-host:repository",
        "git@host:-repository",
        "http://host/repository",
        "git://host/repository",
        "file:///repository",
        "ftp://host/repository",
        "relative/path",
        "../repository",
        "https://",
        "https://host",
        "https://host/a b",
        "/path with 'quotes'",
        "/path\nwith lines",
        "",
    ],
)
def test_an_address_that_could_run_something_is_refused(url: str) -> None:
    with pytest.raises(BadRequest, match="not the address of a repository"):
        check_url(url)


def test_an_address_with_a_password_is_refused_and_not_repeated() -> None:
    for url in ("https://ann:hunter2@host/site.git", "https://hunter2@host/site.git", "ssh://ann:hunter2@host/site"):
        with pytest.raises(BadRequest, match="must not hold a password or token") as caught:
            check_url(url)
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "protocol"),
    [
        ("/srv/git/site.git", "file"),
        ("https://git.site.example/site.git", "https"),
        ("https://git.site.example:8443/site.git", "https"),
        ("ssh://git@git.site.example:22/site.git", "ssh"),
        ("git@git.site.example:site.git", "ssh"),
        ("git.site.example:~/site.git", "ssh"),
    ],
)
def test_addresses_of_repositories_are_taken(url: str, protocol: str) -> None:
    assert check_url(url) == protocol


async def test_a_branch_is_fetched_and_read_without_checking_anything_out(tmp_path: Path) -> None:
    site = small_site(tmp_path / "site")
    mirror = Mirror(tmp_path / "state")
    commit = await mirror.fetch(str(site.directory), "main")
    assert commit == site.git("rev-parse", "HEAD")
    found = await configuration_of(mirror.directory, commit, "")
    assert [entry.name for entry in found.nodes] == ["n1", "n2", "n3", "n4"]
    assert found.commit == commit
    assert not list((tmp_path / "state").rglob("*.yaml"))


async def test_hooks_filters_and_settings_of_a_repository_never_run(tmp_path: Path) -> None:
    site, ran = small_site(tmp_path / "site"), tmp_path / "ran"
    trap = tmp_path / "trap.sh"
    trap.write_text(f"#!/bin/sh\ntouch {ran}\ncat\n", encoding="utf-8")
    trap.chmod(0o755)
    site.commit({".gitattributes": "*.yaml filter=trap diff=trap\n"})
    hooks = site.directory / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    names = ("post-checkout", "post-merge", "reference-transaction", "pre-auto-gc", "fsmonitor-watchman", "update")
    for name in names:
        (hooks / name).write_bytes(trap.read_bytes())
        (hooks / name).chmod(0o755)
    with (site.directory / ".git" / "config").open("a", encoding="utf-8") as settings:
        settings.write(
            f'[filter "trap"]\n\tsmudge = {trap}\n\tclean = {trap}\n\tprocess = {trap}\n'
            f'[diff "trap"]\n\ttextconv = {trap}\n[core]\n\tfsmonitor = {trap}\n\tpager = {trap}\n'
            f"\tsshCommand = {trap}\n\talternateRefsCommand = {trap}\n[uploadpack]\n\tpackObjectsHook = {trap}\n"
        )
    mirror = Mirror(tmp_path / "state")
    commit = await mirror.fetch(str(site.directory), "main")
    await configuration_of(mirror.directory, commit, "")
    assert committed(site.directory) == commit
    read_repository(site.directory, "main").configuration()
    assert not ran.exists()


async def test_a_link_out_of_the_tree_is_named_and_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret.yaml"
    secret.write_text("kind: node\nname: stolen\n", encoding="utf-8")
    site = small_site(tmp_path / "site")
    (site.directory / "site" / "more.yaml").symlink_to(secret)
    commit = site.commit()
    with pytest.raises(BadRequest, match=r"site/more\.yaml: is a symbolic link, and is not followed"):
        await configuration_of(site.directory, commit, "")
    with pytest.raises(BadRequest, match="symbolic link"):
        read_files(site.directory)
    (site.directory / "site" / "more.yaml").unlink()
    (site.directory / "vendor").symlink_to(tmp_path)
    commit = site.commit()
    with pytest.raises(BadRequest, match="vendor: is a symbolic link"):
        read_files(site.directory)
    assert [entry.name for entry in (await configuration_of(site.directory, commit, "")).nodes] == [
        "n1",
        "n2",
        "n3",
        "n4",
    ]


async def test_a_submodule_is_named_and_never_fetched(tmp_path: Path) -> None:
    site = small_site(tmp_path / "site")
    site.write({".gitmodules": '[submodule "x"]\n\tpath = vendor/x\n\turl = ext::sh -c true\n'})
    head = site.git("rev-parse", "HEAD")
    site.git("update-index", "--add", "--cacheinfo", f"160000,{head},vendor/x")
    site.git("add", ".gitmodules")
    site.git("commit", "--quiet", "--message", "A submodule")
    with pytest.raises(BadRequest, match="vendor/x: is a submodule, and is not read"):
        await configuration_of(site.directory, site.git("rev-parse", "HEAD"), "")


async def test_a_huge_repository_is_refused_before_it_fills_the_disk(tmp_path: Path) -> None:
    site = small_site(tmp_path / "site")
    (site.directory / "image.bin").write_bytes(os.urandom(3 << 20))
    site.commit()
    mirror = Mirror(tmp_path / "state", FetchLimits(bytes=1 << 20))
    with pytest.raises(BadRequest, match="there is more in it than 1 MiB"):
        await mirror.fetch(str(site.directory), "main")
    left = sum(file.stat().st_size for file in (tmp_path / "state").rglob("*") if file.is_file())
    assert left < 2 << 20


async def test_large_files_that_are_no_configuration_are_left_alone(tmp_path: Path) -> None:
    site = small_site(tmp_path / "site")
    (site.directory / "image.bin").write_bytes(b"\0" * (80 << 20))
    commit = site.commit()
    assert len((await configuration_of(site.directory, commit, "")).nodes) == 4


async def test_more_configuration_than_is_read_is_refused_unread(tmp_path: Path) -> None:
    site = small_site(tmp_path / "site")
    (site.directory / "site" / "a.yaml").write_bytes(b"#" * (65 << 20))
    commit = site.commit()
    with pytest.raises(BadRequest, match="64 MiB, of configuration"):
        await configuration_of(site.directory, commit, "")


async def test_text_that_swells_when_it_is_read_costs_no_more_than_its_limits(tmp_path: Path) -> None:
    lines = ["a: &a [x,x,x,x,x,x,x,x,x]"]
    lines += [f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)]
    site = SiteRepository(tmp_path / "site")
    commit = site.commit({"site/a.yaml": "\n".join(lines) + "\n"})
    with pytest.raises(BadRequest, match=r"site/a\.yaml, line 2, column 8: not YAML: an alias"):
        await configuration_of(site.directory, commit, "")


async def test_a_repository_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    mirror = Mirror(tmp_path / "state", FetchLimits(seconds=0.5))

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            await reader.read()

    silent = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    try:
        with pytest.raises(Unavailable, match=r"gave no answer within 0\.5 s"):
            await mirror.fetch(f"https://127.0.0.1:{port}/site.git", "main")
    finally:
        silent.close()


async def test_a_repository_or_branch_that_is_not_there_is_said_in_words(tmp_path: Path) -> None:
    site = small_site(tmp_path / "site")
    mirror = Mirror(tmp_path / "state")
    with pytest.raises(Unavailable, match="cannot be fetched"):
        await mirror.fetch(str(tmp_path / "nowhere"), "main")
    with pytest.raises(Unavailable, match=r"cannot be fetched.*absent"):
        await mirror.fetch(str(site.directory), "absent")
    with pytest.raises(NotFound, match="absent: no such branch or commit"):
        commit_of(site.directory, "absent")
    for revision in ("--output=/tmp/x", "-x", "main --all", "main:site", "$(id)"):
        with pytest.raises(BadRequest, match="not the name of a branch or a commit"):
            commit_of(site.directory, revision)
    with pytest.raises(StrataError):
        read_commit(site.directory, "0" * 40)


async def test_a_branch_that_was_put_elsewhere_is_told_from_one_that_went_on(tmp_path: Path) -> None:
    site = small_site(tmp_path / "site")
    mirror = Mirror(tmp_path / "state")
    first = await mirror.fetch(str(site.directory), "main")
    site.commit({"site/more.yaml": "kind: node\nname: n5\n"})
    second = await mirror.fetch(str(site.directory), "main")
    site.git("reset", "--quiet", "--hard", first)
    site.commit({"site/more.yaml": "kind: node\nname: n6\n"})
    third = await mirror.fetch(str(site.directory), "main")
    assert await mirror.follows(first, second)
    assert await mirror.follows(first, third)
    assert not await mirror.follows(second, third)


def test_only_what_is_committed_is_applied(tmp_path: Path) -> None:
    site = small_site(tmp_path / "site")
    assert committed(site.directory) == site.git("rev-parse", "HEAD")
    site.write({"site/nodes.yaml": NODES + "  - {name: n5}\n"})
    with pytest.raises(Refused, match=r"site/nodes\.yaml: is not as it was committed"):
        committed(site.directory)
    assert len(read_repository(site.directory).configuration().nodes) == 5
    assert len(read_repository(site.directory, "main").configuration().nodes) == 4
    (tmp_path / "plain").mkdir()
    assert committed(tmp_path / "plain") == ""
