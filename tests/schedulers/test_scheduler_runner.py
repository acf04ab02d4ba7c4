"""How commands of workload managers are started, and what is made of their end."""

from __future__ import annotations

import grp
import itertools
import pwd
import shlex
from pathlib import Path

import pytest

from strata.core.errors import BadRequest, DeviceError, Refused, Unavailable
from strata.schedulers.members import members, read
from strata.schedulers.runner import Account, Place, Runner, switch, words
from support.ssh_server import sshd

REASON = 'Reason=it\'s $(reboot) `reboot`; "x" | y\n&'


def test_on_another_host_every_word_arrives_as_it_is_and_host_keys_are_checked() -> None:
    place = Place(on="strata@login1", env={"SLURM_CONF": "/etc/s p/slurm.conf"})
    started = words(place, ("scontrol", "update", REASON), Path("/etc/strata/ssh"))
    assert started[:3] == ("ssh", "-F", "/etc/strata/ssh")
    assert {("-o", "StrictHostKeyChecking=yes"), ("-o", "BatchMode=yes")} <= set(itertools.pairwise(started))
    assert started[-3:-1] == ("--", "strata@login1"), "a host is never an option"
    assert shlex.split(started[-1]) == ["env", "SLURM_CONF=/etc/s p/slurm.conf", "scontrol", "update", REASON]


def test_here_no_shell_is_between() -> None:
    assert words(Place(env={"A": "b"}), ("scontrol", REASON)) == ("scontrol", REASON)


@pytest.mark.server
async def test_a_command_that_fails_is_told_in_its_own_words() -> None:
    with pytest.raises(DeviceError, match="no such thing here") as caught:
        await Runner(Place()).run("sh", "-c", "echo no such thing here >&2; exit 3")
    assert caught.value.reply == "no such thing here"


@pytest.mark.server
async def test_a_command_that_does_not_end_or_is_not_there_leaves_everything_unknown() -> None:
    with pytest.raises(Unavailable, match="did not end within"):
        await Runner(Place()).run("sleep", "600", limit=0.05)
    with pytest.raises(Unavailable, match="could not be started"):
        await Runner(Place()).run("sinfo-that-is-not-there")


@pytest.mark.server
async def test_a_command_gets_what_it_finds_its_cluster_by_and_what_it_is_to_read() -> None:
    said = await Runner(Place(env={"SLURM_CONF": "/x"})).run("sh", "-c", 'echo "$SLURM_CONF"; cat', stdin="group")
    assert said == "/x\ngroup"


@pytest.mark.server
async def test_what_is_done_for_somebody_is_done_as_their_account_and_with_nothing_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OUR_SECRET", "x")
    runner = Runner(Place(env={"SLURM_CONF": "/x"}))
    said = await runner.run("sh", "-c", "id -u; id -G; echo $HOME $USER $SLURM_CONF $OUR_SECRET $TZ", account="nobody",
                            env={"TZ": "UTC"})  # fmt: skip
    there = pwd.getpwnam("nobody")
    assert said.split() == [str(there.pw_uid), str(there.pw_gid), there.pw_dir, "nobody", "/x", "UTC"]


async def test_nothing_is_done_as_root_or_as_nobody_that_is_there() -> None:
    for place in (Place(), Place(on="admin@login1")):
        with pytest.raises(Refused, match="root"):
            await Runner(place).run("id", account="root")
        for name in ("-oProxyCommand=id", "a b", "a@b", "a\nb"):
            with pytest.raises(BadRequest, match="not the name of an account"):
                await Runner(place).run("id", account=name)
    with pytest.raises(BadRequest, match="no such account here"):
        await Runner(Place()).run("id", account="nobody-of-that-name")


def test_a_service_that_is_not_root_does_things_as_its_own_account_alone() -> None:
    ada = Account(name="ada", uid=1001, gid=100, home="/home/ada", shell="/bin/sh")
    assert switch(ada, 1001) == ()
    assert switch(ada, 0) == ("setpriv", "--reuid", "1001", "--regid", "100", "--init-groups", "--")
    with pytest.raises(Refused, match="does not run as root"):
        switch(ada, 1002)


@pytest.mark.server
async def test_who_is_in_a_group_is_asked_where_the_scheduler_is() -> None:
    own = pwd.getpwnam("nobody")
    group = grp.getgrgid(own.pw_gid).gr_name
    assert "nobody" in (await members(Runner(Place()), [group, "no-such-group"]))[group]
    assert await members(Runner(Place()), []) == {}
    assert read(["lab:x:20:ada,bob", "none:x:21:"], ["eve:x:1:20:::", "ann:x:2:22:::"]) == {
        "lab": {"ada", "bob", "eve"},
        "none": frozenset(),
    }


@pytest.mark.server
@pytest.mark.slow
async def test_a_host_is_spoken_to_by_ssh_only_if_its_key_is_the_one_that_is_known(tmp_path: Path) -> None:
    with sshd(tmp_path) as there:
        place = Place(on="cluster-login", env={"SLURM_CONF": "/etc/s p/slurm.conf"})
        runner = Runner(place, ssh_config=there)
        assert await runner.run("printenv", "SLURM_CONF") == "/etc/s p/slurm.conf\n"
        assert await runner.run("printf", "%s", REASON) == REASON
        assert await runner.run("cat", stdin="group") == "group"
        with pytest.raises(DeviceError, match="Permission denied"):
            await runner.run("true", account="nobody")
        other = (tmp_path / "user.pub").read_text(encoding="utf-8")
        for text in (f"cluster-login {other}", ""):
            (tmp_path / "known").write_text(text, encoding="utf-8")
            with pytest.raises(DeviceError, match="Host key verification failed"):
                await runner.run("true")
