"""The dashboard and the alert rules: every metric and label that they name is exposed by a gateway."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.ways import IN_MEMORY, ROOT
from toolpost.app import open_app
from toolpost.parts.telemetry.settings import TELEMETRY, TelemetrySettings

FOLDER = ROOT / "docs/monitoring"
ALERTS = FOLDER / "prometheus-alerts.yml"
DASHBOARD = FOLDER / "grafana-dashboard.json"
PAGE = ROOT / "docs/reference/metrics.md"

_METRIC = re.compile(r"\b((?:toolpost|process)_\w+)(?:\{([^}]*)\})?")
_GROUPED = re.compile(r"\bby \(([^)]*)\)")
_OF_PROMETHEUS = {"instance", "job", "le"}


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def expressions() -> dict[str, str]:
    found = {f"alert {rule['alert']}": rule["expr"] for rule in rules()}
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            found[f"panel {panel['title']} {target['refId']}"] = target["expr"]
    return found


@pytest.mark.anyio
async def test_what_they_name_is_exposed(monkeypatch: pytest.MonkeyPatch) -> None:
    for signal in ("TRACES", "METRICS"):
        monkeypatch.setenv(f"OTEL_{signal}_EXPORTER", "none")
    config = TELEMETRY.put(IN_MEMORY, TelemetrySettings(enabled=True))
    async with open_app(config) as app:
        families = {family.name: family for family in text_string_to_metric_families(await app.monitor.scrape())}
    exposed = set(families)
    for name, family in families.items():
        exposed |= {f"{name}_total"} if family.type == "counter" else set()
        exposed |= {f"{name}_{end}" for end in ("bucket", "count", "sum")} if family.type == "histogram" else set()
    documented = dict(re.findall(r"^\| `(\w+)(?:\{([\w,]+)\})?`", PAGE.read_text(), re.MULTILINE))

    for place, expression in expressions().items():
        named = _METRIC.findall(expression)
        assert named or "up{" in expression, place
        for metric, selectors in named:
            assert metric in exposed, f"{place}: {metric}"
            base = metric if metric in documented else re.sub(r"_(bucket|count|sum)$", "", metric)
            assert base in documented or base.startswith("process_"), f"{place}: {metric} is not on its page"
            labels = {*documented.get(base, "").split(","), *_OF_PROMETHEUS}
            used = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selectors))
            used |= {label.strip() for group in _GROUPED.findall(expression) for label in group.split(",") if label}
            assert used <= labels, f"{place}: {used - labels}"


def test_an_alert_says_what_to_do() -> None:
    for rule in rules():
        assert rule["annotations"].keys() == {"summary", "action"}
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
    assert len({rule["alert"] for rule in rules()}) == len(rules())


def test_the_dashboard_has_room_for_its_panels() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]

    assert len(set(places)) == len(panels)
    assert len({panel["title"] for panel in panels}) == len(panels)


def run_promtool(*arguments: str) -> None:
    if (promtool := shutil.which("promtool")) is None:
        pytest.skip("promtool is not installed: apt install prometheus")
    ran = subprocess.run([promtool, *arguments], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.wire
def test_promtool_takes_the_rules() -> None:
    run_promtool("check", "rules", str(ALERTS))


@pytest.mark.wire
def test_alerts_are_raised_by_what_they_are_about() -> None:
    run_promtool("test", "rules", str(Path(__file__).with_name("alerts.test.yml")))


@pytest.mark.wire
def test_promtool_takes_the_expressions_of_the_dashboard(tmp_path: Path) -> None:
    found = {place: expression for place, expression in expressions().items() if place.startswith("panel ")}
    filled = [
        expression.replace("$__rate_interval", "5m").replace("$instance", ".*").replace("$server", ".*")
        for expression in found.values()
    ]
    assert not any("$" in expression for expression in filled)
    recorded = [{"record": f"panel:number{number}", "expr": text} for number, text in enumerate(filled)]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": recorded}]}))
    run_promtool("check", "rules", str(tmp_path / "rules.yml"))
