"""The smaller commands: groups, jobs, brakes, credentials, audit, store, status, watch."""

from __future__ import annotations

import asyncio
import json
import stat
from pathlib import Path

import pytest
from cli_support import Run
from fake_server import FakeServer, event

from strata.cli.client import Event
from strata.fleet.watch.commands import describe
from strata.store.open import open_store
from strata.store.protocol import Put

# groups


def test_a_group_is_created_grown_shrunk_and_deleted(server: FakeServer, run: Run) -> None:
    assert run("group", "create", "gpu", "n[1-2]", "n4", "--description", "with GPUs").code == 0
    again = run("group", "create", "gpu")
    assert (again.code, "group gpu: it is there already" in again.err) == (5, True)
    assert "members      n[1-4]" in run("group", "add", "gpu", "n3").out
    assert run("group", "remove", "gpu", "n1", "--json").json["members"] == "n[2-4]"
    assert run("group", "list").lines[1].split() == ["gpu", "3", "n[2-4]", "with", "GPUs"]
    assert run("group", "show", "gpu", "--json").json["count"] == 3
    assert run("group", "delete", "gpu", "--json").json == {"deleted": "gpu"}
    assert run("group", "show", "gpu").code == 1


def test_listings_sort_by_number_and_match_by_pattern(server: FakeServer, run: Run) -> None:
    for name, members in (("a", "n[1-9]"), ("b", "n[1-10]"), ("other", "n1")):
        run("group", "create", name, members)
    assert [line.split()[0] for line in run("group", "list", "--sort", "-count").lines[1:]] == ["b", "a", "other"]
    assert [group["name"] for group in run("group", "list", "--match", "name=?", "--json").json] == ["a", "b"]


@pytest.mark.parametrize(
    ("pattern", "found"), [("?*", ["b"]), ("*", ["a", "b"]), ("-", ["a"]), ("", ["a"]), ("with*", ["b"])]
)
def test_a_field_that_is_empty_matches_only_what_stands_for_nothing(
    server: FakeServer, run: Run, pattern: str, found: list[str]
) -> None:
    run("group", "create", "a", "n1")
    run("group", "create", "b", "n1", "--description", "with GPUs")
    listed = run("group", "list", "--match", f"description={pattern}", "--json").json
    assert [group["name"] for group in listed] == found


# jobs


def test_jobs_are_listed_newest_first(server: FakeServer, run: Run) -> None:
    server.job(10)
    server.job(20)
    assert [line.split()[0] for line in run("operation", "list").lines[1:]] == ["j2", "j1"]


def test_a_job_shows_its_errors_and_how_many_more(server: FakeServer, run: Run) -> None:
    server.job(10, state="failed", failed=3, errors=[{"node": "n1", "detail": "no"}])
    result = run("operation", "show", "j1")
    assert result.lines[-2:] == ["  n1: no", "  and 2 more"]


@pytest.mark.slow
def test_waiting_for_a_job_ends_with_it(server: FakeServer, run: Run) -> None:
    server.job(10, steps=3)
    result = run("operation", "wait", "j1")
    assert result.code == 0
    assert "operation j1: 10/10" in result.err


def test_waiting_for_a_failed_job_is_exit_code_1(server: FakeServer, run: Run) -> None:
    server.job(10, state="failed", failed=1)
    assert run("operation", "wait", "j1").code == 1


def test_waiting_for_a_job_has_an_end(server: FakeServer, run: Run) -> None:
    server.job(10, steps=10**6)
    assert run("operation", "wait", "j1", "--timeout", "0s").code == 1


def test_a_job_is_cancelled_once(server: FakeServer, run: Run) -> None:
    server.job(10, steps=9)
    assert "state     cancelled" in run("operation", "cancel", "j1").out
    assert run("operation", "cancel", "j1").code == 5


def test_a_cancel_that_is_only_asked_for_yet_says_so(server: FakeServer, run: Run) -> None:
    server.job(10, steps=9)
    server.jobs_linger = True
    result = run("operation", "cancel", "j1")
    assert "state     running" in result.out
    assert result.err.startswith("asked to stop; it ends after what it does now")


# brakes


@pytest.mark.parametrize(
    ("arguments", "scope"),
    [([], "fleet"), (["--group", "gpu"], "group:gpu"), (["--node", "n1"], "node:n1")],
)
def test_freezing_and_thawing(server: FakeServer, run: Run, arguments: list[str], scope: str) -> None:
    result = run("freeze", *arguments, "--reason", "cooling")
    assert result.code == 0
    assert " ".join(["strata thaw", *arguments]) in result.out
    assert run("freeze", "--list", "--json").json[0]["scope"] == scope
    assert run("thaw", *arguments).out == f"thawed: {scope}\n"
    run("freeze", *arguments, "--reason", "cooling")
    assert run("thaw", *arguments, "--json").json == {"thawed": scope}
    assert run("thaw", *arguments).code == 1


def test_freezing_wants_a_reason_and_one_scope(server: FakeServer, run: Run) -> None:
    assert run("freeze").code == 2
    assert run("freeze", "--group", "a", "--node", "b", "--reason", "x").code == 2
    assert server.requests == []


# credentials


def test_a_token_is_printed_once_alone_on_standard_output(server: FakeServer, run: Run) -> None:
    result = run("auth", "token", "create", "--role", "operator", "--scope", "gpu", "--ttl", "7d", "--note", "ci")
    assert result.out == "strata_0000000000000000_topsecret\n"
    assert "topsecret" not in result.err
    assert server.bodies[-1] == {"role": "operator", "scope": ["gpu"], "ttl": 7 * 86400, "note": "ci"}
    assert "topsecret" not in run("auth", "token", "list").out + run("auth", "token", "list", "--json").out


def test_a_token_can_go_straight_to_a_private_file(server: FakeServer, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "t"
    result = run("auth", "token", "create", "--role", "viewer", "-o", file, "--json")
    assert "topsecret" not in result.out + result.err
    assert file.read_text() == "strata_0000000000000000_topsecret\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_no_token_is_made_that_could_not_be_written(server: FakeServer, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "t"
    file.touch()
    assert run("auth", "token", "create", "--role", "viewer", "-o", file).code == 1
    result = run("auth", "token", "create", "--role", "viewer", "-o", tmp_path / "nowhere" / "t")
    assert (result.code, "Errno" in result.err) == (1, False)
    assert server.tokens == {}


def test_a_token_is_revoked_by_its_id_and_never_by_its_secret(server: FakeServer, run: Run) -> None:
    run("auth", "token", "create", "--role", "viewer")
    assert run("auth", "token", "revoke", "strata_0000000000000000_topsecret").code == 2
    assert run("auth", "token", "revoke", "0000000000000000", "--json").json == {"revoked": "0000000000000000"}
    assert run("auth", "token", "revoke", "0000000000000000").code == 1


def test_a_certificate_is_written_with_its_key(server: FakeServer, run: Run, tmp_path: Path) -> None:
    result = run("auth", "cert", "create", "alice", "--role", "operator", "-d", tmp_path)
    assert result.code == 0
    assert "THE KEY" not in result.out
    assert (tmp_path / "alice.crt").read_text() == "THE CERT\n"
    assert (tmp_path / "alice.ca.crt").read_text() == "THE CA\n"
    assert stat.S_IMODE((tmp_path / "alice.key").stat().st_mode) == 0o600
    assert run("auth", "cert", "create", "alice", "--role", "operator", "-d", tmp_path).code == 1
    assert run("auth", "cert", "revoke", "5A0C").out == "revoked certificate 5A0C\n"


def test_a_certificate_for_ones_own_key_writes_no_key(server: FakeServer, run: Run, tmp_path: Path) -> None:
    csr = tmp_path / "my.csr"
    csr.write_text("A REQUEST\n")
    assert run("auth", "cert", "create", "bob", "--role", "viewer", "--csr", csr, "-d", tmp_path).code == 0
    assert server.bodies[-1]["csr"] == "A REQUEST\n"
    assert not (tmp_path / "bob.key").exists()


def test_who_one_is(server: FakeServer, run: Run) -> None:
    assert "role      admin" in run("auth", "whoami").out
    assert "may read  node" in run("auth", "whoami").out


# audit, store, status


def test_the_newest_audit_records_are_shown_last(server: FakeServer, run: Run) -> None:
    server.audit = [
        {
            "seq": n,
            "time": float(n),
            "author": "a" if n % 2 else "b",
            "action": "x",
            "target": "t",
            "detail": {},
            "hash": "",
        }
        for n in range(1, 8)
    ]
    assert [line.split()[0] for line in run("audit", "list", "--limit", "2").lines[1:]] == ["6", "7"]
    shown = run("audit", "list", "--since", "@4", "--match", "author=a", "--json").json
    assert [record["seq"] for record in shown] == [5, 7]


def test_a_broken_audit_log_is_exit_code_1(server: FakeServer, run: Run) -> None:
    server.audit_verdict = {"ok": True, "count": 12, "first_bad": None, "reason": ""}
    assert run("audit", "verify").out == "the audit log is whole: 12 records\n"
    server.audit_verdict = {"ok": False, "count": 12, "first_bad": 5, "reason": "the hash differs"}
    result = run("audit", "verify")
    assert result.code == 1
    assert "record 5: the hash differs" in result.out


def test_a_backup_says_where_it_is(server: FakeServer, run: Run) -> None:
    assert run("store", "backup").out == "/state/backups/b1: revision 9, 4096 bytes\n"


def test_a_damaged_store_is_exit_code_1(server: FakeServer, run: Run) -> None:
    assert run("store", "check").out == "sound, at revision 7\n"
    server.store_check = {"ok": False, "problems": ["row 3: checksum"], "revision": 7}
    result = run("store", "check")
    assert (result.code, result.out) == (1, "row 3: checksum\n")


def test_a_check_without_a_service_and_without_a_store_says_so(run: Run) -> None:
    result = run("store", "check")
    assert result.code == 1
    assert "no store here" in result.err


def test_a_check_does_not_make_the_store_that_it_is_to_look_at(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "none.db"
    result = run("store", "check", "--store", f"sqlite:{file}")
    assert (result.code, "there is no store" in result.err) == (1, True)
    assert [*tmp_path.iterdir()] == []


def test_a_backup_is_restored_and_checked_without_a_service(run: Run, short_dir: Path, tmp_path: Path) -> None:
    backup = tmp_path / "b"

    async def write() -> None:
        store = open_store("memory:")
        await store.txn([Put("node/n1", b"x")])
        await store.backup(backup)
        await store.close()

    asyncio.run(write())
    result = run("store", "restore", backup)
    assert result.code == 0, result.err
    assert result.out.startswith(f"restored {backup} into sqlite:{short_dir}/strata.db, at revision ")
    assert run("store", "check").out.startswith("sound, at revision ")
    assert run("store", "restore", backup).code != 0
    assert run("store", "restore", backup, "--overwrite").code == 0


def test_a_file_that_is_no_backup_is_not_restored(run: Run, short_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "b"
    file.write_text("something else")
    assert run("store", "restore", file).code == 1
    assert not (short_dir / "strata.db").exists()


def test_a_service_elsewhere_that_is_away_is_not_checked_here(run: Run) -> None:
    assert run("--url", "unix:/nonexistent/x.sock", "store", "check").code == 6


def test_restoring_under_a_running_service_is_a_conflict(server: FakeServer, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "b"
    file.touch()
    result = run("store", "restore", file)
    assert result.code == 5
    assert "stop it first" in result.err


def test_status_at_a_glance(server: FakeServer, run: Run) -> None:
    server.add_node("n1")
    server.add_node("n2", state="faulted")
    result = run("status")
    assert "controller  here, up 1m30s" in result.out
    assert "shards      1 led by here, 1 led by nobody" in result.out
    assert result.lines[0] == "nodes       2: 1 ready, 1 faulted"
    assert run("status", "--json").json["nodes"] == 2


def test_status_says_who_waits_for_which_canary(server: FakeServer, run: Run) -> None:
    assert "canaries" not in run("status").out
    server.canaries = [{"node": "n1", "waiting": 7}, {"node": "n9", "waiting": 1}]
    assert "canaries    7 nodes wait for n1, 1 node waits for n9" in run("status").out


def test_status_begins_with_nodes_trouble_and_alerts(server: FakeServer, run: Run) -> None:
    server.add_node("n1")
    server.troubles = ["the store takes no writes: no answer in 5 s", "the disk of /s is full: 1 MiB of 1 GiB are free"]
    alert = {"id": "a", "severity": "warning", "state": "open", "node": "n1", "bmc": "", "message": "fan slow"}
    server.alerts = [
        {**alert, "severity": "critical", "message": "power lost"},
        alert,
        {**alert, "state": "acknowledged"},
        *({**alert, "node": f"n{number}"} for number in range(2, 8)),
    ]
    assert [line.strip() for line in run("status").lines[:10]] == [
        "nodes       1: 1 ready",
        f"trouble     {server.troubles[0]}",
        f"trouble     {server.troubles[1]}",
        "alerts      8: 1 critical, 7 warning",
        "critical: n1: power lost",
        "warning: n1: fan slow",
        "warning: n2: fan slow",
        "warning: n3: fan slow",
        "warning: n4: fan slow",
        "and 3 more alerts: strata alert list",
    ]


def test_the_log_level_is_shown_and_switched(server: FakeServer, run: Run) -> None:
    assert run("log-level").out == "info\n"
    assert run("log-level", "debug").out == "debug\n"
    assert server.log_level == "debug"
    assert run("log-level", "--json").json == {"level": "debug"}
    assert run("log-level", "loud").code == 2


def test_the_version(run: Run) -> None:
    from strata import __version__

    assert run("version").out == f"strata {__version__}\n"
    assert run("version", "--json").json == {"version": __version__}
    assert run("--version").out == f"strata {__version__}\n"


# watch


def test_a_watch_prints_events_as_they_come(server: FakeServer, run: Run) -> None:
    change = {
        "time": 0.0,
        "node": "n1",
        "variable": "power",
        "old": "off",
        "new": "on",
        "source": "bmc",
        "cause": "power-on",
    }
    server.streams = [[event("transition", change, 4), event("hold", {"node": "n2", "reason": "DIMM"}, 5)]]
    result = run("watch", "n[1-2]", "--count", "2", "--since", "3")
    assert result.code == 0
    assert result.lines[0].split(None, 1)[1] == "transition  n1  power off → on (bmc: power-on)"
    assert result.lines[1].split(None, 1)[1] == "hold        n2  reason=DIMM"
    assert server.requests[0][1] == "/v1/watch?select=n%5B1-2%5D&since=3"


def test_a_watch_for_programs_is_json_lines(server: FakeServer, run: Run) -> None:
    server.streams = [
        [event("node", {"name": "n1"}, 4), event("operation", {"id": "j"}, 5), event("node", {"name": "n2"}, 6)]
    ]
    result = run("watch", "--json", "--kind", "node", "--count", "2")
    assert [json.loads(line) for line in result.lines] == [
        {"revision": 4, "event": "node", "data": {"name": "n1"}},
        {"revision": 6, "event": "node", "data": {"name": "n2"}},
    ]


@pytest.mark.parametrize(
    ("kind", "data", "text"),
    [
        (
            "transition",
            {"time": 0, "nodes": "n[1-3]", "count": 3, "variable": "os", "old": "down", "new": "up"},
            "n[1-3]  os down → up",
        ),
        ("hold", {"node": "n1", "gone": False, "reason": "DIMM", "author": "bob"}, "n1  reason=DIMM author=bob"),
        ("freeze", {"scope": "fleet", "gone": True}, "fleet  is gone"),
        (
            "operation",
            {"id": "j1", "kind": "set", "state": "running", "done": 5, "total": 9, "failed": 1},
            "j1  set running: 5 of 9 done, 1 failed",
        ),
    ],
)
def test_events_are_told_in_words(kind: str, data: dict[str, object], text: str) -> None:
    assert describe(Event("1", kind, data)).split("  ", 1)[1].split(None, 1)[1] == text


def test_nobody_knows_when_an_old_event_without_a_time_was() -> None:
    assert describe(Event("1", "node", {"node": "n1"}), live=False) == "--:--:--  node        n1"


@pytest.mark.parametrize("data", [None, 3, [], {}, {"time": "x", "nodes": None}])
def test_an_event_of_any_shape_can_be_told(data: object) -> None:
    assert "node" in describe(Event("1", "node", data))
