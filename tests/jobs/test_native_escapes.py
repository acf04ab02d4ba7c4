"""A hostile program in an image does not get out, nor more than its user has. ``escapes.c`` is that program."""

from __future__ import annotations

import ctypes
import fcntl
import os
import pty
import shutil
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from strata.jobs.native import program
from support.native import USER, as_user, compiled, give, open_folder, run_in, small_image

pytestmark = pytest.mark.slow

ATTEMPTS = (
    *("remount", "unmount", "cover", "nest", "write-proc", "look-at-proc"),
    *("setuid", "devices", "keys", "handles"),
)
UP = "../../../../../../../../.."
CAPABILITIES = struct.pack("<IIIII", 0x02000001, 1, 0, 0, 0)
"""``CAP_CHOWN``, effective, as ``setcap`` writes it."""


@pytest.fixture(scope="module")
def hostile(runner: Path) -> Iterator[Path]:
    """An image whose author wants out: setuid programs, device nodes, links."""
    with open_folder() as folder:
        image = small_image(folder / "image")
        attempts = compiled(Path(__file__).with_name("escapes.c"), image / "bin/escape", "-static")
        for name in ("setuid", "capable"):
            shutil.copy(attempts, image / "bin" / name)
        (image / "bin/setuid").chmod(0o4755)
        os.setxattr(image / "bin/capable", "security.capability", CAPABILITIES)
        os.mknod(image / "bin/mem", 0o20666, os.makedev(1, 5))
        yield image


@pytest.fixture
def outside() -> Iterator[int]:
    """A process of the same user, outside."""
    with subprocess.Popen(["sleep", "600"], user=USER, group=USER, extra_groups=[], cwd="/") as process:
        yield process.pid
        assert process.poll() is None, "somebody has ended it"
        process.kill()


def attempt(image: Path, name: str, argument: str = "", *options: str, **more: Any) -> None:
    """It is tried, and does not work."""
    done = run_in(image, ["/bin/escape", name, argument], *options, **more)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "WORKED" not in done.stdout
    assert done.stdout.count(": ") > 0


def in_plain_namespaces(image: Path, name: str) -> str:
    """The same, where only namespaces and a changed root stand in its way."""
    return as_user(["unshare", "-rm", "chroot", image, "/bin/escape", name]).stdout


@pytest.mark.parametrize(
    ("name", "more"),
    [
        (name, more)
        for name in ATTEMPTS
        for more in ("", "--pid", "--writable")
        if (name, more) != ("remount", "--writable")  # which may be written to
    ],
)
def test_an_attempt_to_get_out_fails(hostile: Path, name: str, more: str) -> None:
    attempt(hostile, name, "", *more.split())


@pytest.mark.parametrize("name", ["cover", "nest", "keys"])
def test_the_attempts_are_real_as_plain_namespaces_do_not_stop_them(hostile: Path, name: str) -> None:
    assert "WORKED" in in_plain_namespaces(hostile, name)


def test_programs_that_are_setuid_or_capable_are_so_outside(hostile: Path) -> None:
    for name in ("setuid", "capable"):
        assert "WORKED" in as_user([hostile / "bin" / name, "who"]).stdout


def test_a_process_outside_is_out_of_reach(hostile: Path, outside: int) -> None:
    attempt(hostile, "outside-process", str(outside))


def test_a_process_outside_is_not_even_seen_with_a_namespace_for_processes(hostile: Path, outside: int) -> None:
    done = run_in(hostile, ["/bin/escape", "others", str(outside)], "--pid")
    assert "WORKED" not in done.stdout and "ptrace of the runner" in done.stdout
    attempt(hostile, "outside-process", str(outside), "--pid")


def test_calls_by_other_numbers_do_not_pass_the_filter(hostile: Path) -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("only there a call has several numbers")
    attempt(hostile, "other-numbers")


def test_descriptors_of_the_caller_are_closed_and_lead_nowhere(hostile: Path, folder: Path) -> None:
    (folder / "secret").touch()
    with ExitStack() as opened:
        kept = [os.open(path, os.O_RDONLY) for path in ("/", "/etc", "/dev/null")]
        for fd in kept:
            opened.callback(os.close, fd)
        attempt(hostile, "descriptors", f"{folder}/secret", pass_fds=kept)
        attempt(hostile, "descriptors", f"{folder}/secret", "--pid", pass_fds=kept)


@pytest.mark.parametrize("more", [(), ("--pid",)])
def test_what_an_image_names_is_not_looked_up_by_descriptors_of_the_runner(
    hostile: Path, more: tuple[str, ...]
) -> None:
    root = os.open("/", os.O_RDONLY)
    try:
        for place in (*(f"/proc/self/fd/{fd}" for fd in (*range(3, 10), root)), "/proc/self/cwd", "/proc/self/root"):
            refused = run_in(hostile, ["true"], "--workdir", place, *more, pass_fds=[root])
            assert refused.returncode == 125, place
            missing = run_in(hostile, [f"{place}/{UP}/bin/busybox", "true"], *more, pass_fds=[root])
            assert missing.returncode == 127 or "/fd/" not in place, place
    finally:
        os.close(root)


def test_a_directory_is_not_passed_on_as_standard_input_nor_on_request(hostile: Path) -> None:
    fd = os.open("/", os.O_RDONLY)
    try:
        for options, more in ([(), {"stdin": fd}], [("--keep-fd", str(fd)), {"pass_fds": [fd]}]):
            refused = run_in(hostile, ["true"], *options, **more)
            assert refused.returncode == 125 and "is a directory, and a way out" in refused.stderr
    finally:
        os.close(fd)


def test_nothing_is_typed_into_the_callers_terminal(hostile: Path) -> None:
    leader, follower = pty.openpty()

    def take_terminal() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    try:
        attempt(hostile, "terminal", stdin=follower, preexec_fn=take_terminal)
    finally:
        os.close(leader)
        os.close(follower)


def test_a_key_of_the_callers_session_is_not_found(hostile: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)

    def have_key() -> None:
        libc.syscall(250, 1, None)  # keyctl: a session keyring of our own, so that this test leaves nothing
        assert libc.syscall(248, b"user", b"strata-test", b"secret", 6, -3) >= 0

    attempt(hostile, "keys", preexec_fn=have_key)


def test_a_script_with_the_runner_as_its_interpreter_starts_nothing(hostile: Path) -> None:
    script = hostile / "bin/again"
    script.write_text("#!/proc/self/exe --root=/\n")
    script.chmod(0o755)
    refused = run_in(hostile, ["/bin/again"])
    assert refused.returncode == 125
    assert "no user namespace: Operation not permitted; there are none in an image" in refused.stderr


def test_root_is_refused(hostile: Path) -> None:
    refused = run_in(hostile, ["true"], user=0, group=0)
    assert refused.returncode == 125
    assert "start it as the user whose job it is" in refused.stderr


def test_a_runner_that_somebody_made_setuid_refuses_to_run(hostile: Path, folder: Path) -> None:
    copy = Path(shutil.copy(program("strata-run"), folder))
    copy.chmod(0o4755)
    refused = as_user([copy, "--root", hostile, "--", "true"])
    assert refused.returncode == 125
    assert "needs none: take them away" in refused.stderr


def test_a_link_of_the_images_does_not_lead_a_bind_out_of_it(hostile: Path, users_folder: Path, folder: Path) -> None:
    (users_folder / "mark").touch()
    victim = folder / "victim"
    victim.mkdir()
    for number, target in enumerate((str(victim), f"../../../../../..{victim}", "/proc/self/root")):
        (hostile / f"link{number}").symlink_to(target)
        done = run_in(
            hostile,
            ["ls", f"/link{number}/"],
            "--bind",
            f"{users_folder}:/link{number}/in",
            "--bind",
            f"{folder}:/host",
        )
        # Where the link leads is looked up in the image; the host's folder of that name is as it was.
        assert done.returncode != 0 or "in" in done.stdout.split()
        assert "in" not in run_in(hostile, ["ls", "/host/victim"], "--bind", f"{folder}:/host").stdout
        assert list(victim.iterdir()) == []


def test_a_link_on_the_way_to_a_bind_is_followed_only_if_it_is_roots(
    image: Path, folder: Path, users_folder: Path
) -> None:
    (folder / "real").mkdir()
    (folder / "real/file").write_text("there")
    (folder / "link").symlink_to("real")
    done = run_in(image, ["cat", "/data/file"], "--bind", f"{folder}/link:/data")
    assert (done.returncode, done.stdout) == (0, "there")
    (users_folder / "link").symlink_to(folder / "real")
    os.lchown(users_folder / "link", USER, USER)
    refused = run_in(image, ["cat", "/data/file"], "--bind", f"{users_folder}/link:/data")
    assert refused.returncode == 125
    assert "link is a symbolic link that is not root's; name the path that it leads to" in refused.stderr


def test_who_swaps_a_folder_for_a_link_while_it_is_bound_gains_nothing(
    image: Path, folder: Path, users_folder: Path
) -> None:
    secret = folder / "secret"
    secret.mkdir()
    give(secret)
    (secret / "file").write_text("secret")
    (users_folder / "harmless").mkdir()
    (users_folder / "harmless/file").write_text("harmless")
    (users_folder / "evil").symlink_to(secret)
    os.lchown(users_folder / "evil", USER, USER)
    ended = threading.Event()

    def swap() -> None:
        exchange, libc = 2, ctypes.CDLL(None)
        one, other = os.fsencode(users_folder / "harmless"), os.fsencode(users_folder / "evil")
        while not ended.is_set():
            assert libc.renameat2(-100, one, -100, other, exchange) == 0

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        seen = [
            run_in(image, ["cat", "/data/file"], "--bind", f"{users_folder}/harmless:/data").stdout for _ in range(60)
        ]
    finally:
        ended.set()
        swapper.join()
    assert set(seen) <= {"harmless", ""}
