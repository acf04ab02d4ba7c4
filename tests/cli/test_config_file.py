"""The configuration file: every setting can be in it, errors say where, and a running service reads it again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from cli_support import Run

from strata.core import logs
from strata.core.errors import BadRequest
from strata.daemon import settings as daemon
from strata.daemon.reload import Reload
from strata.daemon.settings import Option, Settings, read_settings
from strata.fleet.fleet import Fleet
from strata.fleet.settings import StoreSettings

EXAMPLE = Path(__file__).parents[2] / "docs/reference/strata.yaml"


def written(directory: Path, text: str) -> Path:
    path = directory / "strata.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_example_of_the_documentation_is_read() -> None:
    settings = read_settings(EXAMPLE, {})
    assert settings.layers == ("hardware", "provisioning", "power")
    assert settings.power.limit == 2e6
    assert settings.power.band == 1.2e6
    assert settings.retention.history == 90 * 86400
    assert settings.listen.names == ("strata.example", "10.77.0.1")
    assert settings.engine.fault_retry == 3600
    assert settings.store_url.startswith("etcd://etcd1:2379")


def test_every_setting_can_be_in_the_file(tmp_path: Path) -> None:
    whole = Settings(
        state_dir=tmp_path,
        controller_id="c1",
        models=(written(tmp_path, ""),),
        store=StoreSettings(secrets_key=tmp_path / "key"),
        power=daemon.PowerSettings(telemetry="postgresql://h/d"),
        simulated=daemon.SimulatedSettings(nodes=3, address="http://h:1"),
    )
    data = msgspec.to_builtins(whole, enc_hook=str)
    again = read_settings(written(tmp_path, msgspec.yaml.encode(_without_none(data)).decode()), {})
    assert again == whole


def _without_none(data: Any) -> Any:
    return {k: _without_none(v) for k, v in data.items() if v is not None} if isinstance(data, dict) else data


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("power:\n  limit: 2XW\n", "line 2, column 10: power.limit", "'2XW' is not a power such as 250W"),
        ("leadership:\n  lease: soon\n", "line 2, column 10: leadership.lease", "'soon' is not a length of time"),
        ("logs: {level: loud}\n", "line 1, column 15: logs.level", "'loud' is none of: debug, error, info"),
        ("listen:\n  port: 99999\n", "line 2, column 9: listen.port", "found '99999'; it must be at most 65535"),
        ("listen:\n  port: https\n", "line 2, column 9: listen.port", "found 'https'; it must be a whole number"),
        ("listen:\n  tls: no\n", "line 2, column 8: listen.tls", "found 'no'; it must be true or false"),
        ("listen:\n  names: one\n", "line 2, column 10: listen.names", "found 'one'; it must be a list"),
        ("hardware:\n  poll: true\n  sylog: h:1\n", "line 3, column 3: hardware", "did you mean syslog?"),
        ("state_dir: /x\npowr: {}\n", "line 2, column 1", "unknown key 'powr'; accepted are"),
        ("hardware: yes\n", "line 1, column 11: hardware", "must be a mapping"),
        (
            "layers: [power, wings]\n",
            "line 1, column 17: layers[1]",
            "'wings' is none of: hardware, jobs, platform, power",
        ),
        ("leadership:\n  renew_every: 6s\n", "line 2, column 16: leadership.renew_every", "half of the lease"),
        ("power:\n  limit: 1MW\n  band: 2MW\n", "line 3, column 9: power.band", "must not be above the limit"),
        ("engine: {backoff: 0s}\n", "line 1, column 19: engine.backoff", "above 0"),
        ("power:\n  rules: absent.ini\n", "absent.ini", "cannot be read"),
        ("models: [absent.yaml]\n", "line 1, column 9: models", "no such file"),
        ("hardware: {topology: absent.yaml}\n", "line 1, column 22: hardware.topology", "no such file"),
        ("logs: [level\n", "line 2, column 1", "not YAML"),
        ("logs: {level: info, level: info}\n", "line 1, column 21", "occurs twice"),
        ("- a\n", "strata.yaml, line 1, column 1", "must be a mapping"),
        ("layers: [hardware]\nprovisioning: {networks: n.yaml}\n", "line 2, column 26", "does not run here"),
    ],
)
def test_an_error_says_where_it_is_what_was_found_and_what_is_accepted(
    tmp_path: Path, text: str, where: str, what: str
) -> None:
    (tmp_path / "n.yaml").write_text("{}")
    path = written(tmp_path, text)
    with pytest.raises(BadRequest) as caught:
        read_settings(path, {})
    assert str(tmp_path) in caught.value.where
    assert where in caught.value.where
    assert what in caught.value.detail


def test_paths_are_relative_to_the_file_and_what_is_empty_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").touch()
    found = read_settings(written(tmp_path, "models: [site.yaml]\nhardware:\nretention:\n  audit:\n"), {})
    assert found == Settings(models=(tmp_path / "site.yaml",))
    assert read_settings(written(tmp_path, ""), {}) == Settings()


def test_an_option_comes_before_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "power: {limit: 1MW, ramp: 1kW}\nlayers: [power]\nlisten: {names: [a]}\n")
    options = {
        "power.limit": Option("--set", "2MW"),
        "layers": Option("LAYERS", ("hardware",)),
        "listen.names": Option("--set", "b,c"),
    }
    found = read_settings(path, options)
    assert (found.power.limit, found.power.ramp, found.layers) == (2e6, 1e3, ("hardware",))
    assert found.listen.names == ("b", "c")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    found: list[Settings] = []
    monkeypatch.setattr("strata.daemon.serve_commands.start", lambda settings, read: found.append(settings))
    return found


def test_the_usual_file_is_read_where_it_is(
    run: Run, started: list[Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strata.daemon.serve_commands.CONFIG_FILE", written(tmp_path, "controller_id: usual\n"))
    other = tmp_path / "other.yaml"
    other.write_text("controller_id: other\n")
    assert run("serve").code == run("serve", "--config", other).code == run("serve", "--config", "/dev/null").code == 0
    assert [one.controller_id for one in started[:2]] == ["usual", "other"]
    assert started[2].controller_id not in ("usual", "other")


def test_settings_are_checked_without_a_start(run: Run, started: list[Settings], tmp_path: Path) -> None:
    path = written(tmp_path, "power: {limit: 2MW}\nmodels: [site.yaml]\n")
    (tmp_path / "site.yaml").write_text("variables: {bios: [old, new]}\n")
    good = run("serve", "--config", path, "--check")
    assert (good.code, good.out) == (0, f"{path}: good\n")
    (tmp_path / "site.yaml").write_text("variables: {bios: {valus: [old]}}\n")
    wrong = run("serve", "--config", path, "--check")
    assert wrong.code == 1 and "site.yaml: variables.bios: unknown key 'valus'" in wrong.err
    path.write_text("power:\n  limit: much\n")
    wrong = run("serve", "--config", path, "--check")
    assert wrong.code == 1 and f"{path}, line 2, column 10: power.limit" in wrong.err
    assert started == []


class Running:
    """What a reload touches of a fleet."""

    def __init__(self, directory: Path, text: str) -> None:
        self.file = written(directory, text)
        self.told = 0
        settings = self.read()
        started = msgspec.structs.replace(settings, listen=msgspec.structs.replace(settings.listen, port=4711))
        self.fleet = SimpleNamespace(settings=started, reloads=[self._take])
        self._reload = Reload(cast("Fleet", self.fleet), settings, self.read)

    def read(self) -> Settings:
        return read_settings(self.file, {})

    def _take(self) -> None:
        self.told += 1

    def reload(self, text: str) -> Settings:
        self.file.write_text(text)
        self._reload.run()
        return cast("Settings", self.fleet.settings)


@pytest.fixture
def level() -> Iterator[Callable[[], str]]:
    kept = logs.get_level()
    yield logs.get_level
    logs.set_level(kept)


def test_what_can_change_while_it_runs_is_taken_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, level: Callable[[], str]
) -> None:
    running = Running(tmp_path, "listen: {port: 0}\n")
    with caplog.at_level(logging.INFO, "strata"):
        found = running.reload("listen: {port: 0}\nretention: {history: 1d}\npower: {limit: 1MW}\nlogs: {level: debug}")
    assert (found.retention.history, found.power.limit, level()) == (86400, 1e6, "debug")
    assert found.listen.port == 4711, "the one that it really has"
    assert running.told == 1
    assert [(r.getMessage(), r.__dict__.get("changed")) for r in caplog.records] == [
        ("configuration read again", ["retention.history", "logs.level", "power.limit"])
    ]


def test_what_cannot_is_said_until_it_is_restarted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, level: Callable[[], str]
) -> None:
    running = Running(tmp_path, "controller_id: a\n")
    text = "controller_id: b\nhardware: {poll: false}\npower: {limit: 1MW}\n"
    for _ in range(2):
        caplog.clear()
        found = running.reload(text)
        assert (found.controller_id, found.hardware.poll, found.power.limit) == ("a", True, 1e6)
        (warning,) = [r for r in caplog.records if r.levelno == logging.WARNING]
        assert warning.getMessage() == "changed settings that need a restart"
        assert warning.__dict__["settings"] == ["controller_id", "hardware.poll"]


def test_a_file_that_is_wrong_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, level: Callable[[], str]
) -> None:
    running = Running(tmp_path, "power: {limit: 1MW}\n")
    found = running.reload("logs: {level: debug}\npower:\n  limit: 2XW\n")
    assert (found.power.limit, found.logs.level, running.told) == (1e6, "info", 0)
    (error,) = caplog.records
    assert error.getMessage() == "the configuration is wrong, nothing was changed"
    assert "line 3, column 10: power.limit" in error.__dict__["error"]
    running.file.unlink()
    running._reload.run()
    assert running.told == 0
