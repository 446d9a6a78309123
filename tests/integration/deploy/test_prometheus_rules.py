"""The rules and alerts of `deploy/prometheus`: promtool checks and tests them."""

import re
import subprocess
from pathlib import Path
from typing import Any, Final

import yaml
from typer.testing import CliRunner

from harness.remote.prometheus_server import PROGRAMS
from trunkline.cli.app import app
from trunkline.observe.metrics.instruments import INSTRUMENTS
from trunkline.observe.metrics.kinds import Counter, Gauge
from trunkline.observe.metrics.prometheus import family_name, to_name

ROOT: Final = Path(__file__).parents[3]
FOLDER: Final = ROOT / "deploy/prometheus"
# Functions, operators and modifiers are followed by a bracket, or are these words.
WORDS: Final = frozenset({"and", "by", "or", "unless", "offset"})


def read_rules(name: str) -> list[dict[str, Any]]:
    groups = yaml.safe_load((FOLDER / "rules" / name).read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


ALERTS: Final = read_rules("alerts.yml")
RECORDINGS: Final = read_rules("recording.yml")
TESTS: Final = yaml.safe_load((FOLDER / "alerts_test.yml").read_text(encoding="utf-8"))["tests"]


def promtool(*arguments: str) -> str:
    command = [str(PROGRAMS / "promtool"), *arguments]
    done = subprocess.run(
        command, cwd=FOLDER, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_accepts_the_files_and_the_tests_of_the_alerts_pass() -> None:
    assert "2 rule files found" in promtool("check", "config", "prometheus.yml")
    promtool("check", "rules", "--lint-fatal", "rules/recording.yml", "rules/alerts.yml")
    promtool("test", "rules", "alerts_test.yml")


def test_each_alert_is_tested_to_fire_and_to_stay_silent() -> None:
    tested = [
        (case["alertname"], bool(case["exp_alerts"]))
        for test in TESTS
        for case in test["alert_rule_test"]
    ]
    wanted = [(alert["alert"], fires) for alert in ALERTS for fires in (True, False)]
    assert sorted(tested) == sorted(wanted)


def test_each_alert_has_its_page() -> None:
    links = [alert["annotations"]["runbook_url"] for alert in ALERTS]
    assert {link.partition("docs/")[0] for link in links} == {"{{ $externalLabels.runbooks }}"}
    pages = ["".join(link.partition("docs/")[1:]) for link in links]
    for alert, page in zip(ALERTS, pages, strict=True):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert text.startswith(f"# {alert['alert']}\n")
        assert f"Severity: {alert['labels']['severity']}." in text
        assert "\n## Look at\n" in text
        assert "\n## Do\n" in text
    others = {"docs/runbooks/index.md"}
    found = {str(path.relative_to(ROOT)) for path in (ROOT / "docs/runbooks").glob("*.md")}
    assert found == {*pages, *others}


def test_pages_have_only_series_and_commands_that_exist() -> None:
    metrics, labels = known_names()
    commands = 0
    for page in (ROOT / "docs/runbooks").glob("*.md"):
        for text in re.findall(r"`([^`]+)`", page.read_text(encoding="utf-8")):
            if text.startswith("trunkline "):
                commands += 1
                result = CliRunner().invoke(app, [*text.split()[1:], "--help"])
                assert result.exit_code == 0, (page.name, text)
            elif re.fullmatch(r"[a-z][a-z0-9]*([_:]\w+)+", text):
                families = {f"{text}_count", f"{text}_total", text}
                assert families & (metrics | labels), (page.name, text)
            elif "(" in text:
                used_metrics, used_labels = names_in(text)
                assert used_metrics, (page.name, text)
                assert used_metrics <= metrics, (page.name, text)
                assert used_labels <= labels, (page.name, text)
    assert commands > 10


def test_expressions_have_only_names_that_exist() -> None:
    metrics, labels = known_names()
    for rule in [*RECORDINGS, *ALERTS]:
        used_metrics, used_labels = names_in(rule["expr"])
        assert used_metrics, rule
        assert used_metrics <= metrics, rule
        assert used_labels <= labels, rule
    # The series of the tests, too: else an alert could be tested with what nobody measures.
    for series in (one["series"] for test in TESTS for one in test["input_series"]):
        used_metrics, used_labels = names_in(series)
        assert used_metrics <= metrics, series
        assert used_labels <= labels, series


def known_names() -> tuple[set[str], set[str]]:
    """Return the metrics and the labels that a Prometheus has of a mesh."""
    metrics = {"up", *(rule["record"] for rule in RECORDINGS)}
    labels = {"instance", "job", "le"}
    for instrument in INSTRUMENTS:
        name = family_name(instrument.name, instrument.unit)
        if isinstance(instrument, Counter):
            metrics.add(f"{name}_total")
        elif isinstance(instrument, Gauge):
            metrics.add(name)
        else:
            metrics.update(f"{name}_{part}" for part in ("bucket", "count", "sum"))
        labels.update(to_name(attribute.name) for attribute in instrument.attributes)
    return metrics, labels


def names_in(expression: str) -> tuple[set[str], set[str]]:
    """Return the metrics and the labels of an expression."""
    bare = re.sub(r"#.*", "", expression)
    labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", bare))
    for group in re.findall(r"\bby \(([^)]*)\)", bare):
        labels.update(re.findall(r"\w+", group))
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\bby \([^)]*\)|\boffset \w+", "", bare)
    metrics = set(re.findall(r"\b[a-z_][\w:]*\b(?!\s*\()", bare)) - WORDS
    return metrics, labels
