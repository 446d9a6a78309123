"""Finds the Python functions of workflows without running code.

Modules are searched on the Python path and, last, in the current folder, as for `--agent`. Their
source is read, and nothing is imported, so that a file from somewhere can be validated safely.
"""

import ast
import sys
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path

from trunkline.workflows.definition import Workflow
from trunkline.workflows.documents import suggest


def find_function_problem(name: str) -> str:
    """Return the problem of a function `module:name`; empty: it is there, as far as can be seen."""
    module, _, attribute = name.partition(":")
    if not module or not attribute.isidentifier():
        return f"{name!r} is no function; write module:name"
    root = module.partition(".")[0]
    if root in sys.builtin_module_names:
        return ""
    spec = _find_spec(module)
    if spec is None:
        return f"there is no module {module!r}; install it, or put it into the current folder"
    if not isinstance(spec.loader, SourceFileLoader):
        return ""
    names = _read_names(spec.loader.path)
    if names is None or attribute in names:
        return ""
    return f"module {module!r} has no {attribute!r}; {suggest(attribute, sorted(names))}"


def _find_spec(module: str) -> ModuleSpec | None:
    """Find a module without importing the packages around it."""
    path = [*(entry for entry in sys.path if entry), str(Path.cwd())]
    spec: ModuleSpec | None = None
    name = ""
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        spec = PathFinder.find_spec(name, path)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or ())
    return spec


@lru_cache(maxsize=256)
def _read_names(file: str) -> frozenset[str] | None:
    """Return the names that a module defines; None: only running it can tell."""
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom() if any(alias.name == "*" for alias in node.names):
                return None
            case ast.FunctionDef(name="__getattr__"):
                return None
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Import() | ast.ImportFrom():
                names |= {alias.asname or alias.name for alias in node.names}
            case ast.Name(ctx=ast.Store()):
                names.add(node.id)
    return frozenset(names)


def list_functions(workflow: Workflow) -> list[str]:
    """Return the functions that a workflow calls, as `module:name`."""
    handlers = {getattr(node, "handler", "") for node in workflow.nodes}
    return sorted(name for name in handlers if ":" in name)
