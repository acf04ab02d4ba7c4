"""Reservations: what schedulers are told, and what is read from what they say. PBS and LSF by documented forms."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from strata.core.errors import BadRequest, Denied, DeviceError, NotFound, Unavailable
from strata.schedulers.gridengine import reservations as gridengine
from strata.schedulers.gridengine.submission import Environment
from strata.schedulers.kinds import RESERVATION_KINDS, open_reservations
from strata.schedulers.lsf import reservations as lsf
from strata.schedulers.pbs import reservations as pbs
from strata.schedulers.reservations import ReservationSpec, identifier
from strata.schedulers.runner import Place, Runner
from strata.schedulers.slurm import reservations as slurm

START = 1_794_848_400.0  # 2026-11-16 17:00 UTC
SPEC = ReservationSpec(name="course", accounts=("ada", "bob"), start=START, seconds=3601, nodes=2, cores=4)


def test_each_scheduler_is_told_what_when_and_for_whom() -> None:
    assert slurm.reserve(SPEC, ()) == (
        *("scontrol", "create", "reservation", "ReservationName=course", "StartTime=2026-11-16T17:00:00"),
        *("Duration=61", "NodeCnt=2", "Users=ada,bob"),
    )
    four = [Environment("mpi", "4", 100)]
    assert gridengine.reserve(SPEC, four) == (
        *("qrsub", "-a", "202611161700.00", "-d", "3601", "-N", "course", "-u", "ada,bob", "-pe", "mpi", "8"),
    )
    with pytest.raises(BadRequest, match="no parallel environment"):
        gridengine.reserve(SPEC, ())
    assert pbs.reserve(SPEC, ()) == (
        *("pbs_rsub", "-N", "course", "-R", "202611161700.00", "-D", "3601", "-U", "ada,bob"),
        *("-l", "select=2:ncpus=4", "-l", "place=scatter"),
    )
    assert lsf.reserve(SPEC, ()) == (
        *("brsvadd", "-N", "course", "-u", "ada bob", "-unit", "host", "-n", "2", "-R", "select[type==any]"),
        *("-b", "2026:11:16:17:00", "-e", "2026:11:16:18:00"),
    )
    with pytest.raises(BadRequest, match="ten minutes"):
        lsf.reserve(ReservationSpec(name="c", accounts=("ada",), seconds=60), ())


# pbs_rsub(1B), pbs_rstat(1B) of OpenPBS; brsvadd(8), brsvs(1) of LSF 10.1: the forms are theirs, the values ours.
PBS = """Resv ID: R7.head
Reserve_Name = course
Reserve_Owner = root@head
reserve_state = RESV_RUNNING
reserve_start = Mon Nov 16 17:00:00 2026
reserve_end = Mon Nov 16 18:00:00 2026
resv_nodes = (n1:ncpus=4)+(n2
\t:ncpus=4)
Authorized_Users = ada@head,bob@head

Resv ID: R8.head
Reserve_Name = later
reserve_state = RESV_CONFIRMED
reserve_start = Tue Nov 17 17:00:00 2026
"""
LSF = """RSVID       TYPE    USER   NCPUS      RSV_HOSTS           TIME_WINDOW
course      user    ada    0/8        n1:0/4    11/16/17/0-11/16/18/0
                                      n2:0/4
turn        user    bob    0/4        n3:0/4    12/31/23/0-1/1/1/0
system#0     sys   system   4         n4:0/4       5:18:0-5:20:0 *
"""


def test_what_pbs_and_lsf_say_of_reservations_is_read() -> None:
    assert pbs.reserved("R7.head UNCONFIRMED\n") == "R7"
    running, later = pbs.reservations(PBS, START)
    assert (running.id, running.name, running.state, running.nodes) == ("R7", "course", "active", ("n1", "n2"))
    assert (running.start, running.end, running.accounts) == (START, START + 3600, ("ada", "bob"))
    assert (later.id, later.state) == ("R8", "waiting")
    assert lsf.reserved("Reservation course is created\n") == "course"
    assert lsf.reserved('Reservation "user1#0" is created') == "user1#0"
    course, turn, system = lsf.reservations(LSF, START + 60)
    assert (course.state, course.start, course.end, course.nodes) == ("active", START, START + 3600, ("n1", "n2"))
    assert turn.end is not None and turn.start is not None
    assert turn.end - turn.start == 7200, "one over the turn of the year"
    assert (system.state, system.start, system.accounts) == ("unknown", None, ())
    for texts in (pbs, lsf):
        with pytest.raises(DeviceError):
            texts.reserved("something else")
        assert texts.reservations("", START) == []


@pytest.mark.parametrize("ident", ["", "-f", "a b", "x;y", "a\nb", "$x"])
def test_what_is_no_id_reaches_no_command(ident: str) -> None:
    with pytest.raises(BadRequest):
        identifier(ident)


@pytest.mark.parametrize("kind", ["local", "htcondor", "kubernetes"])
def test_who_has_no_reservations_says_so(kind: str) -> None:
    with pytest.raises(BadRequest, match=f"{kind} has no reservations"):
        open_reservations(kind, Runner(Place()))


class Stub(Runner):
    """Fails with these words."""

    def __init__(self, said: str) -> None:
        super().__init__(Place())
        self.said = said

    async def run(self, *command: str, **_: object) -> str:  # type: ignore[override]
        raise DeviceError(self.said, node=command[0], reply=self.said)


@pytest.mark.parametrize(
    ("kind", "said", "error"),
    [
        ("slurm", "Error creating the reservation: Access/permission denied", Denied),
        ("slurm", "Error creating the reservation: Requested nodes are busy", BadRequest),
        ("slurm", "slurm_load_reservations error: Unable to contact slurm controller", Unavailable),
        ("gridengine", "denied: must be manager or operator", Denied),
        ("pbs", "pbs_rsub: Unauthorized Request", Denied),
        ("lsf", "User permission denied. Reservation not created", Denied),
    ],
)
async def test_a_refusal_says_who_is_to_do_what(kind: str, said: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        await open_reservations(kind, Stub(said)).reserve(ReservationSpec(name="c", accounts=("ada",), seconds=600))


async def test_a_grid_engine_without_parallel_environments_says_what_is_missing() -> None:
    spec = ReservationSpec(name="c", accounts=("ada",), seconds=600, cores=4)
    with pytest.raises(BadRequest, match="no parallel environment of this Grid Engine gives 4 slots"):
        await open_reservations("gridengine", Stub("no parallel environment defined")).reserve(spec)


async def test_one_that_is_not_there_is_not_found_and_none_at_all_is_an_empty_list() -> None:
    for kind, said in (
        ("slurm", "Reservation c not found"),
        ("gridengine", 'denied: advance_reservation "7" does not exist'),
        ("pbs", "pbs_rdel: Unknown Reservation Id R7"),
        ("lsf", "No reservation found"),
    ):
        with pytest.raises(NotFound):
            await open_reservations(kind, Stub(said)).remove("c")
        found: Sequence[object] = await open_reservations(kind, Stub(said)).all(START)
        assert not found
    assert set(RESERVATION_KINDS) == {"slurm", "gridengine", "pbs", "lsf"}
