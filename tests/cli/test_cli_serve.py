"""``strata serve``: options become settings that are checked before anything starts."""

from __future__ import annotations

import socket
from pathlib import Path

import msgspec
import pytest
from cli_support import Run
from hypothesis import given
from hypothesis import strategies as st

from strata.cli.serve import parse_listen
from strata.control import settings as s
from strata.core.errors import BadRequest


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[s.Settings]:
    found: list[s.Settings] = []
    monkeypatch.setattr("strata.cli.serve.start", found.append)
    return found


def test_without_options_the_defaults_stand(run: Run, started: list[s.Settings], short_dir: Path) -> None:
    assert run("serve").code == 0
    assert started == [s.Settings(state_dir=short_dir)]
    assert started[0].store_url == f"sqlite:{short_dir}/strata.db"
    assert started[0].controller_id == socket.gethostname()


def test_every_option_arrives(run: Run, started: list[s.Settings], short_dir: Path) -> None:
    model = short_dir / "site.yaml"
    model.touch()
    result = run(
        *("serve", "--state-dir", short_dir / "x", "--store", "etcd://a:1,b:2/s", "--listen", "[::]:9", "--no-tls"),
        *("--tls-name", "head", "--simulator", "http://h:9", "--simulated", 100, "--model", model),
        *("--log-level", "debug", "--log-format", "json", "--controller-id", "c2", "--shards", 4, "--hold-agents", 9),
    )
    assert result.code == 0, result.err
    assert started == [
        s.Settings(
            state_dir=short_dir / "x",
            controller_id="c2",
            models=(model,),
            store=s.StoreSettings(url="etcd://a:1,b:2/s"),
            listen=s.ListenSettings(tls=False, host="::", port=9, names=("head",)),
            leadership=s.LeadershipSettings(shards=4),
            simulated=s.SimulatedSettings(nodes=100, address="http://h:9"),
            provisioning=s.ProvisioningSettings(hold_most=9),
            logs=s.LogSettings(level="debug", format="json"),
        )
    ]
    assert started[0].store_url == "etcd://a:1,b:2/s"


@pytest.mark.parametrize(
    ("arguments", "code", "what"),
    [
        (["--listen", "nonsense"], 2, "HOST:PORT"),
        (["--listen", "h:99999"], 2, "HOST:PORT"),
        (["--listen", "u@h:1"], 2, "HOST:PORT"),
        (["--shards", "0"], 2, "shards"),
        (["--simulated", "8"], 1, "--simulator URL"),
        (["--simulator", "h:9", "--simulated", "8"], 1, "http://HOST:PORT"),
        (["--model", "absent.yaml"], 1, "absent.yaml"),
        (["--node-rules", "absent.ini"], 1, "absent.ini"),
        (["--controller-id", "a b"], 1, "controller-id"),
        (["--state-dir", "/" + "x" * 200], 1, "shorter --state-dir"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_before_the_start(
    run: Run, started: list[s.Settings], arguments: list[str], code: int, what: str
) -> None:
    result = run("serve", *arguments)
    assert result.code == code
    assert what in result.err
    assert started == []


def test_renewing_too_rarely_is_refused() -> None:
    slow = s.Settings(state_dir=Path("/x"), leadership=s.LeadershipSettings(lease=10, renew_every=5))
    with pytest.raises(BadRequest, match="half"):
        slow.check()


def test_settings_are_plain_data() -> None:
    settings = s.Settings(state_dir=Path("/x"), controller_id="c")
    data = msgspec.to_builtins(settings, enc_hook=str)
    again = msgspec.convert(data, s.Settings, dec_hook=lambda kind, value: kind(value))
    assert again == settings


def test_every_setting_says_what_it_is() -> None:
    # The reference is made from these; a field that nobody explained would be missing there.
    import ast
    import inspect

    tree = ast.parse(inspect.getsource(s))
    for struct in (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name != "Settings"):
        for field, after in zip(struct.body, [*struct.body[1:], None], strict=True):
            if isinstance(field, ast.AnnAssign):
                assert isinstance(after, ast.Expr), f"{struct.name}: line {field.lineno}"


def test_the_state_directory_is_told_by_the_environment_or_by_who_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRATA_STATE", "/tmp/here")
    assert s.default_state_dir() == Path("/tmp/here")
    monkeypatch.delenv("STRATA_STATE")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert s.default_state_dir() == Path("/var/lib/strata")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", "/home/alice")
    assert s.default_state_dir() == Path("/home/alice/.local/state/strata")


@given(st.sampled_from(["127.0.0.1", "head.example.org", "::1"]), st.integers(0, 65535))
def test_any_address_and_port_can_be_listened_on(host: str, port: int) -> None:
    text = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    assert parse_listen(text) == (host, port)


def test_a_port_alone_is_all_addresses() -> None:
    assert parse_listen(":8443") == ("0.0.0.0", 8443)
