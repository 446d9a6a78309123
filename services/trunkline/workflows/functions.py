"""The Python functions of workflows: conditions and actions, by `module:name`."""

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path

from trunkline.errors import ConfigurationError
from trunkline.workflows.definition import Workflow
from trunkline.workflows.handlers import list_functions
from trunkline.workflows.nodes import Function


def load_function(name: str) -> Function:
    """Import a function by `module:name`, from the Python path or the current folder.

    Raises:
        ConfigurationError: there is no such function.
    """
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


def load_functions(workflow: Workflow) -> Mapping[str, Function]:
    """Return the functions of a workflow, by `module:name`. Raises as `load_function`."""
    return {name: load_function(name) for name in list_functions(workflow)}
