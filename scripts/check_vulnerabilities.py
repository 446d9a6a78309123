"""Checks the pinned dependencies for known vulnerabilities, by pip-audit and the OSV database.

Exits with 1 if there are some. If the database can't be reached, it says that nothing was checked,
and exits with 0, or with 1 if `--require` is given.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]

_TIMEOUT_S: Final = 300


def run_pip_audit(requirements: Path, service: str) -> tuple[list[dict[str, Any]] | None, str]:
    """Return pip-audit's result for each package, or None and the reason why there is none."""
    command = (
        *(sys.executable, "-m", "pip_audit", "--requirement", str(requirements)),
        *("--disable-pip", "--require-hashes", "--vulnerability-service", "osv"),
        *("--progress-spinner", "off", "--timeout", "10", "--format", "json"),
        *(("--osv-url", service) if service else ()),
    )
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return None, f"pip-audit took longer than {_TIMEOUT_S} s"
    try:
        packages: list[dict[str, Any]] = json.loads(result.stdout)["dependencies"]
    except (ValueError, KeyError):
        # It prints a result only if it has asked about every package.
        lines = result.stderr.strip().splitlines() or [f"pip-audit exited with {result.returncode}"]
        return None, lines[-1]
    return packages, ""


def main() -> int:
    """Check, print the result, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--require", action="store_true", help="fail if nothing can be checked")
    parser.add_argument("--service", default="", help="the URL of an OSV database")
    parser.add_argument(
        "--requirements", type=Path, default=ROOT / "requirements/dev.txt", help="a file of pins"
    )
    options = parser.parse_args()
    packages, reason = run_pip_audit(options.requirements, options.service)
    if packages is None:
        print(f"NOT CHECKED for known vulnerabilities: {reason}")
        return 1 if options.require else 0
    checked = [package for package in packages if "skip_reason" not in package]
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    if skipped:
        print(f"NOT CHECKED for known vulnerabilities: {', '.join(skipped)}")
    vulnerable = [package for package in checked if package["vulns"]]
    for package in vulnerable:
        for vulnerability in package["vulns"]:
            fixed = ", ".join(vulnerability["fix_versions"]) or "no version"
            name = f"{package['name']} {package['version']}"
            print(f"{name}: {vulnerability['id']}, fixed in {fixed}", file=sys.stderr)
    print(f"{len(checked)} packages checked for known vulnerabilities: {len(vulnerable)} have some")
    return 1 if vulnerable or (skipped and options.require) else 0


if __name__ == "__main__":
    sys.exit(main())
