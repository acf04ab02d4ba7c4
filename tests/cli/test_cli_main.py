"""The command as a whole: fast start, help, exit codes, errors in one line."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import pytest
from cli_support import Run
from fake_server import FakeServer

from strata.cli import main
from strata.cli.main import globals_first
from strata.cli.session import pass_session
from strata.cli.up.background import MARK
from strata.rooms import commands

SOURCE = Path(main.__file__).parents[2]
HEAVY = ("numpy", "litestar", "rich", "uvicorn", "aiohttp", "apsw", "ClusterShell", "cryptography", "yaml", "asyncio")


def strata(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "strata.cli", *arguments],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def all_commands() -> list[tuple[str, click.Command]]:
    found: list[tuple[str, click.Command]] = []

    def walk(path: str, command: click.Command, ctx: click.Context) -> None:
        if isinstance(command, click.Group):
            for name in command.list_commands(ctx):
                member = command.get_command(ctx, name)
                assert member is not None
                walk(f"{path} {name}".strip(), member, ctx)
        else:
            found.append((path, command))

    walk("", main.cli, click.Context(main.cli, info_name="strata"))
    return found


def test_every_command_is_given_the_session_once() -> None:
    given = {}
    for name, command in all_commands():
        function: Any = command.callback
        while hasattr(function, "__wrapped__"):
            given[name] = given.get(name, 0) + (function.__code__ is pass_session(print).__code__)
            function = function.__wrapped__
    assert [name for name, times in given.items() if times != 1] == []
    assert len(given) > 100


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--help"], ["version"], ["node", "list", "--help"]])
def test_no_heavy_module_is_imported_to_start(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "strata.cli", *arguments],
        env={"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    lines = done.stderr.splitlines()
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}
    assert "click" in imported
    assert imported.isdisjoint(HEAVY)
    assert len(lines) < 300, "few modules are what makes it start fast"


@pytest.mark.slow
def test_the_help_imports_no_command() -> None:
    script = (
        "import sys; from strata.cli.main import run; run(['--help']); "
        "print([name for name in sys.modules if 'commands' in name.split('.')])"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert shown.stdout.splitlines()[-1] == "[]"


@pytest.mark.slow
def test_a_command_that_is_named_imports_no_room_after_its_own() -> None:
    script = (
        "import sys; from strata.cli.main import run; run(['node', 'list', '--help']); "
        "print([name for name in sys.modules if name.startswith(('strata.platform', 'strata.jobs'))])"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert shown.stdout.splitlines()[-1] == "[]"


def test_a_command_whose_line_of_help_is_not_kept_is_asked_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strata.cli.lazy.help_lines", dict)
    line = next(line for line in main.cli.get_help(click.Context(main.cli)).splitlines() if " group " in line)
    assert line.split() == ["group", "Name", "sets", "of", "nodes."]


@pytest.mark.slow
def test_a_listing_in_a_pipe_does_not_import_rich(server: FakeServer) -> None:
    server.add_node("n1")
    code = (
        "import sys; from strata.cli.main import run; code = run(['--url', sys.argv[1], 'node', 'list']); "
        "print(code, [name for name in ('rich', 'numpy', 'litestar') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, server.url],
        env={"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "0 []"


def test_help_shows_every_command_by_section(run: Run) -> None:
    result = run("--help")
    assert result.code == 0
    for section, name, _ in commands():
        assert f"{section}:" in result.out
        assert f"\n  {name} " in result.out


def test_every_option_says_what_it_is() -> None:
    def check(command: click.Command, context: click.Context) -> None:
        silent = [
            one.opts[0] for one in command.params if isinstance(one, click.Option) and not (one.help or one.hidden)
        ]
        assert not silent, f"{context.command_path}: {silent}"
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                member = command.get_command(context, name)
                assert member is not None
                check(member, click.Context(member, info_name=name, parent=context))

    check(main.cli, click.Context(main.cli, info_name="strata"))


def test_no_summary_of_a_command_is_cut_on_a_terminal_of_100_columns() -> None:
    def check(group: click.Group, context: click.Context) -> None:
        members = {name: group.get_command(context, name) for name in group.list_commands(context)}
        # As click lays it out: two columns free at the right, two before the names and two behind the longest.
        room = 100 - 2 - 2 - 2 - max(map(len, members)) - 2
        for name, command in members.items():
            assert command is not None
            inner = click.Context(command, info_name=name, parent=context)
            whole = command.get_short_help_str(limit=1000)
            assert len(whole) <= room, f"{inner.command_path}: {len(whole)} characters, room for {room}: {whole}"
            if isinstance(command, click.Group):
                check(command, inner)

    check(main.cli, click.Context(main.cli, info_name="strata"))


def test_every_command_has_help_with_an_example() -> None:
    for path, command in all_commands():
        if path.startswith("model "):
            continue
        assert command.help, path
        assert "Example: strata" in command.help, path


def test_every_example_is_a_command_line_that_parses() -> None:
    known = dict(all_commands())
    checked = 0
    for path, command in known.items():
        for line in (command.help or "").splitlines():
            text = re.sub(r"Example:|[>|].*", "", line).strip()
            if not text.startswith("strata ") or path.startswith("model "):
                continue
            words = shlex.split(text)[1:]
            named = max((name for name in known if words[: len(name.split())] == name.split()), key=len)
            target = known[named]
            target.make_parser(click.Context(target)).parse_args(words[len(named.split()) :])
            checked += 1
    assert checked >= len([path for path in known if not path.startswith("model ")])


def test_every_listing_has_json() -> None:
    for path, command in all_commands():
        if path.endswith("list") or path.split()[-1] in ("show", "status", "why", "plan", "history", "watch"):
            assert "--json" in {text for param in command.params for text in param.opts}, path


# Commands that begin what goes on after them.
BEGIN = {
    "apply", "config apply", "emergency-revoke", "flow run", "hardware discover", "image build", "image import",
    "job submit", "node release", "node retry", "node set", "power cycle", "power nmi", "power off", "power on",
    "rollout resume", "rollout start", "secret rotate", "system start", "system stop",
}  # fmt: skip

# What ends a word of a command that only looks, or that is done when it returns.
DONE = {
    # looks
    "list", "show", "why", "plan", "history", "watch", "status", "check", "verify", "diff", "policy", "nodes",
    "runtimes", "agent", "drift", "pending", "render", "inventory", "schema", "recipient", "simulate", "graph",
    "version", "whoami", "doctor", "completion", "components", "conflicts", "events", "bmc", "sensors", "log",
    "limits", "near", "script", "top", "job", "jobs", "targets", "health", "cdi", "log-level", "ssh", "login",
    "logout", "console",
    # written when they return
    "hold", "add", "edit", "create", "delete", "remove", "tag", "promote", "sign", "undelete", "put", "set",
    "reset", "cancel", "approve", "import", "init", "look", "pause", "resume", "unwatch", "encrypt", "abort",
    "again", "freeze", "thaw", "revoke", "choose", "forget", "adopt", "ack", "enable", "disable",
    "accept-certificate", "connect", "disconnect", "write", "release", "derive", "confine", "identify", "media",
    "boot", "settings", "config", "default",
    # done when they return
    "exec", "cp", "export", "gc", "wait", "backup", "restore", "build", "up", "stop", "down", "serve", "destroy",
    "kill", "start", "run", "pull", "rerun", "bios", "firmware", "rotate", "emergency-off",
}  # fmt: skip


def test_whatever_begins_something_that_takes_time_can_be_waited_for_and_a_new_command_says_which_it_is() -> None:
    known = dict(all_commands())
    assert known.keys() >= BEGIN
    for path in sorted(BEGIN):
        assert "--wait" in {text for param in known[path].params for text in param.opts}, path
    assert {path for path in known.keys() - BEGIN if path.split()[-1] not in DONE} == set()


def test_every_listing_lets_one_choose_its_columns_and_has_them_as_json_too() -> None:
    known = dict(all_commands())
    lists = {path for path in known if path.split()[-1] == "list"}
    assert len(lists) > 30
    for path, command in known.items():
        options = {text for param in command.params for text in param.opts}
        if path in lists or "--columns" in options:
            assert {"--json", "--columns", "--sort", "--match"} <= options, path


def test_a_table_that_is_the_whole_answer_is_a_listing() -> None:
    # Others print a table as a part of what they say of one thing, or of what they did; nobody adds to them unseen.
    parts = {
        "fleet/desires/commands/apply.py", "fleet/nodes/commands/look.py", "fleet/plans/commands.py",
        "hardware/bmc/commands/bmc.py", "jobs/submission/commands.py", "platform/config/commands.py",
        "platform/flows/commands/flow.py", "platform/rollouts/commands.py", "power/simulation/commands.py",
        "provisioning/agents/commands.py", "provisioning/images/commands/tags.py",
        "provisioning/personalities/commands.py",
    }  # fmt: skip
    root = SOURCE / "strata"
    found = {str(path.relative_to(root)) for path in root.rglob("*.py") if "out.table(" in path.read_text()}
    assert found - {"cli/listing.py"} == parts


def test_no_option_takes_a_token_on_the_command_line() -> None:
    options = {text for _, command in all_commands() for param in command.params for text in param.opts}
    options |= {text for param in main.cli.params for text in param.opts}
    assert "--token-file" in options
    assert options.isdisjoint({"--token", "--password", "--secret"})


def test_no_command_has_an_option_of_the_name_of_a_global_one() -> None:
    known = {name for param in main.cli.params for name in param.opts} - {"--version"}
    for path, command in all_commands():
        assert known.isdisjoint(name for param in command.params for name in param.opts), path


def test_a_key_without_its_certificate_is_refused_and_not_ignored(run: Run) -> None:
    done = run("status", "--key", "once")
    assert done.code == 2 and "give --cert too" in done.err


def test_what_a_command_says_before_it_waits_is_seen_in_a_pipe_too() -> None:
    """``strata login`` says which address to open and waits for that; nobody saw it through ``tee``."""
    waits = (
        "import time; from strata.cli import main; from strata.cli.output import Output\n"
        "def run(arguments): Output().line('Open it'); time.sleep(600)\n"
        "main.run = run; main.main()"
    )
    with subprocess.Popen([sys.executable, "-c", waits], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "Open it\n"
            assert process.poll() is None, "and it waits"
        finally:
            process.kill()


def test_a_wrong_option_is_exit_code_2(run: Run) -> None:
    result = run("node", "list", "--nonsense")
    assert result.code == 2
    assert "--nonsense" in result.err


def test_wrong_usage_is_one_line_that_names_the_help(run: Run) -> None:
    for arguments in (["node", "list", "--nonsense"], ["node", "set", "power=on"], ["node", "hold", "n1"]):
        result = run(*arguments)
        assert result.code == 2
        assert len(result.err.splitlines()) == 1
        assert f"(see 'strata node {arguments[1]} --help')" in result.err


def test_a_group_alone_shows_its_help(run: Run) -> None:
    result = run("node")
    assert result.code == 2
    assert re.search(r"^Looking:$", result.err, re.M)


def test_the_command_alone_says_how_to_begin_where_nothing_runs(run: Run) -> None:
    result = run()
    assert result.code == 0
    assert result.lines[0] == "No Strata answers on this machine."
    assert any(line.strip().startswith("strata up --simulated") for line in result.lines)


def test_the_command_alone_says_how_to_go_on_with_what_was_stopped(
    run: Run, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRATA_STATE", str(short_dir))
    (short_dir / MARK).touch()
    result = run()
    assert result.lines[0] == f"Strata is stopped, and kept in {short_dir}."
    assert [line.split("  ")[1] for line in result.lines if line.startswith("  ")][:2] == [
        "strata up",
        "strata down --delete",
    ]


def test_the_command_alone_says_what_needs_somebody(server: FakeServer, run: Run) -> None:
    assert any(line.strip().startswith("strata hardware discover") for line in run().lines)
    server.add_node("n1")
    server.add_node("n2", state="faulted")
    result = run()
    assert result.lines[0] == "nodes  2: 1 ready, 1 faulted"
    assert any(line.strip().startswith("strata node why state:faulted") for line in result.lines)
    server.add_node("n3", state="held")
    result = run()
    assert any(line.strip().startswith("strata node why state:held") for line in result.lines)
    server.add_node("n4", state="waiting")
    assert any(line.strip().startswith("strata node why state:waiting") for line in run().lines)
    del server.nodes["n4"]
    rollout = {"name": "december", "state": "paused", "wave": 2, "waves": 3, "reason": "lunch", "waits_for": ""}
    server.rollouts = [rollout, {**rollout, "name": "old", "state": "done"}]
    result = run()
    assert "rollouts  december: paused, wave 2 of 3; lunch" in result.lines
    assert any(line.strip().startswith("strata rollout resume december") for line in result.lines)
    for line in result.lines[4:-1]:
        assert "--help" not in line, "what is offered shows something"


def test_the_help_of_a_group_says_to_the_end_what_its_commands_do(run: Run) -> None:
    for group in ("job", "store", "config"):
        assert [line for line in run(group, "--help").lines if line.endswith("...") and "Usage" not in line] == []


def test_an_option_of_a_command_that_is_typed_before_it_is_told_its_place(run: Run) -> None:
    assert "options of a command come after it" in run("--json", "node", "list").err
    assert "come after it" not in run("node", "list", "--jsn").err


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("node list --url unix:/s -v", "--url unix:/s -v node list"),
        ("node --no-color list n1", "--no-color node list n1"),
        ("status --token-file=t --json", "--token-file=t status --json"),
        ("node exec n1 -- ls --url x -v", "node exec n1 -- ls --url x -v"),
    ],
)
def test_a_global_option_may_stand_anywhere(typed: str, meant: str) -> None:
    assert globals_first(typed.split()) == meant.split()


def test_an_unknown_command_is_exit_code_2(run: Run) -> None:
    result = run("fly")
    assert result.code == 2
    assert "No such command 'fly'" in result.err


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("why n1", "Did you mean 'strata node why'?"),
        ("node shwo n1", "Did you mean 'strata node show'?"),
        ("nodes", "Did you mean 'strata node'?"),
        ("power cap n1 300W", "Did you mean 'strata hardware limits SELECT --set WATTS'?"),
    ],
)
def test_a_command_that_is_not_there_says_which_may_have_been_meant(run: Run, typed: str, meant: str) -> None:
    assert meant in run(*typed.split()).err


def test_a_choice_that_is_missing_is_asked_for_in_one_line(run: Run) -> None:
    said = run("auth", "token", "create").err
    assert "Choose from: viewer, operator, admin" in said
    assert "\\" not in said
    assert said.count("\n") == 1


def test_columns_are_named_as_the_heading_has_them_too(server: FakeServer, run: Run) -> None:
    server.add_node("n1")
    assert run("node", "list", "--columns", "NAME,State").out.split()[:2] == ["NAME", "STATE"]


def test_a_service_that_is_away_is_exit_code_6_and_says_how_to_start_it(run: Run) -> None:
    result = run("node", "list")
    assert result.code == 6
    assert len(result.err.splitlines()) == 1
    assert "admin.sock" in result.err
    assert "strata up" in result.err
    assert "strata serve" in result.err


@pytest.mark.parametrize(
    ("status", "title", "code"),
    [
        (400, "Bad request", 1),
        (401, "Not authenticated", 4),
        (403, "Denied", 4),
        (404, "Not found", 1),
        (409, "Conflict", 5),
        (409, "Refused", 3),
        (412, "Precondition failed", 5),
        (500, "Internal error", 1),
    ],
)
def test_each_kind_of_problem_has_its_exit_code(
    server: FakeServer, run: Run, status: int, title: str, code: int
) -> None:
    server.refuse_next(status, "the reason", title=title, where="the place", hint="the remedy")
    result = run("node", "show", "n1")
    assert result.code == code
    assert result.err == "strata: the place: the reason (the remedy)\n"
    assert result.out == ""


def test_an_error_of_the_service_cannot_drive_the_terminal(server: FakeServer, run: Run) -> None:
    server.refuse_next(400, "bad \x1b[2J\nstrata: all is well", where="x")
    result = run("node", "show", "n1")
    assert "\x1b" not in result.err
    assert len(result.err.splitlines()) == 1


def test_an_internal_error_is_one_line_unless_asked(
    run: Run, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("oops")

    monkeypatch.setattr("strata.cli.client.Client.get", broken)
    result = run("status")
    assert result.code == 1
    assert result.err.startswith("strata: internal error")
    assert len(result.err.splitlines()) == 1
    with pytest.raises(RuntimeError):
        run("-v", "status")


def test_interrupting_is_quiet(run: Run, server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("strata.cli.client.Client.get", interrupted)
    result = run("status")
    assert (result.code, result.out, result.err) == (130, "", "")


@pytest.mark.slow
def test_interrupting_a_watch_is_quiet(server: FakeServer) -> None:
    # The fault handler never answers: the command waits for the head of the stream.
    entered = []
    server.faults.append(lambda handler: bool(entered.append(handler) or handler.connection.recv(1) or True))
    process = subprocess.Popen(
        [sys.executable, "-m", "strata.cli", "--url", server.url, "watch"],
        env={"PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Whoever started the tests may ignore it, and that would be inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 60
    while not entered and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"")


@pytest.mark.slow
def test_a_reader_that_leaves_is_no_error(server: FakeServer) -> None:
    for number in range(5000):
        server.add_node(f"n{number}")
    process = subprocess.Popen(
        [sys.executable, "-m", "strata.cli", "--url", server.url, "node", "list"],
        env={"PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=60) == 141


def test_verbose_shows_requests_and_never_the_token(
    server: FakeServer, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRATA_TOKEN", "strata_1_canary")
    result = run("-v", "status")
    assert "GET /v1/status -> 200" in result.err
    assert "canary" not in result.out + result.err
    assert server.requests[0][2]["authorization"] == "Bearer strata_1_canary"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_the_command(run: Run, shell: str) -> None:
    result = run("completion", shell)
    assert result.code == 0
    assert "_STRATA_COMPLETE" in result.out
    assert f"{shell}_complete" in result.out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("strata no", {"node"}),
        ("strata node hi", {"history"}),
        ("strata node show n", {"n1", "n2"}),
        ("strata node set @g", {"@gpu"}),
        ("strata node list state:f", {"state:faulted", "state:frozen"}),
        ("strata operation show j", {"j1"}),
        ("strata alert show 5", {"53c0fa4e7caa5ad1f5a1"}),
        ("strata rollout pause d", {"december"}),
        ("strata image promote s", {"slurm:1", "slurm:2"}),
        ("strata group show g", {"gpu"}),
    ],
)
def test_the_shell_completes(server: FakeServer, words: str, expected: set[str]) -> None:
    server.add_node("n1")
    server.add_node("n2")
    server.job(2)
    server.alerts = [{"id": "53c0fa4e7caa5ad1f5a1", "state": "over"}]
    server.rollouts = [{"name": "december"}]
    server.images = [{"name": "slurm", "tag": "1"}, {"name": "slurm", "tag": "2"}]
    server.groups["gpu"] = {"name": "gpu", "members": "n1", "description": "", "count": 1, "revision": 1}
    done = strata(
        _STRATA_COMPLETE="bash_complete",
        COMP_WORDS=words,
        COMP_CWORD=str(len(words.split()) - 1),
        STRATA_URL=server.url,
    )
    assert {line.partition(",")[2] for line in done.stdout.splitlines()} == expected
    assert done.stderr == ""


@pytest.mark.slow
def test_completion_without_a_service_is_silent(short_dir: Path) -> None:
    done = strata(
        _STRATA_COMPLETE="bash_complete",
        COMP_WORDS="strata node show n",
        COMP_CWORD="3",
        STRATA_STATE=str(short_dir),
    )
    assert (done.stdout.strip(), done.stderr) == ("", "")
