"""``strata serve``: options become settings that are checked before anything starts."""

from __future__ import annotations

import socket
from pathlib import Path

import msgspec
import pytest
from cli_support import Run
from hypothesis import given
from hypothesis import strategies as st

from strata.cli.options import parse_listen
from strata.core.errors import BadRequest
from strata.daemon import settings as daemon
from strata.daemon.layers import LAYER_NAMES, chosen
from strata.daemon.settings import Settings, SimulatedSettings
from strata.engine import settings as engine
from strata.fleet import settings as s
from strata.fleet.access.oidc import settings as oidc
from strata.hardware import settings as hardware
from strata.jobs import settings as jobs
from strata.platform import settings as platform
from strata.power import settings as power
from strata.provisioning import settings as provisioning


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    found: list[Settings] = []
    monkeypatch.setattr("strata.daemon.serve_commands.start", lambda settings, read: found.append(settings))
    monkeypatch.setattr("strata.daemon.serve_commands.CONFIG_FILE", Path("/nowhere/strata.yaml"))
    return found


def test_without_options_the_defaults_stand(run: Run, started: list[Settings], short_dir: Path) -> None:
    assert run("serve").code == 0
    assert started == [Settings(state_dir=short_dir)]
    assert started[0].store_url == f"sqlite:{short_dir}/strata.db"
    assert started[0].controller_id == socket.gethostname()


def test_every_option_arrives(run: Run, started: list[Settings], short_dir: Path) -> None:
    model = short_dir / "site.yaml"
    model.touch()
    result = run(
        *("serve", "--state-dir", short_dir / "x", "--store", "etcd://a:1,b:2/s", "--listen", "[::]:9", "--no-tls"),
        *("--tls-name", "head", "--simulator", "http://h:9", "--simulated", 100, "--model", model),
        *("--log-level", "debug", "--log-format", "json", "--controller-id", "c2", "--set", "leadership.shards=4"),
        *("--set", "provisioning.hold_most=9", "--set", "power.limit=2MW", "--set", "store.compact_every=10m"),
    )
    assert result.code == 0, result.err
    assert started == [
        Settings(
            state_dir=short_dir / "x",
            controller_id="c2",
            models=(model,),
            store=s.StoreSettings(url="etcd://a:1,b:2/s", compact_every=600),
            power=power.PowerSettings(limit=2e6),
            listen=s.ListenSettings(tls=False, host="::", port=9, names=("head",)),
            leadership=s.LeadershipSettings(shards=4),
            simulated=SimulatedSettings(nodes=100, address="http://h:9"),
            provisioning=provisioning.ProvisioningSettings(hold_most=9),
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
        (["--set", "leadership.shards=0"], 1, "--set leadership.shards: must be at least 1"),
        (["--simulated", "8"], 1, "--simulator URL"),
        (["--simulator", "h:9", "--simulated", "8"], 1, "http://HOST:PORT"),
        (["--model", "absent.yaml"], 1, "absent.yaml"),
        (["--set", "power.rules=absent.ini"], 1, "absent.ini"),
        (["--set", "power.limit=2XW"], 1, "--set power.limit: '2XW' is not a power such as"),
        (["--set", "power.band=3MW", "--set", "power.limit=2MW"], 1, "--set power.band (power.band)"),
        (["--set", "powr.limit=2MW"], 1, "unknown key 'powr'"),
        (["--set", "power.limt=2MW"], 1, "did you mean limit?"),
        (["--set", "power"], 2, "SETTING=VALUE"),
        (["power", "--networks", "x.yaml"], 1, "--networks (provisioning.networks): nodes are booted by"),
        (["--config", "absent.yaml"], 1, "absent.yaml: cannot be read: No such file"),
        (["--controller-id", "a b"], 1, "controller-id"),
        (["--state-dir", "/" + "x" * 200], 1, "shorter --state-dir"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_before_the_start(
    run: Run, started: list[Settings], arguments: list[str], code: int, what: str
) -> None:
    result = run("serve", *arguments)
    assert result.code == code
    assert what in result.err
    assert started == []


def test_renewing_too_rarely_is_refused() -> None:
    slow = Settings(state_dir=Path("/x"), leadership=s.LeadershipSettings(lease=10, renew_every=5))
    with pytest.raises(BadRequest, match="half"):
        slow.check()


def test_settings_are_plain_data() -> None:
    settings = Settings(state_dir=Path("/x"), controller_id="c")
    data = msgspec.to_builtins(settings, enc_hook=str)
    again = msgspec.convert(data, Settings, dec_hook=lambda kind, value: kind(value))
    assert again == settings


def test_every_setting_says_what_it_is() -> None:
    # The reference is made from these; a field that nobody explained would be missing there.
    import ast
    import inspect

    found = {}
    for module in (s, oidc, hardware, provisioning, power, platform, jobs, daemon, engine):
        tree = ast.parse(inspect.getsource(module))
        for struct in (node for node in tree.body if isinstance(node, ast.ClassDef) and "Settings" in node.name):
            fields = [*struct.body, None]
            found[struct.name] = [
                f"{struct.name}: line {field.lineno}"
                for field, after in zip(struct.body, fields[1:], strict=True)
                if isinstance(field, ast.AnnAssign)
                and "ClassVar" not in ast.unparse(field.annotation)
                and not ast.unparse(field.annotation).endswith("Settings")
                and not isinstance(after, ast.Expr)
            ]
    assert not [place for places in found.values() for place in places]
    assert {type(section).__name__ for _, section in Settings(state_dir=Path("/x")).sections()} <= set(found)


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


def test_a_layer_brings_those_that_it_stands_on() -> None:
    assert [layer.name for layer in chosen(["power"])] == ["hardware", "power"]
    assert [layer.name for layer in chosen(["platform"])] == ["hardware", "provisioning", "platform"]
    assert [layer.name for layer in chosen(["power", "hardware"])] == ["hardware", "power"]


@pytest.mark.parametrize("layers", [("hardware",), ("provisioning",), ("power",), ("platform",), LAYER_NAMES])
def test_the_model_of_any_choice_of_layers_is_whole(layers: tuple[str, ...]) -> None:
    from strata.daemon.running import model_of
    from strata.hardware.model import POWER_ROOM

    model, drivers = model_of(Settings(state_dir=Path("/x"), layers=layers))
    asked = POWER_ROOM in model.mutations["power-on"].guards
    assert asked == (POWER_ROOM in model.guards) == ("power" in layers)
    assert drivers == []
