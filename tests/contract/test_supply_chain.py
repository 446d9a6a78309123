"""The checks of dependencies: a forbidden licence and a known vulnerability fail."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHA256 = "0" * 64


def run_script(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / name), *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, cwd=ROOT
    )


def check_licences(
    folder: Path, packages: Sequence[Sequence[str]]
) -> subprocess.CompletedProcess[str]:
    """Check installed packages with this metadata, whose names are `thing0`, `thing1` and so on."""
    for number, metadata in enumerate(packages):
        package = folder / f"thing{number}-1.0.dist-info"
        package.mkdir()
        header = ("Metadata-Version: 2.4", f"Name: Thing{number}", "Version: 1.0")
        (package / "METADATA").write_text("\n".join((*header, *metadata)) + "\n")
    pins = folder / "pins.txt"
    pins.write_text("".join(f"thing{number}==1.0\n" for number in range(len(packages))))
    return run_script("check_licences.py", str(pins), "--path", str(folder))


GPL = "Classifier: License :: OSI Approved :: GNU General Public License v3 (GPLv3)"
FORBIDDEN = (
    ("License-Expression: AGPL-3.0-only",),
    ("License-Expression: MIT AND GPL-2.0-or-later",),
    ("License-Expression: (MIT OR Apache-2.0) AND SSPL-1.0",),
    ("License-Expression: MIT OR",),
    (GPL,),
    ("Classifier: License :: OSI Approved :: MIT License", GPL),
    ("License: Proprietary",),
    (),
)
ALLOWED = (
    ("License-Expression: MIT",),
    ("License-Expression: GPL-3.0-only OR (MIT AND BSD-3-Clause)",),
    ("Classifier: License :: OSI Approved :: Apache Software License",),
    ("License: MIT",),
)


def test_a_licence_that_is_not_allowed_fails(tmp_path: Path) -> None:
    result = check_licences(tmp_path, FORBIDDEN)
    assert result.returncode == 1
    refused = [line.partition(":")[0] for line in result.stderr.splitlines()]
    assert refused == [f"thing{number}" for number in range(len(FORBIDDEN))]


def test_an_allowed_licence_passes(tmp_path: Path) -> None:
    result = check_licences(tmp_path, ALLOWED)
    assert (result.returncode, result.stderr) == (0, "")


def test_a_dependency_that_is_not_installed_fails(tmp_path: Path) -> None:
    (tmp_path / "pins.txt").write_text("absent==1.0\n")
    result = run_script("check_licences.py", str(tmp_path / "pins.txt"), "--path", str(tmp_path))
    assert result.returncode == 1
    assert "absent" in result.stderr


def test_our_dependencies_have_allowed_licences() -> None:
    result = run_script("check_licences.py")
    assert (result.returncode, result.stderr) == (0, "")


def test_the_tests_that_the_threat_model_names_exist() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    names = re.findall(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`", text)
    # A file without a test counts as a whole.
    missing = [
        f"{file}::{test}" for file, test in names if f"def {test}" not in (ROOT / file).read_text()
    ]
    assert len(names) > 20
    assert missing == []


@contextmanager
def serve_osv(vulnerabilities: Mapping[str, Any]) -> Iterator[str]:
    """Serve an OSV database that answers every query with this."""

    class Database(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.dumps(vulnerabilities).encode()
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Database) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def check_vulnerabilities(
    folder: Path, service: str, *words: str
) -> subprocess.CompletedProcess[str]:
    pins = folder / "pins.txt"
    pins.write_text(f"thing==1.0 --hash=sha256:{SHA256}\n")
    return run_script(
        "check_vulnerabilities.py", "--requirements", str(pins), "--service", service, *words
    )


def test_a_known_vulnerability_fails(tmp_path: Path) -> None:
    versions = {"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "1.1"}]}
    package = {"ecosystem": "PyPI", "name": "thing"}
    vulnerability = {
        "id": "GHSA-1",
        "summary": "bad",
        "details": "bad",
        "published": "2026-01-01T00:00:00Z",
        "affected": [{"package": package, "ranges": [versions]}],
    }
    with serve_osv({"vulns": [vulnerability]}) as service:
        result = check_vulnerabilities(tmp_path, service)
    assert result.returncode == 1
    assert result.stderr == "thing 1.0: GHSA-1, fixed in 1.1\n"


def test_no_known_vulnerability_passes(tmp_path: Path) -> None:
    with serve_osv({}) as service:
        result = check_vulnerabilities(tmp_path, service, "--require")
    assert result.returncode == 0
    assert result.stdout == "1 packages checked for known vulnerabilities: 0 have some\n"


@pytest.mark.parametrize(("words", "code"), [((), 0), (("--require",), 1)])
def test_an_unreachable_database_is_said(tmp_path: Path, words: tuple[str, ...], code: int) -> None:
    # Nothing listens on the discard port.
    result = check_vulnerabilities(tmp_path, "http://127.0.0.1:9/", *words)
    assert result.returncode == code
    assert result.stdout.startswith("NOT CHECKED for known vulnerabilities: ")
    assert "0 have some" not in result.stdout
