"""The page's source: its types, its libraries, and what it loads."""

import hashlib
import json
import re
import subprocess
from pathlib import Path

from harness.browser import PARTNERS, ROOT

STATIC = ROOT / "bridge/trunkline_bridge/page/static"
VENDOR = STATIC / "assets/vendor"
IMPORTED = re.compile(r"""(?:\bfrom |\bimport |\bimport\()"(\.{1,2}/[^"\n]+)["]""")


def sources() -> list[Path]:
    return [path for path in (STATIC / "assets").rglob("*.js") if VENDOR not in path.parents]


def test_types_are_right() -> None:
    compiler = PARTNERS / "typescript/bin/tsc"
    node = ROOT / ".venv-partners/bin/node"
    check = subprocess.run(
        [node, compiler, "--project", ROOT / "bridge/tsconfig.json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (check.returncode, check.stdout) == (0, "")


def test_libraries_are_those_of_the_manifest() -> None:
    manifest = json.loads((VENDOR / "manifest.json").read_text())
    files = {path.name: path for path in VENDOR.iterdir() if path.name != "manifest.json"}
    hashes = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    assert hashes == manifest["files"]
    lock = json.loads((ROOT / "requirements/page/package-lock.json").read_text())["packages"]
    licences = (VENDOR / "LICENSES.txt").read_text()
    for package in manifest["packages"]:
        name, version = package["name"], package["version"]
        assert lock[f"node_modules/{name}"]["version"] == version
        assert f"{name} {version} ({package['licence']})" in licences


def test_every_import_and_style_sheet_is_a_file_of_the_page() -> None:
    for path in sources():
        text = path.read_text(encoding="utf-8")
        for target in IMPORTED.findall(text):
            assert (path.parent / target).is_file(), f"{path}: {target}"
    for name in re.findall(r'styles: "([^"]+)"', (STATIC / "assets/views.js").read_text()):
        assert (STATIC / f"assets/styles/views/{name}.css").is_file(), name


def test_modules_are_not_too_long() -> None:
    lengths = {path.name: len(path.read_text().splitlines()) for path in sources()}
    assert {name: lines for name, lines in lengths.items() if lines > 400} == {}
