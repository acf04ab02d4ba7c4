"""Files beneath a root: nothing outside can be reached, and what is written is there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from strata.agent.delivery.accounts import Accounts
from strata.agent.delivery.beneath import Beneath
from strata.agent.delivery.live import set_sysctl, sysctl_differs
from strata.agent.errors import CommandFailed
from strata.agent.paths import Paths


@pytest.fixture
def root(tmp_path: Path) -> Path:
    found = tmp_path / "root"
    (found / "etc").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    return found


def put(root: Path, path: str, data: bytes = b"ours\n") -> None:
    with Beneath(root) as below:
        below.stage(path, data, 0o640, os.getuid(), os.getgid())
        below.commit()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_has_its_bytes_and_mode_and_folders_are_made_for_it(root: Path) -> None:
    put(root, "/opt/site/a.conf")
    file = root / "opt/site/a.conf"
    assert (file.read_bytes(), file.stat().st_mode & 0o7777) == (b"ours\n", 0o640)
    assert names(file.parent) == ["a.conf"]


@pytest.mark.parametrize("target", ["../../outside", "/outside", "../../../../../../outside"])
def test_a_link_leads_nowhere_outside_the_root(root: Path, target: str) -> None:
    (root / "etc/conf").symlink_to(target)
    put(root, "/etc/conf/a")
    assert not list((root.parent / "outside").iterdir())
    assert (root / "outside/a").read_bytes() == b"ours\n", "it is followed as a process rooted there would"


def test_a_link_to_a_folder_outside_by_its_real_path_is_taken_as_one_within(root: Path) -> None:
    (root / "etc/conf").symlink_to(root.parent / "outside")
    put(root, "/etc/conf/a")
    assert not list((root.parent / "outside").iterdir())


@pytest.mark.skipif(os.getuid() != 0, reason="needs root: a link of another account")
def test_a_link_that_root_did_not_make_is_not_followed(root: Path) -> None:
    (root / "home/ann").mkdir(parents=True)
    link = root / "home/ann/.ssh"
    link.symlink_to("/etc")
    os.lchown(link, 1000, 1000)
    with pytest.raises(CommandFailed, match="a link that root did not make"):
        put(root, "/home/ann/.ssh/authorized_keys")
    assert not list((root / "etc").iterdir())


def test_a_link_in_place_of_the_file_is_replaced_and_not_written_through(root: Path) -> None:
    victim = root.parent / "outside/victim"
    victim.write_text("theirs")
    (root / "etc/a").symlink_to(victim)
    put(root, "/etc/a")
    assert victim.read_text() == "theirs"
    assert (root / "etc/a").read_bytes() == b"ours\n" and not (root / "etc/a").is_symlink()


@pytest.mark.parametrize("path", ["/", "", "/etc/../../outside/a", "/.."])
def test_what_is_no_path_of_a_file_is_refused(root: Path, path: str) -> None:
    with pytest.raises(CommandFailed, match="no path of a file"):
        put(root, path)


def test_links_in_a_circle_end(root: Path) -> None:
    (root / "etc/a").symlink_to("b")
    (root / "etc/b").symlink_to("a")
    with pytest.raises(CommandFailed, match="too many links"):
        put(root, "/etc/a/file")


def test_one_file_that_cannot_be_written_leaves_all_as_they_were(root: Path) -> None:
    (root / "etc/a").write_text("before")
    (root / "etc/b").mkdir()
    with Beneath(root) as below, pytest.raises(CommandFailed, match="/etc/b is a folder"):
        below.stage("/etc/a", b"after", 0o644, 0, 0)
        below.stage("/etc/b", b"after", 0o644, 0, 0)
        below.commit()
    assert (root / "etc/a").read_text() == "before"
    assert names(root / "etc") == ["a", "b"], "what was written beside them is gone"


def test_what_a_killed_agent_left_beside_is_not_in_the_way(root: Path) -> None:
    (root / "etc/.strata~a").write_text("half")
    put(root, "/etc/a")
    assert names(root / "etc") == ["a"]


def test_only_a_plain_file_is_removed(root: Path) -> None:
    (root / "etc/a").symlink_to("b")
    (root / "etc/c").write_text("")
    with Beneath(root) as below:
        below.remove("/etc/a")
        below.remove("/etc/c")
        below.remove("/etc/nowhere/d")
    assert names(root / "etc") == ["a"]


def test_a_pipe_in_place_of_a_file_does_not_hold_the_agent(root: Path) -> None:
    os.mkfifo(root / "etc/a")
    with Beneath(root) as below, pytest.raises(CommandFailed, match="no plain file"):
        below.read("/etc/a")


ANN = {"name": "ann", "uid": 1000, "gid": None, "comment": "", "home": "/home/ann", "shell": "/bin/sh"}


def test_an_account_is_laid_over_those_of_the_image_and_taken_away_again(root: Path) -> None:
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nann:x:7:7::/:/bin/false\n")
    (root / "etc/group").write_text("root:x:0:\n")
    (root / "etc/shadow").write_text("root:*:::::::\n")
    with Beneath(root) as below:
        accounts = Accounts(below, [ANN], [{"name": "hpc", "gid": 500, "accounts": ["ann"]}])
        assert [(what, name) for what, name, _ in accounts.differ()] == [
            ("user", "ann"),
            ("group", "hpc"),
            ("group", "ann"),
        ]
        texts = accounts.texts({})
        assert accounts.numbers("ann", "hpc") == (1000, 500)
    assert texts["/etc/passwd"] == b"root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n"
    assert texts["/etc/group"] == b"root:x:0:\nhpc:x:500:ann\nann:x:1000:\n"
    assert b"ann:*:::::::\n" in texts["/etc/shadow"]
    for path, data in texts.items():
        put(root, path, data)
    with Beneath(root) as below:
        assert not Accounts(below, [ANN], [{"name": "hpc", "gid": 500, "accounts": ["ann"]}]).differ()
        gone = Accounts(below, [], []).texts(
            {"/etc/passwd": ["ann"], "/etc/group": ["ann", "hpc"], "/etc/shadow": ["ann"]}
        )
    assert gone["/etc/passwd"] == b"root:x:0:0::/root:/bin/sh\n"
    assert gone["/etc/group"] == b"root:x:0:\n"
    assert gone["/etc/shadow"] == b"root:*:::::::\n"


def test_an_owner_that_the_member_does_not_know_is_named(root: Path) -> None:
    with Beneath(root) as below:
        accounts = Accounts(below, [], [])
        assert accounts.numbers("root", "") == (0, 0)
        assert accounts.numbers("12", "13") == (12, 13)
        with pytest.raises(CommandFailed, match="slurm is not in the member's /etc/passwd"):
            accounts.numbers("slurm", "")


def test_a_parameter_of_the_kernel_is_compared_and_set(tmp_path: Path) -> None:
    paths = Paths(run=tmp_path / "run", root=tmp_path)
    file = tmp_path / "proc/sys/net/ipv4/tcp_rmem"
    file.parent.mkdir(parents=True)
    file.write_text("4096\t131072\t6291456\n")
    assert not sysctl_differs(paths, {"name": "net.ipv4.tcp_rmem", "value": "4096 131072 6291456"})
    entry = {"name": "net/ipv4/tcp_rmem", "value": "4096 87380 8388608"}
    assert sysctl_differs(paths, entry) == "is 4096 131072 6291456"
    set_sysctl(paths, entry)
    assert not sysctl_differs(paths, entry)
    assert "no such parameter" in sysctl_differs(paths, {"name": "net.ipv4.nothing", "value": "1"})
    with pytest.raises(CommandFailed, match=r"sysctl net\.nowhere\.at=1"):
        set_sysctl(paths, {"name": "net.nowhere.at", "value": "1"})
