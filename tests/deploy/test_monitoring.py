"""The Prometheus rules and the Grafana dashboard: they are well-formed, fire when they should, and ask for metrics that
the service has."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from strata.fleet import metrics
from strata.power.telemetry import gauges

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
RULES = DEPLOY / "prometheus-rules.yaml"
DASHBOARD = DEPLOY / "grafana-dashboard.json"


def _queries() -> list[str]:
    rules = yaml.safe_load(RULES.read_text())["groups"]
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [rule["expr"] for group in rules for rule in group["rules"]] + [
        target["expr"] for panel in panels for target in panel["targets"]
    ]


def test_every_metric_that_is_asked_for_is_one_that_the_service_has() -> None:
    source = "".join(Path(module.__file__ or "").read_text() for module in (metrics, gauges))
    known = set(re.findall(r'"(strata_[a-z_]+)"', source))
    asked = {name for query in _queries() for name in re.findall(r"strata_[a-z_]+", query)}
    assert asked
    assert {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in asked} <= known


def test_the_rules_and_the_queries_of_the_dashboard_are_well_formed(tmp_path: Path) -> None:
    queries = tmp_path / "queries.yaml"
    wrapped = [{"record": f"q:{number}", "expr": query} for number, query in enumerate(_queries())]
    queries.write_text(yaml.safe_dump({"groups": [{"name": "q", "rules": wrapped}]}))
    done = subprocess.run(["promtool", "check", "rules", RULES, queries], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_rules_fire_when_they_should_and_are_silent_when_all_is_well(tmp_path: Path) -> None:
    def series(name: str, value: object) -> dict[str, str]:
        return {"series": name, "values": f"{value}x30"}

    well = [
        series('strata_nodes{state="ready"}', "100+0"),
        series('strata_nodes{state="faulted"}', "0+0"),
        series("strata_shards", "16+0"),
        series('strata_led_shards{instance="a"}', "10+0"),
        series('strata_led_shards{instance="b"}', "6+0"),
        series('up{job="strata",instance="a"}', "1+0"),
    ]
    ill = [
        series('strata_nodes{state="ready"}', "80+0"),
        series('strata_nodes{state="faulted"}', "20+0"),
        series("strata_shards", "16+0"),
        series('strata_led_shards{instance="a"}', "10+0"),
        series('up{job="strata",instance="b"}', "0+0"),
    ]
    firing = {
        "StrataControllerDown": [{"job": "strata", "instance": "b", "severity": "critical"}],
        "StrataShardsWithoutLeader": [{"severity": "critical"}],
        "StrataNodesFaulted": [{"severity": "warning"}],
        "StrataManyNodesFaulted": [{"severity": "critical"}],
    }

    def case(given: list[dict[str, str]], expected: dict[str, list[dict[str, str]]]) -> dict[str, object]:
        rules = [rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
        return {
            "interval": "1m",
            "input_series": given,
            "promql_expr_test": [
                {"expr": f'count(ALERTS{{alertname="{rule}",alertstate="firing"}}) or vector(0)', "eval_time": "20m",
                 "exp_samples": [{"labels": "{}", "value": len(expected.get(rule, ()))}]}
                for rule in rules
            ],
        }  # fmt: skip

    test = tmp_path / "test.yaml"
    cases = [case(well, {}), case(ill, firing)]
    test.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": cases}))
    done = subprocess.run(["promtool", "test", "rules", test], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
