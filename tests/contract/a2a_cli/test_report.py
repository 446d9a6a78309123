"""The compliance report has a row and a test for every requirement of the standard."""

import ast
import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
REGISTRY: dict[str, Any] = json.loads(
    (ROOT / "tests/vectors/a2a_cli_requirements.json").read_text(encoding="utf-8")
)
REQUIREMENTS: dict[str, Any] = REGISTRY["requirements"]
MARKDOWN = (ROOT / "docs/a2a-cli-compliance.md").read_text(encoding="utf-8")
YAML = (ROOT / "docs/a2a-cli-compliance.yaml").read_text(encoding="utf-8")
REPORT: dict[str, Any] = yaml.safe_load(YAML)


def test_every_requirement_has_one_test() -> None:
    names = [
        node.name
        for path in Path(__file__).parent.glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.AsyncFunctionDef) and node.name.startswith("test_a2acli_")
    ]
    assert sorted(names) == sorted(f"test_{name.lower()}" for name in REQUIREMENTS)


def test_every_requirement_has_a_row() -> None:
    rows = re.findall(r"^\| `(A2ACLI_[A-Z_]+_\d{3})` \|", MARKDOWN, re.MULTILINE)
    assert sorted(rows) == sorted(REQUIREMENTS)
    assert sorted(REPORT["requirements"]) == sorted(REQUIREMENTS)


def test_tiers_have_their_sizes_and_sums() -> None:
    sizes = {1: 39, 2: 15, 3: 12}
    for tier, size in sizes.items():
        summary = REPORT["summary"][f"tier_{tier}"]
        statuses = [
            entry["status"] for entry in REPORT["requirements"].values() if entry["tier"] == tier
        ]
        assert summary["total"] == len(statuses) == size
        assert summary["pass"] == statuses.count("pass")
        assert summary["satisfied"] == (set(statuses) <= {"pass", "na"})


def test_the_report_is_what_its_script_writes() -> None:
    spec = importlib.util.spec_from_file_location("report", ROOT / "scripts/a2a_cli_report.py")
    assert spec is not None
    assert spec.loader is not None
    script: Any = importlib.util.module_from_spec(spec)
    # Its dataclasses look their module up.
    sys.modules["report"] = script
    spec.loader.exec_module(script)
    statuses = {name: entry["status"] for name, entry in REPORT["requirements"].items()}
    passed = {f"test_{name.lower()}": status == "pass" for name, status in statuses.items()}
    requirements = script.grade(passed)
    written = script.render_markdown(requirements), script.render_yaml(requirements)
    date = re.compile(r"\d{4}-\d{2}-\d{2}")
    for found, expected in zip((MARKDOWN, YAML), written, strict=True):
        assert date.sub("DATE", found) == date.sub("DATE", expected)


def test_what_does_not_pass_has_a_note() -> None:
    for entry in REPORT["requirements"].values():
        assert entry["status"] == "pass" or entry["note"]


def test_the_report_is_of_the_revision_of_the_registry() -> None:
    assert REPORT["report"]["spec_revision"] == REGISTRY["spec_revision"]
    assert all(code["emitted"] for code in REPORT["error_codes"].values())
