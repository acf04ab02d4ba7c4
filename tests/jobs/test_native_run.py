"""``strata-run``: what a program finds in an image, and what its caller hears of it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest

from strata.core.errors import Unavailable
from strata.jobs import native as room
from support.native import AS_USER, USER, compiled, give, run_in, small_image, start_in

pytestmark = pytest.mark.slow


def said(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_program_is_who_its_user_is_and_can_do_no_more(image: Path) -> None:
    found = said(run_in(image, ["sh", "-c", "id -u; id -g; cat /proc/self/status"]))
    assert found.splitlines()[:2] == [str(USER), str(USER)]
    status = dict(line.split(":\t", 1) for line in found.splitlines() if ":\t" in line)
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


def test_files_that_it_makes_in_a_bind_are_its_users(image: Path, users_folder: Path) -> None:
    said(run_in(image, ["touch", "/data/made"], "--bind", f"{users_folder}:/data"))
    found = (users_folder / "made").stat()
    assert (found.st_uid, found.st_gid) == (USER, USER)


def test_the_image_is_read_only(image: Path) -> None:
    give(image)
    refused = run_in(image, ["touch", "/new"])
    assert "Read-only file system" in refused.stderr
    assert not (image / "new").exists()


def test_a_writable_image_takes_changes_and_forgets_them(image: Path) -> None:
    give(image / "etc")
    command = ["sh", "-c", "echo kept > /etc/new && echo kept > /new && cat /etc/new /new"]
    assert said(run_in(image, command, "--writable")) == "kept\nkept"
    assert not (image / "etc/new").exists() and not (image / "new").exists()


def test_a_read_only_bind_cannot_be_written_although_it_is_the_users(image: Path, users_folder: Path) -> None:
    refused = run_in(image, ["touch", "/data/made"], "--bind", f"{users_folder}:/data:ro")
    assert "Read-only file system" in refused.stderr


def test_what_the_image_lacks_is_made_for_a_bind_above_it(image: Path, users_folder: Path) -> None:
    (users_folder / "file").write_text("there")
    (image / "var/lib").mkdir(parents=True)
    (image / "short").symlink_to("/var")
    (image / "etc/dangling").symlink_to("/nowhere/at/all")
    binds = [
        *("--bind", f"{users_folder}:/short/lib/deep/er"),
        *("--bind", f"{users_folder}/file:/etc/dangling"),
        *("--bind", f"{users_folder}:/tmp/below/tmp"),
    ]
    command = ["cat", "/var/lib/deep/er/file", "/etc/dangling", "/tmp/below/tmp/file"]
    assert said(run_in(image, command, *binds)) == "there" * 3
    assert list((image / "var/lib").iterdir()) == []
    assert "Read-only file system" in run_in(image, ["touch", "/var/lib/new"], *binds).stderr


def test_tmp_and_shared_memory_are_its_own(image: Path, users_folder: Path) -> None:
    command = ["sh", "-c", "touch /tmp/x /dev/shm/x && ls /tmp /dev/shm"]
    assert said(run_in(image, command)).split() == ["/dev/shm:", "x", "/tmp:", "x"]
    (users_folder / "shared").touch()
    assert said(run_in(image, ["ls", "/tmp"], "--bind", f"{users_folder}:/tmp")) == "shared"


def test_a_device_is_there_if_it_is_named(image: Path) -> None:
    assert "No such file" in run_in(image, ["ls", "/dev/ptmx", "/dev/net/tun"]).stderr
    wanted = "/dev/net/tun" if Path("/dev/net/tun").exists() else "/dev/kmsg"
    assert said(run_in(image, ["ls", wanted], "--device", wanted)) == wanted


def test_the_environment_is_passed_on_or_not(image: Path) -> None:
    environment = {"PATH": "/nowhere", "SECRET": "s", "HOME": "/root"}
    command = ["/bin/env"]
    kept = said(run_in(image, command, "--env", "A=b=c", env=environment)).splitlines()
    assert set(kept) == {"PATH=/nowhere", "SECRET=s", "HOME=/", "A=b=c"}
    cleared = said(run_in(image, command, "--clear-env", "--env", "HOME=/h", env=environment)).splitlines()
    assert {line.partition("=")[0] for line in cleared} == {"PATH", "HOME"}
    assert "HOME=/h" in cleared


def test_a_home_is_none_the_users_or_empty(image: Path, users_folder: Path) -> None:
    (users_folder / "mine").touch()
    environment = {"HOME": str(users_folder)}
    look = ["sh", "-c", "echo $HOME; ls $HOME"]
    assert said(run_in(image, look, "--home", "user", env=environment)).split() == [str(users_folder), "mine"]
    assert said(run_in(image, look, "--home", "tmp", env=environment)).split() == [str(users_folder)]
    assert "mine" not in said(run_in(image, look, env=environment))


def test_it_starts_in_the_directory_that_was_asked_for(image: Path) -> None:
    assert said(run_in(image, ["pwd"])) == "/"
    assert said(run_in(image, ["pwd"], "--workdir", "/etc")) == "/etc"
    refused = run_in(image, ["pwd"], "--workdir", "/nowhere")
    assert (refused.returncode, refused.stderr) == (
        125,
        "strata-run: working directory /nowhere in the image: No such file or directory\n",
    )


@pytest.mark.parametrize("more", [(), ("--pid",)])
def test_the_exit_code_is_the_programs(image: Path, more: tuple[str, ...]) -> None:
    assert run_in(image, ["sh", "-c", "exit 42"], *more).returncode == 42
    assert run_in(image, ["nobody-has-this"], *more).returncode == 127
    assert run_in(image, ["/etc"], *more).returncode == 126
    killed = run_in(image, ["sh", "-c", "kill -TERM $$"], *more).returncode
    assert killed == (128 + signal.SIGTERM if more else -signal.SIGTERM)


def test_a_signal_reaches_the_program_and_its_processes_end_with_it(image: Path) -> None:
    script = "trap 'echo caught; exit 5' TERM; sleep 600 & echo ready; wait"
    with start_in(image, ["sh", "-c", script], "--pid") as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        # The background process holds the pipe: that it is at its end says that it is gone.
        assert process.stdout.read() == "caught\n"
        assert process.wait(60) == 5


def test_all_processes_end_when_the_runner_is_killed(image: Path) -> None:
    with start_in(image, ["sh", "-c", "echo ready; sleep 600"], "--pid") as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        process.kill()
        assert process.stdout.read() == ""


def test_without_a_namespace_for_processes_the_runner_becomes_the_program(image: Path) -> None:
    with start_in(image, ["sleep", "600"]) as process:
        deadline = time.monotonic() + 60
        while b"busybox" not in os.fsencode(Path(f"/proc/{process.pid}/exe").readlink()):
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.kill()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--bind", "relative:/data"), "bind relative: absolute paths are needed: SOURCE:TARGET[:ro]"),
        (("--bind", "/nowhere:/data"), "bind /nowhere: No such file or directory"),
        (("--bind", "/etc:/a/../b"), "bind /etc: the target has .. or // in it, or is too long"),
        (("--device", "/etc/passwd"), "device /etc/passwd: it is not below /dev"),
        (("--device", "/dev/shm"), "device /dev/shm: it is no device; name each device itself"),
        (("--home", "mine"), "--home is none, user or tmp, not mine; strata-run --help shows what there is"),
        (("--env", "NAME"), "--env is NAME=VALUE, not NAME; strata-run --help shows what there is"),
        (("--root", "/nowhere"), "image /nowhere: No such file or directory"),
        (("--no-such",), "no such option, or its value is missing: --no-such; strata-run --help shows what there is"),
    ],
)
def test_what_is_wrong_is_said_in_words(image: Path, options: tuple[str, ...], why: str) -> None:
    refused = run_in(image, ["true"], *options)
    assert (refused.returncode, refused.stderr) == (125, f"strata-run: {why}\n")


def test_an_image_without_any_folder_for_mounts_can_be_entered(runner: Path, folder: Path) -> None:
    root = small_image(folder / "bare")
    for name in ("dev", "proc", "sys", "tmp", "etc"):
        (root / name).rmdir()
    assert said(run_in(root, ["ls", "/"])).split() == ["bin", "dev", "proc", "tmp"]


def test_a_program_that_is_not_built_says_how_to_build_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "BUILT", tmp_path)
    with pytest.raises(Unavailable, match=r"strata-run is not built.*make native"):
        room.program("strata-run")


def test_an_image_is_entered_in_a_container_that_shows_proc_sys_read_only_and_nothing_is_nested_there(
    image: Path,
) -> None:
    compiled(Path(__file__).with_name("escapes.c"), image / "bin/escape", "-static")
    closed = "mount --bind /proc/sys /proc/sys; mount -o remount,bind,ro /proc/sys"
    line = [*AS_USER, str(room.program("strata-run")), "--root", str(image), "--", "/bin/escape", "nest"]
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", f"{closed} && exec {shlex.join(line)}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    refused = (
        "clone3: Function not implemented",
        "unshare: Operation not permitted",
        "mount in it: Operation not permitted",
    )
    assert (tuple(done.stdout.splitlines()), done.stderr) == (refused, "")
