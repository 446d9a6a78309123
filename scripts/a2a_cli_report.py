#!/usr/bin/env python3
"""Writes the compliance report of `trunkline a2a` from a run of its tests.

    .venv/bin/python scripts/a2a_cli_report.py

The registry of requirements is tests/vectors/a2a_cli_requirements.json. The test of a requirement
has its identifier as its name. A requirement without a test is not measured. The report is
docs/a2a-cli-compliance.md, and the same as YAML beside it.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

import yaml  # type: ignore[import-untyped]

from trunkline.cli.a2a_cli.failures import LocalCode

ROOT: Final = Path(__file__).parents[1]
TESTS: Final = ROOT / "tests/contract/a2a_cli"
REGISTRY: Final = ROOT / "tests/vectors/a2a_cli_requirements.json"
REPORT: Final = ROOT / "docs/a2a-cli-compliance.md"

MARKS: Final[Mapping[str, str]] = {
    "pass": "✅ Pass",
    "partial": "◐ Partial",
    "fail": "❌ Fail",
    "not_measured": "⊘ Not measured",
    "na": "— N/A",
}
TIERS: Final[Mapping[int, str]] = {1: "Core", 2: "Standard", 3: "Advanced"}
DEFAULTS: Final = (
    ("transport_server_preference_order", "Transport: the order of the card"),
    ("task_completion_wait_by_default", "Task completion: wait"),
    ("output_human_readable_text", "Output: text"),
    ("detail_level_concise", "Detail: concise"),
    ("protocol_version_highest_mutual", "Version: the highest of both, at least 1.0"),
    ("transport_security_tls_on", "TLS verification: on; `--insecure` warns"),
)
COMMAND: Final = "pytest tests/contract/a2a_cli"


@dataclass(frozen=True, slots=True)
class Requirement:
    """A requirement and its result."""

    id: str
    tier: int
    section: str
    text: str
    status: str
    note: str

    @property
    def area(self) -> str:
        """The area in its identifier."""
        return self.id.removeprefix("A2ACLI_").rpartition("_")[0]

    def to_yaml(self) -> dict[str, Any]:
        """Return its entry of the YAML report."""
        return {
            "tier": self.tier,
            "area": self.area,
            "spec": self.section,
            "requirement": self.text,
            "status": self.status,
            "note": self.note or None,
            "evidence": f"test_{self.id.lower()}",
        }


def run_tests() -> dict[str, bool]:
    """Run the tests; return for each name whether it passed."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.xml"
        flags = ("-n0", "-p", "no:randomly", "-q", f"--junitxml={results}")
        tests = sorted(map(str, TESTS.glob("test_*_*.py")))
        subprocess.run([sys.executable, "-m", "pytest", *flags, *tests], check=False, cwd=ROOT)
        # Our own file.
        cases = ElementTree.parse(results).iter("testcase")  # noqa: S314
        return {case.attrib["name"]: len(case.findall("*")) == 0 for case in cases}


def grade(results: Mapping[str, bool]) -> list[Requirement]:
    """Return the requirements with their results."""
    registry = json.loads(REGISTRY.read_text(encoding="utf-8"))
    graded = []
    for name, entry in registry["requirements"].items():
        passed = results.get(f"test_{name.lower()}")
        status = "not_measured" if passed is None else "pass" if passed else "fail"
        note = registry["notes"].get(name, "")
        if status != "pass" and not note:
            note = "it has no test" if passed is None else "its test fails"
        graded.append(
            Requirement(name, entry["tier"], entry["section"], entry["text"], status, note)
        )
    return graded


def is_satisfied(requirements: list[Requirement], tier: int) -> bool:
    """Return whether a tier and all tiers below it are satisfied."""
    return all(entry.status in ("pass", "na") for entry in requirements if entry.tier <= tier)


def identity(requirements: list[Requirement]) -> dict[str, Any]:
    """Return the head of the report."""
    registry = json.loads(REGISTRY.read_text(encoding="utf-8"))
    claimed = [tier for tier in TIERS if is_satisfied(requirements, tier)]
    return {
        "tool": "trunkline a2a",
        "tool_version": metadata.version("trunkline"),
        "language": "Python",
        "repository": "the one that holds this report",
        "maintainer": "the developers of Trunkline",
        "report_date": datetime.now(UTC).date().isoformat(),
        "spec_version": registry["spec_version"],
        "spec_revision": registry["spec_revision"],
        "a2a_versions": ["1.0", "0.3 on request"],
        "agent_tested": registry["agent_tested"],
        "agent_tck_conformant": registry["agent_tck_conformant"],
        "transports_covered": ["JSON-RPC", "HTTP+JSON", "gRPC"],
        "tier_claimed": max(claimed, default=0),
    }


def count(requirements: list[Requirement], tier: int) -> dict[str, Any]:
    """Return the rollup of a tier."""
    entries = [entry for entry in requirements if entry.tier == tier]
    counts = {status: sum(entry.status == status for entry in entries) for status in MARKS}
    return {
        "total": len(entries),
        **counts,
        "satisfied": is_satisfied(requirements, tier),
    }


def emitted_codes() -> dict[str, bool]:
    """Return for each code of the standard whether a test has seen it."""
    sources = "".join(path.read_text(encoding="utf-8") for path in sorted(TESTS.glob("test_*.py")))
    return {
        code.value: code.value in sources or f"LocalCode.{code.name}" in sources
        for code in LocalCode
    }


def render_yaml(requirements: list[Requirement]) -> str:
    """Return the machine-readable report."""
    head = identity(requirements)
    passes = next(x for x in requirements if x.id == "A2ACLI_DEFAULT_001").status == "pass"
    row = {"shipped": passes, "overridable": passes, "note": None}
    document = {
        "report": head,
        "summary": {f"tier_{tier}": count(requirements, tier) for tier in TIERS},
        "requirements": {entry.id: entry.to_yaml() for entry in requirements},
        "default_001_breakdown": {name: dict(row) for name, _ in DEFAULTS},
        "error_codes": {
            code: {"emitted": emitted, "note": None} for code, emitted in emitted_codes().items()
        },
        "attestation": {
            "reported_by": head["maintainer"],
            "date": head["report_date"],
            "statement": "The tier claimed reflects the evidence recorded above.",
        },
    }
    text = yaml.safe_dump(document, allow_unicode=True, sort_keys=False, width=100)
    return f"# Made by scripts/a2a_cli_report.py from a run of `{COMMAND}`.\n{text}"


def render_markdown(requirements: list[Requirement]) -> str:
    """Return the report for people."""
    return "\n".join([*_head(requirements), *_tables(requirements), *_tail(requirements), ""])


def _head(requirements: list[Requirement]) -> Iterator[str]:
    head = identity(requirements)
    yield "# Compliance report of `trunkline a2a`"
    yield ""
    yield f"Made by `scripts/a2a_cli_report.py` from a run of `{COMMAND}`, in the form that"
    yield "the standard's `COMPLIANCE.md` prescribes. `a2a-cli-compliance.yaml` has the same."
    yield ""
    yield "## 1. Summary"
    yield ""
    yield "| Field | Value |"
    yield "| --- | --- |"
    tier = head["tier_claimed"]
    rows = {
        "Tool name": f"`{head['tool']}`",
        "Tool version": head["tool_version"],
        "Implementation language": head["language"],
        "Repository": head["repository"],
        "Maintainer / contact": head["maintainer"],
        "Report date": head["report_date"],
        "Specification version targeted": head["spec_version"],
        "Specification revision (Last updated)": head["spec_revision"],
        "**Tier claimed**": f"Tier {tier}" if tier else "none",
        "A2A protocol version(s)": ", ".join(head["a2a_versions"]),
        "Agent exercised against": head["agent_tested"],
        "That agent is TCK-conformant?": head["agent_tck_conformant"],
        "Transports covered": ", ".join(head["transports_covered"]),
    }
    yield from (f"| {name} | {value} |" for name, value in rows.items())
    yield ""
    yield "## 3. Results at a glance"
    yield ""
    yield "| Tier | Requirements | `✅` | `◐` | `❌` | `⊘` | `—` | Tier satisfied? |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for number, name in TIERS.items():
        counts = count(requirements, number)
        numbers = " | ".join(str(counts[status]) for status in MARKS)
        answer = "yes" if counts["satisfied"] else "no"
        yield f"| Tier {number}: {name} | {counts['total']} | {numbers} | {answer} |"


def _tables(requirements: list[Requirement]) -> Iterator[str]:
    for number, name in TIERS.items():
        yield ""
        yield f"## {number + 3}. Tier {number}: {name}"
        yield ""
        yield "| ID | Requirement, in short | Spec § | Status | Notes |"
        yield "| --- | --- | --- | --- | --- |"
        for entry in requirements:
            if entry.tier == number:
                cells = (
                    f"`{entry.id}`",
                    entry.text,
                    entry.section,
                    MARKS[entry.status],
                    entry.note,
                )
                yield f"| {' | '.join(cells)} |"


def _tail(requirements: list[Requirement]) -> Iterator[str]:
    passes = next(x for x in requirements if x.id == "A2ACLI_DEFAULT_001").status == "pass"
    answer = "yes" if passes else "no"
    yield ""
    yield "### `A2ACLI_DEFAULT_001` breakdown"
    yield ""
    yield "| Default | Shipped? | Overridable by flag? |"
    yield "| --- | --- | --- |"
    yield from (f"| {text} | {answer} | {answer} |" for _, text in DEFAULTS)
    yield ""
    yield "## 7. Test evidence"
    yield ""
    yield f"- How the tool was exercised: `{COMMAND}`. The test of an identifier has its name."
    yield "- Known gaps: of the versions before 1.0 only 0.3, which has no `task list`."
    yield ""
    yield "## 8. Error codes"
    yield ""
    yield "| Code | Emitted |"
    yield "| --- | --- |"
    for code, emitted in emitted_codes().items():
        yield f"| `{code}` | {'yes' if emitted else 'no'} |"
    head = identity(requirements)
    yield ""
    yield "## 9. Attestation"
    yield ""
    yield f"Reported by {head['maintainer']} on {head['report_date']}."
    yield "The tier claimed reflects the evidence above."


def main() -> None:
    """Run the tests and write both reports."""
    requirements = grade(run_tests())
    REPORT.write_text(render_markdown(requirements), encoding="utf-8")
    REPORT.with_suffix(".yaml").write_text(render_yaml(requirements), encoding="utf-8")
    for tier in TIERS:
        print(f"tier {tier}: {count(requirements, tier)}")


if __name__ == "__main__":
    main()
