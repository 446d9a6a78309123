"""Rules for every file that ruff, mypy and import-linter cannot check."""

import ast
import gc
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[2]
# They load their names lazily: every process imports the first, and tests of agents without
# LangChain import the second.
LAZY_PACKAGES = {
    ROOT / "services/trunkline/__init__.py",
    ROOT / "services/trunkline/testing/__init__.py",
}
PACKAGES = ("trunkline", "trunkline_agents", "trunkline_bridge")
SOURCE_ROOTS = (ROOT / "services", ROOT / "bridge")
GENERATED = (ROOT / "services/trunkline/v1", ROOT / "services/trunkline/a2a")

EMPTY_NAMES = {"base", "common", "helpers", "manager", "misc", "util", "utils"}

# Home and work folders of a developer's machine, and hosts of package registries.
MACHINE_PATHS = re.compile(
    r"(?<![\w.])/(?:root|home/\w+|Users/\w+|work|workspace)/[\w.]"
    r"|/[.]pyenv/|https?://[^\s/]*(?:pypi|pythonhosted|npmjs|goproxy|registry)"
)
EVASIONS = re.compile(
    r"pytest\.skip\(|mark\.skip|mark\.xfail|pytest\.xfail\(|importorskip\(|mock\.patch|patch\.object\("
)

# A process sets the SDK and its exporters up once, in these modules. All other code uses the API.
TELEMETRY_EDGES = (
    "trunkline/observe/log_export",
    "trunkline/observe/metrics/",
    "trunkline/observe/otel_environment",
    "trunkline/observe/traces/",
    "trunkline/cli/",
    "trunkline/processes",
    "trunkline_agents/",
)
TELEMETRY_MACHINERY = ("opentelemetry.sdk", "opentelemetry.exporter")

HEAVY_LIBRARIES = (
    *("langgraph", "langchain_core", "mcp", "sympy", "opentelemetry.exporter"),
    *("jsonschema", "strawberry"),
)
LIGHT_PACKAGES = (
    *("cli", "core.settings", "errors", "journal", "mesh.client", "observe.telemetry", "tasks"),
)


def relative_name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def is_generated(path: Path) -> bool:
    return any(folder in path.parents for folder in GENERATED)


def modules() -> list[Path]:
    """Return the handwritten modules."""
    matches = [path for root in SOURCE_ROOTS for path in root.rglob("*.py")]
    return sorted(path for path in matches if not is_generated(path))


def modules_in_tests() -> list[Path]:
    return sorted((ROOT / "tests").rglob("*.py"))


@pytest.fixture(scope="module", autouse=True)
def syntax_trees() -> Iterator[None]:
    """Keep the syntax trees for the rules of this file.

    They are millions of objects: garbage collections on the way would take most of the time.
    """
    gc.disable()
    yield
    parse_module.cache_clear()
    gc.enable()


@cache
def parse_module(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def project_files() -> list[Path]:
    """Return every file that is committed, or that the next commit would add."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    paths = [ROOT / name for name in listing.stdout.split("\0") if name]
    return sorted(path for path in paths if path.is_file())


def imported_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_in_package(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def is_allowed_in_package(node: ast.stmt) -> bool:
    """Return True for the statements allowed in `__init__.py`: docstring, import, `__all__`."""
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


CHECKS = re.compile(r"\braises$|assert|check|expect|prove|run_state_machine_as_test")


def find_tests(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() if node.name.startswith("test_"):
                yield node


def has_assertion(test: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return True if a test asserts, expects an error, or calls a function named for checking."""
    return any(
        isinstance(node, ast.Assert)
        or (isinstance(node, ast.Call) and CHECKS.search(ast.unparse(node.func)))
        for node in ast.walk(test)
    )


def test_modules_have_no_import_cycles() -> None:
    # Lazy imports count too: they only hide a cycle.
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    assert find_cycles(imports) == []


def find_cycles(imports: dict[str, set[str]]) -> list[list[str]]:
    """Return groups of modules that import each other."""
    order = graphlib.TopologicalSorter(imports)
    try:
        order.prepare()
    except graphlib.CycleError as error:
        return [error.args[1]]
    return []


def test_no_module_has_an_empty_name() -> None:
    paths = [*modules(), *modules_in_tests()]
    empty = [
        relative_name(path)
        for path in paths
        if EMPTY_NAMES & {path.stem.lower(), path.parent.name.lower()}
    ]
    assert empty == []


def test_every_module_has_a_docstring() -> None:
    missing = [
        relative_name(path) for path in modules() if not ast.get_docstring(parse_module(path))
    ]
    assert missing == []


def test_package_init_files_only_import() -> None:
    init_files = [
        path for path in modules() if path.name == "__init__.py" and path not in LAZY_PACKAGES
    ]
    other_statements = [
        f"{relative_name(path)}:{node.lineno}"
        for path in init_files
        for node in parse_module(path).body
        if not is_allowed_in_package(node)
    ]
    assert other_statements == []


def test_no_file_names_a_machine_path_or_a_registry_host() -> None:
    matches = []
    for path in project_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        matches += [f"{relative_name(path)}: {match[0]}" for match in MACHINE_PATHS.finditer(text)]
    assert matches == []


def test_only_process_edges_set_telemetry_up() -> None:
    violations = [
        f"{relative_name(path)}: {name}"
        for path in modules()
        if not any(f"/{edge}" in relative_name(path) for edge in TELEMETRY_EDGES)
        for name in imported_names(parse_module(path))
        if any(is_in_package(name, package) for package in TELEMETRY_MACHINERY)
    ]
    assert violations == []


def test_every_test_asserts() -> None:
    violations = [
        f"{relative_name(path)}: {test.name}"
        for path in modules_in_tests()
        for test in find_tests(parse_module(path))
        if not has_assertion(test)
    ]
    assert violations == []


def private_attributes(tree: ast.Module) -> Iterator[ast.Attribute]:
    """Yield uses of private attributes of anything but `self`, `cls` and modules `os` and `sys`."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls" | "os" | "sys")):
                pass
            case ast.Attribute(attr=name) if name.startswith("_") and not name.startswith("__"):
                yield node


def test_the_harness_uses_no_private_state() -> None:
    private = [
        f"{relative_name(path)}:{node.lineno}: {ast.unparse(node)}"
        for path in sorted((ROOT / "tests/harness").rglob("*.py"))
        for node in private_attributes(parse_module(path))
    ]
    assert private == []


def test_no_test_is_skipped_or_patches_our_code() -> None:
    evasions = [
        f"{relative_name(path)}: {match[0]}"
        for path in modules_in_tests()
        for match in EVASIONS.finditer(path.read_text(encoding="utf-8"))
    ]
    assert evasions == []


def light_modules() -> list[str]:
    """Return the public package and the packages that every process loads."""
    return [
        "trunkline",
        # `trunkline.Client`, for programs that run no mesh.
        "trunkline.a2a_client.client",
        # Commands run a workflow's file on a mesh of its own, and load it first.
        "trunkline.workflows.loading",
        *(f"trunkline.{package}" for package in LIGHT_PACKAGES),
    ]


def test_importing_the_core_does_not_load_the_heavy_libraries() -> None:
    # A separate process, because other tests have imported everything into this one.
    probe = f"""
import importlib, sys
for module in {light_modules()!r}:
    importlib.import_module(module)
    print(*(f"{{module}}: {{name}}" for name in {HEAVY_LIBRARIES!r} if name in sys.modules))
"""
    loaded = subprocess.run(
        [sys.executable, "-c", probe], check=True, capture_output=True, text=True, cwd=ROOT
    )
    assert loaded.stdout.strip() == ""


ATTRIBUTE_NAME = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)+")
ATTRIBUTE_SETTERS = ("set_attribute", "set_attributes", "span", "start_span")


def literal_attributes(tree: ast.Module) -> Iterator[ast.Constant]:
    """Yield the names of attributes of spans that are no constants."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        if name not in ATTRIBUTE_SETTERS:
            continue
        values = [*node.args[: name.startswith("set_")], *(key.value for key in node.keywords)]
        for value in values:
            for key in value.keys if isinstance(value, ast.Dict) else [value]:
                match key:
                    case ast.Constant(value=str(text)) if ATTRIBUTE_NAME.fullmatch(text):
                        yield key


def test_attributes_are_set_by_constants_alone() -> None:
    literals = [
        f"{relative_name(path)}:{key.lineno} {key.value!r}"
        for path in modules()
        for key in literal_attributes(parse_module(path))
    ]
    assert literals == []
