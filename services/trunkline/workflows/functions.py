"""The Python functions of workflows: conditions and actions, by `module:name`."""

import asyncio
import importlib
import inspect
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from trunkline.errors import ConfigurationError
from trunkline.workflows.definition import Workflow
from trunkline.workflows.handlers import list_functions

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
) -> Any:  # noqa: ANN401  a JSON value
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
