"""The Python functions of workflows: conditions and actions, by `module:name`.

Modules are searched on the Python path and, last, in the current folder, as for `--agent`. To check
a workflow, their source is read, and nothing is imported, so that a file from somewhere can be
validated safely.
"""

import ast
import asyncio
import importlib
import inspect
import json
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from typing import Any, TypeAlias

from trunkline.core.json_types import JsonValue
from trunkline.core.source_documents import suggest
from trunkline.errors import ConfigurationError
from trunkline.workflows.definition import Workflow

Function: TypeAlias = Callable[[Mapping[str, Any], Mapping[str, Any]], Any]
"""A condition or an action in Python: takes the last result and the variables of the run."""


class FunctionFailedError(ValueError):
    """A function raised, or returned what is not JSON."""


def load_functions(workflow: Workflow) -> Mapping[str, Function]:
    """Import the functions of a workflow; return them by `module:name`.

    They are searched on the Python path and in the current folder.

    Raises:
        ConfigurationError: there is no such function.
    """
    return {name: _load_function(name) for name in list_functions(workflow)}


def _load_function(name: str) -> Function:
    where = f"function {name}"
    module_name, _, attribute = name.partition(":")
    folder = str(Path.cwd())
    if folder not in sys.path:
        # Last, so that its files replace no installed module.
        sys.path.append(folder)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise ConfigurationError(where, f"can't import it: {error!r}") from error
    function = getattr(module, attribute, None)
    if not callable(function):
        raise ConfigurationError(where, f"module {module_name} has no function {attribute}")
    loaded: Function = function
    return loaded


async def call_function(
    function: Function, last: Mapping[str, Any], context: Mapping[str, Any]
) -> JsonValue:
    """Call a function, on a thread unless it is asynchronous; return its JSON value.

    Raises:
        FunctionFailedError: it raised, or its result is not JSON.
    """
    name = getattr(function, "__qualname__", "function")
    try:
        if inspect.iscoroutinefunction(function):
            value = await function(last, context)
        else:
            value = await asyncio.to_thread(function, last, context)
    except Exception as error:
        raise FunctionFailedError(f"{name}: {type(error).__name__}: {error}") from error
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError) as error:
        raise FunctionFailedError(f"{name}: its result is not JSON: {error}") from None


def find_function_problem(name: str) -> str:
    """Return the problem of a function `module:name`, or "" if the function seems to exist."""
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
    """Return the names that a module defines, or None if only running it can tell."""
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
