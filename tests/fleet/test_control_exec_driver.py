"""A site's command as a driver: what it is given, and that nothing that it does can hurt."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from strata.core.column import Column
from strata.core.driver import Batch
from strata.core.errors import BadRequest
from strata.core.model import Mutation, values
from strata.core.state import Outcome
from strata.fleet.drivers import exec_driver
from strata.fleet.drivers.exec_driver import ExecDriver

MUTATION = Mutation(name="set-bios", variable="bios", start=values("other"), to="wanted", timeout=20)


def batch(*names: str, **more: object) -> Batch:
    return Batch(names=names, uids=np.arange(1, len(names) + 1), **more)  # type: ignore[arg-type]


def sh(script: str, timeout: float = 20) -> ExecDriver:
    return ExecDriver("site", ["/bin/sh", "-c", script], timeout)


def gone(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


async def test_the_command_gets_the_batch_and_its_answer_is_read_by_node(tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    answer = {"n1": "done", "n2": {"outcome": "failed", "reason": "locked"}, "n3": "fenced", "n9": "done"}
    driver = sh(f"cat > {heard}; echo '{json.dumps(answer)}'")
    many = batch(
        "n1",
        "n2",
        "n3",
        "n4",
        bmcs=("b1", "b2", "b3", "b4"),
        goals={"bios": Column.of(["v2", "v2", None, "v3"])},
        epochs=np.array([17, 17, 18, 18]),
        generation=4,
    )
    outcomes = await driver.act(MUTATION, many)
    assert outcomes.codes.tolist() == [Outcome.DONE, Outcome.FAILED, Outcome.FENCED, Outcome.UNKNOWN]
    assert outcomes.reasons == {1: "locked", 3: "the command did not say"}
    said = json.loads(heard.read_text())
    assert (said["action"], said["mutation"], said["timeout"]) == ("act", "set-bios", 20.0)
    assert said["nodes"][0] == {"name": "n1", "uid": 1, "bmc": "b1", "goal": {"bios": "v2"}, "fence": [17, 4]}
    assert said["nodes"][2]["goal"] == {"bios": "unknown"} and said["nodes"][3]["fence"] == [18, 4]


async def test_what_it_sees_becomes_columns_and_the_rest_is_unknown() -> None:
    answer = {"n1": {"bios": "v2", "fan": "ok", "extra": "x"}, "n2": {"bios": 7}, "n3": "junk"}
    seen = await sh(f"cat >/dev/null; echo '{json.dumps(answer)}'").observe(["bios", "fan"], batch("n1", "n2", "n3"))
    assert {name: column.values() for name, column in seen.items()} == {
        "bios": ["v2", "unknown", "unknown"],
        "fan": ["ok", "unknown", "unknown"],
    }


async def test_only_an_empty_text_is_a_yes() -> None:
    answer = {"n1": "", "n2": "a job runs", "n3": None, "n4": True}
    said = await sh(f"echo '{json.dumps(answer)}'").permits("no-job", batch("n1", "n2", "n3", "n4", "n5"))
    assert said[:2] == ["", "a job runs"]
    assert all(said[2:]) and said[4] == "the command did not say"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'it is broken' >&2; exit 3", "status 3: it is broken"),
        ("kill -9 $$", "signal 9"),
        ("echo 'n1: done'", "not JSON"),
        ("echo '[1]'", "by node name"),
        ("printf '\\377\\376'", "not JSON"),
        ("true", "not JSON"),
        ("printf '\\033[2Jbad' >&2; exit 1", "[2Jbad"),
    ],
)
async def test_a_wrong_answer_leaves_everything_unknown_and_says_why(script: str, words: str) -> None:
    driver = sh(script)
    outcomes = await driver.act(MUTATION, batch("n1", "n2"))
    assert outcomes.codes.tolist() == [Outcome.UNKNOWN] * 2
    assert words in outcomes.reasons[0] and "\x1b" not in outcomes.reasons[0]
    seen = (await driver.observe(["bios"], batch("n1", "n2")))["bios"]
    assert seen.values() == ["unknown"] * 2
    assert words in seen.reasons[1] and "\x1b" not in seen.reasons[1]
    assert words in (await driver.permits("no-job", batch("n1")))[0]


@pytest.mark.parametrize("said", ['"maybe"', "7", "null", "{}", '{"outcome": []}', '{"outcome": "done", "reason": {}}'])
async def test_an_odd_word_for_one_node_never_crashes(said: str) -> None:
    outcomes = await sh(f"echo '{{\"n1\": {said}}}'").act(MUTATION, batch("n1"))
    assert outcomes.codes[0] == (Outcome.DONE if "done" in said else Outcome.UNKNOWN)


@pytest.mark.slow
async def test_the_whole_process_group_is_killed_at_the_time_limit(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    driver = sh(f"sleep 300 & echo $! $$ > {pids}; wait", timeout=1.5)
    outcomes = await driver.act(MUTATION, batch("n1"))
    assert outcomes.codes[0] == Outcome.UNKNOWN and "1.5 s" in outcomes.reasons[0]
    for pid in map(int, pids.read_text().split()):
        await until_gone(pid)


async def test_a_child_left_behind_by_a_good_command_is_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    outcomes = await sh(f'sleep 300 >/dev/null 2>&1 </dev/null & echo $! > {pids}; echo \'{{"n1": "done"}}\'').act(
        MUTATION, batch("n1")
    )
    assert outcomes.codes[0] == Outcome.DONE
    await until_gone(int(pids.read_text()))


async def until_gone(pid: int) -> None:
    deadline = time.monotonic() + 60
    while not gone(pid):
        assert time.monotonic() < deadline, f"process {pid} still runs"
        await asyncio.sleep(0.005)


async def test_a_cancelled_call_leaves_no_process(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    call = asyncio.create_task(sh(f"echo $$ > {pids}; sleep 300").act(MUTATION, batch("n1")))
    deadline = time.monotonic() + 60
    while not (pids.exists() and pids.read_text().strip()):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until_gone(int(pids.read_text()))


@pytest.mark.parametrize("ticks", range(6))
async def test_a_call_cancelled_while_it_starts_leaves_no_process(ticks: int, tmp_path: Path) -> None:
    driver = ExecDriver("site", ["/bin/sh", "-c", "sleep 300", str(tmp_path)])
    call = asyncio.create_task(driver.act(MUTATION, batch("n1")))
    for _ in range(ticks):
        await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    deadline = time.monotonic() + 60
    while mine := [entry for entry in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path).encode() in read(entry)]:
        assert time.monotonic() < deadline, mine
        await asyncio.sleep(0.05)


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


async def test_endless_output_is_cut_off_and_the_command_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exec_driver, "MOST_OUTPUT", 100_000)
    outcomes = await sh("exec yes").act(MUTATION, batch("n1"))
    assert "more than 100000 bytes" in outcomes.reasons[0]


async def test_nothing_of_our_environment_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRATA_TOKEN", "s3cret")
    script = "import json,os; print(json.dumps({'n1': {'env': ' '.join(sorted(os.environ)), 'cwd': os.getcwd()}}))"
    driver = ExecDriver("site", [sys.executable, "-I", "-c", script], 20, {"SITE": "1"})
    seen = await driver.observe(["env", "cwd"], batch("n1"))
    names = set(seen["env"].values()[0].split())
    assert names - {"LC_CTYPE"} == {"PATH", "LANG", "SITE"}
    assert seen["cwd"].values() == ["/"]


async def test_no_shell_reads_the_command() -> None:
    driver = ExecDriver("site", ["/bin/echo", '{"n1": "done", "x": "$(touch /tmp/never) ; `id`"}'])
    assert (await driver.act(MUTATION, batch("n1"))).codes[0] == Outcome.DONE


async def test_nothing_is_started_once_the_lead_has_run_out(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    outcomes = await sh(f"touch {mark}").act(MUTATION, batch("n1", valid_until=time.monotonic() - 1))
    assert outcomes.codes[0] == Outcome.FENCED and not mark.exists()


async def test_a_command_that_does_not_read_is_fine_and_one_that_is_missing_is_named() -> None:
    names = tuple(f"n{i}" for i in range(3000))
    driver = sh('exec 0<&-; echo \'{"n1": "done"}\'')
    assert (await driver.act(MUTATION, batch(*names))).codes[1] == Outcome.DONE
    outcomes = await ExecDriver("site", ["/no/such/command"]).act(MUTATION, batch("n1"))
    assert outcomes.codes[0] == Outcome.UNKNOWN and "/no/such/command" in outcomes.reasons[0]


@pytest.mark.parametrize(("command", "timeout"), [([], 1), ([""], 1), (["a\0b"], 1), (["true"], 0), (["true"], -1)])
def test_a_driver_that_cannot_work_is_refused(command: list[str], timeout: float) -> None:
    with pytest.raises(BadRequest, match="driver site"):
        ExecDriver("site", command, timeout)


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.slow
async def test_a_child_that_left_the_group_keeps_neither_us_nor_our_pipes(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    before = descriptors()
    driver = sh(f"setsid sh -c 'echo $$ > {pids}; exec sleep 300' & sleep 300", timeout=1.5)
    try:
        many = tuple(f"n{i}" for i in range(3000))
        outcomes = await driver.act(MUTATION, batch(*many))
        assert outcomes.codes[0] == Outcome.UNKNOWN
        await asyncio.sleep(0)
        assert descriptors() <= before + 1
    finally:
        os.kill(int(pids.read_text()), signal.SIGKILL)


async def test_descriptors_are_given_back() -> None:
    before = descriptors()
    for _ in range(5):
        await sh("echo {}").act(MUTATION, batch("n1"))
    assert descriptors() <= before + 1
