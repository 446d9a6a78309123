"""Check that every name of the public package has a known type, as users' type checkers see it.

Fails if a public symbol of `trunkline` or `trunkline.testing` has an unknown or partially unknown
type. `pyright --verifytypes` checks all symbols but those that need the types of packages without
stubs: it does not follow imports to these. A strict check of a user's file covers them.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PYRIGHT = str(Path(sys.executable).with_name("pyright"))
ENVIRONMENT = ("--pythonpath", sys.executable)
SOURCES = Path(__file__).resolve().parents[1] / "services"
PUBLIC = ("trunkline", "trunkline.testing")
# In strict mode, any use of a partially unknown type is an error.
USAGE = """\
# pyright: strict
from trunkline import from_langgraph
from trunkline.testing import Mesh, ScriptedModel


def use(mesh: Mesh, model: ScriptedModel) -> tuple[object, ...]:
    return (
        from_langgraph,
        ScriptedModel("text"),
        mesh.directory.list_agents,
        mesh.ask,
        mesh.submit,
        mesh.stream,
        mesh.wait_until,
        model.requests[0][0].content_blocks,
        model.bind_tools,
    )
"""
COVERED_BY_USAGE = {
    "trunkline.from_langgraph",
    "trunkline.testing.Mesh",
    "trunkline.testing.ScriptedModel",
}


def main() -> int:
    """Print the problems; return the exit code."""
    problems = [*find_unknown_symbols(), *check_usage()]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


def find_unknown_symbols() -> list[str]:
    """Return the public symbols whose types are not fully known, except those that USAGE covers."""
    report = run_pyright("--ignoreexternal", "--verifytypes", "trunkline")
    symbols = [
        symbol
        for symbol in report["typeCompleteness"]["symbols"]
        if symbol["isExported"] and symbol["name"].rpartition(".")[0] in PUBLIC
    ]
    if not symbols:
        return ["pyright reported no symbols"]
    return [
        f"{symbol['name']}: its type is not fully known"
        for symbol in symbols
        if not symbol["isTypeKnown"] and symbol["name"] not in COVERED_BY_USAGE
    ]


def check_usage() -> list[str]:
    """Return the errors of a user's file in strict mode."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "usage.py"
        file.write_text(USAGE, encoding="utf-8")
        report = run_pyright(str(file))
    if report["summary"]["filesAnalyzed"] != 1:
        return ["pyright did not check the usage"]
    return [f"usage: {each['message']}" for each in report["generalDiagnostics"]]


def run_pyright(*arguments: str) -> dict[str, Any]:
    """Run pyright and return its report."""
    run = subprocess.run(
        [PYRIGHT, "--outputjson", *ENVIRONMENT, *arguments],
        check=False,
        capture_output=True,
        text=True,
        # pyright looks for installed packages only, and does not follow an editable installation.
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
    )
    report: dict[str, Any] = json.loads(run.stdout)
    return report


if __name__ == "__main__":
    sys.exit(main())
