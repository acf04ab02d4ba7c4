"""What Slurm's commands print, read: and what real ones do print."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.core.errors import DeviceError
from strata.schedulers.protocol import NodeSeen
from strata.schedulers.runner import Place, Runner
from strata.schedulers.slurm import replies
from strata.schedulers.slurm.slurm import Slurm as Adapter
from support.slurm import slurm, until
from support.work import counted

MARK = "strata/ab12cd34"


def row(*fields: str) -> str:
    return "\x1f".join(fields) + "\x1e\n"


def seen(state: str, reason: str = "none", jobs: str = "") -> NodeSeen:
    states = replies.nodes(row("n1", state, "root", reason), MARK)
    return replies.together(states, replies.jobs(jobs))["n1"]


@pytest.mark.parametrize("state", ["future", "unknown", "error", "dancing", "", "idling+drain"])
def test_a_state_that_nobody_knows_stays_unknown(state: str) -> None:
    assert not seen(state).understood


@pytest.mark.parametrize(
    ("state", "drained", "down", "held"),
    [
        ("idle", False, False, False),
        ("IDLE+DRAIN", True, False, False),
        ("allocated+drain", True, False, True),
        ("mixed", False, False, True),
        ("idle+completing+drain", True, False, True),
        ("down+not_responding", False, True, False),
        ("down+drain+not_responding", True, True, False),
        ("idle+drain+a_flag_of_the_future", True, False, False),
    ],
)
def test_a_state_says_whether_a_job_can_begin_or_is_there(state: str, drained: bool, down: bool, held: bool) -> None:
    found = seen(state)
    assert (found.understood, found.drained, found.down, bool(found.jobs)) == (True, drained, down, held)


@pytest.mark.parametrize(
    ("state", "boots_first"),
    [
        ("idle+powering_down", True),
        ("idle+powered_down", True),
        ("IDLE+POWERED_DOWN", True),
        ("idle+reboot_issued", True),
        ("idle+power_down", False),
        ("idle+reboot_requested", False),
        ("allocated+not_responding+powering_up", False),
        ("idle+powering_up", False),
        ("idle", False),
    ],
)
def test_a_node_that_slurm_has_switched_off_begins_no_job_before_it_has_booted(state: str, boots_first: bool) -> None:
    assert seen(state).boots_first == boots_first


@pytest.mark.parametrize("state", ["RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STOPPED", "NEW_IN_SLURM_99"])
def test_a_job_holds_its_nodes_until_it_is_known_to_have_ended(state: str) -> None:
    assert seen("idle+drain", jobs=row("7_1", state, "n[1-2]")).jobs == ("7_1",)


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"])
def test_a_job_that_has_ended_holds_nothing(state: str) -> None:
    assert seen("idle+drain", jobs=row("7", state, "n1")).jobs == ()


def test_a_job_on_a_node_of_no_partition_is_seen_all_the_same() -> None:
    found = replies.together({}, replies.jobs(row("7", "RUNNING", "n9")))
    assert found["n9"].jobs == ("7",) and not found["n9"].drained


@pytest.mark.parametrize(
    ("state", "reason", "ours"),
    [
        ("idle+drain", f"{MARK}: to switch-image", True),
        ("idle", f"{MARK}: to switch-image", False),
        ("idle+drain", f"{MARK}99: another Strata's", False),
        ("idle+drain", "bad DIMM", False),
        ("idle+drain", f"not {MARK}:", False),
    ],
)
def test_only_a_drain_that_bears_our_mark_is_ours(state: str, reason: str, ours: bool) -> None:
    assert seen(state, reason).ours == ours


@pytest.mark.parametrize("said", ["n1\x1fidle", "n1\x1fidle\x1froot\x1e\n", row("n1", "idle", "root", "x", "y")])
def test_an_answer_that_is_cut_off_or_has_other_columns_is_an_error(said: str) -> None:
    with pytest.raises(DeviceError):
        replies.nodes(said, MARK)


@given(st.text(alphabet=st.characters(exclude_characters="\x1e\x1f"), min_size=1).map(str.strip).filter(bool))
def test_whatever_somebody_typed_as_a_reason_comes_back_whole(reason: str) -> None:
    if reason not in ("none", "(null)", "Unknown"):
        assert seen("idle+drain", reason).reason == reason


def test_what_ten_thousand_alike_nodes_cost_does_not_grow_with_questions() -> None:
    replies.names.cache_clear()
    said = row("x[00001-10000]", "idle", "Unknown", "none")
    replies.nodes(said, MARK)
    with counted() as work:
        assert len(replies.nodes(said, MARK)) == 10_000
    assert work.calls < 200, "a nodeset that was read before is not read again"


@pytest.mark.server
@pytest.mark.slow
async def test_ten_thousand_nodes_of_a_real_slurm_are_asked_in_two_questions_and_drained_in_one() -> None:
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:
        async with slurm(Path(name), "x[00001-10000]", "PartitionName=hidden Nodes=ALL Hidden=YES") as real:
            await until("it answers", lambda: "Running as primary controller" in real.said(), real)
            runner = _Counting(Place(env=real.env))
            adapter = Adapter(runner, MARK)
            found = await adapter.look()
            assert len(found) == 10_000 and len(runner.commands) == 2
            assert not any(node.understood for node in found.values()), "Slurm has not heard of them yet"

            odd = [f"x{number:05d}" for number in range(1, 10_001, 2)]
            await adapter.drain(odd, "to try | \"it\" = 'out'")
            assert len(runner.commands) == 3
            found = await adapter.look()
            assert [node for node, seen in found.items() if seen.ours] == odd
            assert found[odd[0]].reason == f"{MARK}: to try | \"it\" = 'out'" and found[odd[0]].by == "root"


class _Counting(Runner):
    """Writes down what is run."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.commands: list[str] = []

    async def run(self, *command: str, stdin: str = "", limit: float = 30.0) -> str:
        self.commands.append(command[0])
        return await super().run(*command, stdin=stdin, limit=limit)
