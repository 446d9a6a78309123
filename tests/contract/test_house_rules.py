"""What every file owes its readers, beyond what ruff, mypy and import-linter can see."""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# They load what is asked for: every process comes through the first, and tests of agents that
# know nothing of LangChain through the second.
PUBLIC_DOORS = {
    ROOT / "services/trunkline/__init__.py",
    ROOT / "services/trunkline/testing/__init__.py",
}
SOURCE_ROOTS = (ROOT / "services", ROOT / "bridge")
GENERATED = (ROOT / "services/trunkline/v1", ROOT / "services/trunkline/a2a")

MODULE_LINES = 500
TEST_MODULE_LINES = 700
PROTO_LINES = 400
MODULES_IN_A_FOLDER = 15
# Path from the root -> why it may be longer. The list only shrinks.
LONGER_FOR_A_REASON: dict[str, str] = {}

NAMES_THAT_SAY_NOTHING = {"base", "common", "helpers", "manager", "misc", "util", "utils"}

# Homes and work folders of whoever wrote a file, and hosts that packages come from.
PRIVATE_PLACES = re.compile(
    r"(?<![\w.])/(?:root|home/\w+|Users/\w+|work|workspace)/[\w.]"
    r"|/[.]pyenv/|https?://[^\s/]*(?:pypi|pythonhosted|npmjs|goproxy|registry)"
)
EVASIONS = re.compile(
    r"pytest\.skip\(|mark\.skip|mark\.xfail|pytest\.xfail\(|importorskip\(|mock\.patch|patch\.object\("
)

# The SDK and exporters are set up where a process begins, once; all other code speaks to the API.
TELEMETRY_EDGES = (
    "trunkline/traces/",
    "trunkline/cli/",
    "trunkline/mesh",
    "trunkline_agents/mcp_server.py",
)
TELEMETRY_MACHINERY = ("opentelemetry.sdk", "opentelemetry.exporter")

HEAVY = ("langgraph", "langchain_core", "mcp", "sympy", "opentelemetry.exporter")
LIGHT_ROOMS = ("cli", "client", "errors", "journal", "settings", "tasks", "telemetry")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def is_generated(path: Path) -> bool:
    return any(folder in path.parents for folder in GENERATED)


def modules() -> list[Path]:
    """Our handwritten modules."""
    found = [path for root in SOURCE_ROOTS for path in root.rglob("*.py")]
    return sorted(path for path in found if not is_generated(path))


def modules_of_tests() -> list[Path]:
    return sorted((ROOT / "tests").rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def project_files() -> list[Path]:
    """Every file that is committed, or would be by the next commit."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    paths = [ROOT / name for name in listing.stdout.split("\0") if name]
    return sorted(path for path in paths if path.is_file())


def too_long(paths: list[Path], limit: int) -> dict[str, int]:
    lengths = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
    return {
        name: lines
        for name, lines in lengths.items()
        if lines > limit and name not in LONGER_FOR_A_REASON
    }


def imported_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_of(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def belongs_in_a_door(node: ast.stmt) -> bool:
    """Whether a statement may stand in an `__init__.py`: a docstring, an import, `__all__`."""
    match node:
        case ast.Import() | ast.ImportFrom():
            return True
        case ast.Expr(value=ast.Constant(value=str())):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
        case ast.AnnAssign(target=ast.Name(id="__all__")):
            return True
    return False


def cases_in(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() if node.name.startswith("test_"):
                yield node


def claims_something(test: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a test asserts, expects an error, or hands over to a function named for checking."""
    for node in ast.walk(test):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if re.search(r"\braises$|assert|check|expect|prove|run_state_machine_as_test", called):
                return True
    return False


def test_modules_fit_in_one_reading() -> None:
    assert too_long(modules(), MODULE_LINES) == {}
    assert too_long(modules_of_tests(), TEST_MODULE_LINES) == {}


def test_contract_files_fit_in_one_reading() -> None:
    assert too_long(sorted((ROOT / "proto").rglob("*.proto")), PROTO_LINES) == {}


def test_folders_hold_few_enough_modules_to_be_known_by_heart() -> None:
    counts = Counter(name_of(path.parent) for path in modules())
    assert {folder: n for folder, n in counts.items() if n > MODULES_IN_A_FOLDER} == {}


def test_no_module_has_a_name_that_says_nothing() -> None:
    paths = [*modules(), *modules_of_tests()]
    empty = [
        name_of(path)
        for path in paths
        if NAMES_THAT_SAY_NOTHING & {path.stem.lower(), path.parent.name.lower()}
    ]
    assert empty == []


def test_every_module_says_what_it_is_answerable_for() -> None:
    silent = [name_of(path) for path in modules() if not ast.get_docstring(tree_of(path))]
    assert silent == []


def test_packages_open_with_imports_and_nothing_else() -> None:
    doors = [path for path in modules() if path.name == "__init__.py" and path not in PUBLIC_DOORS]
    furnished = [
        f"{name_of(path)}:{node.lineno}"
        for path in doors
        for node in tree_of(path).body
        if not belongs_in_a_door(node)
    ]
    assert furnished == []


def test_no_file_names_a_place_on_someones_machine_or_a_registry_host() -> None:
    found = []
    for path in project_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{name_of(path)}: {match[0]}" for match in PRIVATE_PLACES.finditer(text)]
    assert found == []


def test_only_the_edges_of_a_process_set_telemetry_up() -> None:
    strays = [
        f"{name_of(path)}: {name}"
        for path in modules()
        if not any(f"/{edge}" in name_of(path) for edge in TELEMETRY_EDGES)
        for name in imported_names(tree_of(path))
        if any(is_of(name, package) for package in TELEMETRY_MACHINERY)
    ]
    assert strays == []


def test_every_test_claims_something() -> None:
    idle = [
        f"{name_of(path)}: {test.name}"
        for path in modules_of_tests()
        for test in cases_in(tree_of(path))
        if not claims_something(test)
    ]
    assert idle == []


def test_no_test_is_skipped_excused_or_run_against_a_patched_part() -> None:
    evasions = [
        f"{name_of(path)}: {match[0]}"
        for path in modules_of_tests()
        for match in EVASIONS.finditer(path.read_text(encoding="utf-8"))
    ]
    assert evasions == []


def light_modules() -> list[str]:
    """The public door and the rooms of the core, as far as they are built."""
    home = ROOT / "services/trunkline"
    rooms = {path.stem for path in home.iterdir()}
    return ["trunkline", *(f"trunkline.{room}" for room in LIGHT_ROOMS if room in rooms)]


@pytest.mark.parametrize("module", light_modules())
def test_importing_the_core_does_not_load_the_heavy_libraries(module: str) -> None:
    # A process of its own: in this one, other tests have imported everything.
    probe = f"import sys, {module}; print([name for name in {HEAVY!r} if name in sys.modules])"
    loaded = subprocess.run(
        [sys.executable, "-c", probe], check=True, capture_output=True, text=True, cwd=ROOT
    )
    assert loaded.stdout.strip() == "[]"
