"""An agent's life against a real TLS controller: enrolment, attachment, commands, and a controller that goes away."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import time
from pathlib import Path

import pytest
from agent_process import agent_process
from cryptography import x509
from fake_controller import Controller, Site, controller

from strata.agent.boot import take_boot
from strata.agent.errors import AgentError, Refused, Unreachable
from strata.agent.link import discovery
from strata.agent.link import identity as identity_module
from strata.agent.link.http import post, split_url, tls_context
from strata.agent.link.identity import Identity
from strata.agent.paths import Paths

pytestmark = [pytest.mark.slow, pytest.mark.server]


def booted(folder: Path, boot: dict[str, object]) -> Paths:
    paths = Paths(run=folder / "run", root=folder)
    paths.given.parent.mkdir(parents=True)
    paths.given.write_text(json.dumps(boot))
    return paths


def test_a_token_is_redeemed_once_and_the_node_attaches_and_runs_commands(tmp_path: Path) -> None:
    with controller(tmp_path / "site") as site, agent_process(tmp_path / "node") as node:
        node.start(site.boot())
        first = site.wait(lambda: site.exchanges and site.exchanges[0])
        assert first["generation"] == 7
        assert first["state"]["set"]["state"] == "idle"
        assert first["state"]["profile"] == "default@0123456789ab"
        assert len(site.redeemed) == 1
        assert not (tmp_path / "node/boot.json").exists()
        assert (tmp_path / "node/run").stat().st_mode & 0o077 == 0
        for path in (tmp_path / "node/run").rglob("*"):
            with contextlib.suppress(FileNotFoundError):  # it works on: what it writes anew takes another's place
                assert path.is_dir() or b"one-time-token" not in path.read_bytes()
                others = 0o066 if path.is_dir() else 0o077  # who owns a secret comes through the folder to it, no more
                assert path.stat().st_mode & others == 0, f"{path} is for root alone"
        done = site.do("exec", argv=["sh", "-c", "echo hello; exit 3"], where="minos")
        assert (done["ok"], done["exit"], base64.b64decode(done["output"])) == (False, 3, b"hello\n")
        assert site.wait(lambda: site.inventories)[0]["cpu"]["threads"] >= 1


def test_an_idle_agent_waits_for_its_controller_and_does_not_spin(tmp_path: Path) -> None:
    with controller(tmp_path / "site") as site, agent_process(tmp_path / "node") as node:
        node.start(site.boot())
        site.wait(lambda: len(site.exchanges) >= 2, 120)
        first, heard = site.exchanges[-1]["state"], len(site.exchanges)
        last = site.wait(lambda: len(site.exchanges) >= heard + 2 and site.exchanges[-1]["state"], 120)
        share = (last["agent"]["cpu_s"] - first["agent"]["cpu_s"]) / (last["uptime"] - first["uptime"])
        print(f"idle over {last['uptime'] - first['uptime']:.0f} s: {share:.3%} of a core")
        assert share < 0.1, "some thousandths of a core on most machines"
        assert len(site.requests) < 14, "one request per exchange, and few besides"


def test_a_controller_that_is_away_is_tried_again_and_another_is_used_meanwhile(tmp_path: Path) -> None:
    site = Site(tmp_path / "site")
    first, second = Controller(site), Controller(site)
    try:
        with agent_process(tmp_path / "node") as node:
            node.start(first.boot(urls=[first.url, second.url]))
            first.wait(lambda: first.exchanges)
            first.close()
            second.wait(lambda: second.exchanges)
            assert second.do("exec", argv=["true"], where="minos")["ok"]
            assert second.redeemed == [], "attached with the certificate that it had"
    finally:
        second.close()


def test_a_result_is_told_again_until_the_controller_has_it(tmp_path: Path) -> None:
    with controller(tmp_path / "site") as site, agent_process(tmp_path / "node") as node:
        node.start(site.boot())
        site.acknowledge = False
        name = site.send("exec", argv=["true"], where="minos")
        site.wait(lambda: site.results.get(name))
        site.results.clear()
        site.send("exec", argv=["true"], where="minos", name="other")
        site.wait(lambda: {name, "other"} <= set(site.results))
        assert {name, "other"} <= set(site.exchanges[-1]["doing"])
        site.acknowledge = True
        site.send("exec", argv=["true"], where="minos", name="third")
        site.wait(lambda: site.exchanges[-1]["results"] == [] and site.results.get("third"))


def test_a_certificate_is_renewed_before_it_ends_with_a_new_key(tmp_path: Path) -> None:
    with controller(tmp_path / "site") as site, agent_process(tmp_path / "node") as node:
        site.told_life = 1.5  # it is renewed long before the certificate's real end, whatever this machine is busy with
        node.start(site.boot())
        site.wait(lambda: site.exchanges)
        site.told_life = None
        deadline = time.monotonic() + 60
        while "/agent/v1/renew" not in site.requests:  # it looks whenever it has spoken
            assert time.monotonic() < deadline
            assert site.do("exec", argv=["true"], where="minos")["ok"]
            time.sleep(0.1)
        site.wait(lambda: len(set(site.shown)) == 2)
        assert site.do("exec", argv=["true"], where="minos")["ok"]
        assert site.requests.count("/agent/v1/renew") == 1
        new = x509.load_pem_x509_certificate((tmp_path / "node/run/node.pem").read_bytes())
        assert site.shown[-1] == new.serial_number != site.shown[0]
        assert new.public_key() != x509.load_pem_x509_csr(site.redeemed[0].encode()).public_key()


def test_a_certificate_is_due_after_two_thirds_of_its_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with controller(tmp_path / "site") as site:
        paths = booted(tmp_path / "node", site.boot())
        identity = Identity(take_boot(paths), paths)
        site.told_life = 3600.0
        identity.redeem(site.url)
        issued = json.loads((paths.run / "identity.json").read_text())["issued"]
        for after, due in ((2390, False), (2410, True)):
            monkeypatch.setattr(identity_module.time, "time", lambda after=after: issued + after)
            assert identity.renew_if_due(site.url) is due


def test_a_second_redemption_is_refused_and_said(tmp_path: Path) -> None:
    with controller(tmp_path / "site") as site:
        site.token = None
        paths = booted(tmp_path / "node", site.boot())
        identity = Identity(take_boot(paths), paths)
        with pytest.raises(Refused, match=r"\(403\): the token was redeemed already"):
            identity.redeem(site.url)
        assert not identity.issued


def test_a_controller_that_another_ca_vouches_for_gets_no_token(tmp_path: Path) -> None:
    with controller(tmp_path / "ours") as ours, controller(tmp_path / "theirs") as theirs:
        paths = booted(tmp_path / "node", ours.boot())
        with pytest.raises(Unreachable, match="no TLS session"):
            Identity(take_boot(paths), paths).redeem(theirs.url)
        assert theirs.requests == []


def test_plain_http_is_never_spoken() -> None:
    for url in ("http://10.0.0.1:80", "ftp://x", "10.0.0.1", "https://"):
        with pytest.raises(Unreachable, match="not a controller's address"):
            split_url(url)
    assert split_url("https://[fd77::1]:8443") == ("fd77::1", 8443)
    assert split_url("https://head.site") == ("head.site", 443)


def test_a_boot_without_its_fragment_is_said_plainly(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match=r"no boot\.json"):
        take_boot(Paths(run=tmp_path / "run", root=tmp_path))


def test_a_machine_that_nobody_knows_says_hello_until_it_is_adopted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with controller(tmp_path / "site") as site:
        paths = booted(tmp_path / "node", {"discovery": True, "controllers": [site.url], "ca": site.site.ca_pem})
        nic = paths.sys("class/net/eth0")
        (nic / "device").mkdir(parents=True)
        (nic / "address").write_text("52:54:00:00:00:01\n")
        rebooted = threading.Event()
        monkeypatch.setattr(discovery, "restart", rebooted.set)
        machine = threading.Thread(target=discovery.discover, args=(take_boot(paths), paths))
        machine.start()
        assert site.wait(lambda: site.hellos)[0]["macs"] == ["52:54:00:00:00:01"]
        assert not rebooted.is_set()
        site.adopted = True
        assert rebooted.wait(60)
        machine.join()


def test_answers_that_make_no_sense_are_no_answers(tmp_path: Path) -> None:
    with controller(tmp_path / "site") as site:
        paths = booted(tmp_path / "node", site.boot())
        take_boot(paths)
        context = tls_context(paths.authority)
        with pytest.raises(Refused, match="401"):
            post(site.url, "/agent/v1/exchange", {}, context)
        site.answer = lambda path, body, certificate: (200, ["no", "object"])  # type: ignore[assignment,method-assign,return-value]
        with pytest.raises(Unreachable, match="not a JSON object"):
            post(site.url, "/agent/v1/hello", {}, context)
