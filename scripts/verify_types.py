"""Check that every name of the public package has a known type, as users' type checkers see it.

Runs `pyright --verifytypes` on the package and fails if a public symbol of `trunkline` or
`trunkline.testing` has an unknown or partially unknown type.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PYRIGHT = str(Path(sys.executable).with_name("pyright"))
ENVIRONMENT = ("--pythonpath", sys.executable)
SOURCES = Path(__file__).resolve().parents[1] / "services"
# Name -> why its type is not fully known. The list only shrinks.
GAPS = {
    "trunkline.from_langgraph": "takes a graph of langgraph, whose types pyright cannot resolve",
    "trunkline.testing.Mesh": "not traced yet: no member of it is reported",
    "trunkline.testing.ScriptedModel": "takes messages of langchain-core",
}
PUBLIC = ("trunkline", "trunkline.testing")


def main() -> int:
    """Print the symbols without a known type; return the exit code."""
    run = subprocess.run(
        [PYRIGHT, "--outputjson", "--ignoreexternal", *ENVIRONMENT, "--verifytypes", "trunkline"],
        check=False,
        capture_output=True,
        text=True,
        # pyright looks for installed packages only, and does not follow an editable installation.
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
    )
    report: dict[str, Any] = json.loads(run.stdout)
    symbols = [
        symbol
        for symbol in report["typeCompleteness"]["symbols"]
        if symbol["isExported"] and symbol["name"].rpartition(".")[0] in PUBLIC
    ]
    unknown = [
        symbol["name"]
        for symbol in symbols
        if not symbol["isTypeKnown"] and symbol["name"] not in GAPS
    ]
    for name in unknown:
        print(f"{name}: its type is not fully known")
    if not symbols:
        print(f"pyright reported no symbols: {run.stdout[:400]}")
    return 1 if unknown or not symbols else 0


if __name__ == "__main__":
    sys.exit(main())
