"""Reads the workflow files of a mesh, and makes agents of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from trunkline.agents.authoring import FunctionAgent
from trunkline.errors import ConfigurationError
from trunkline.workflows.agent import from_workflow
from trunkline.workflows.plugins import list_plugin_names, load_workflow_plugin
from trunkline.workflows.validation import load_workflow

if TYPE_CHECKING:
    from trunkline.workflows.definition import Workflow

SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})


def load_workflow_agents(paths: Sequence[str | Path]) -> list[FunctionAgent]:
    """Return the agents of workflow files, of the files in folders, and of installed workflows.

    There is one for each name.

    Raises:
        ConfigurationError: a file is missing or not valid.
    """
    by_name: dict[str, list[Workflow]] = {}
    for file in list_workflow_files(paths):
        workflow = load_workflow(file)
        by_name.setdefault(workflow.name, []).append(workflow)
    return [from_workflow(*workflows) for workflows in by_name.values()]


def list_workflow_files(paths: Sequence[str | Path]) -> list[Path]:
    """Return the files of workflows that paths name, of folders, and of installed workflows.

    The name of an installed workflow stands for it; `./NAME` is a folder of this name.

    Raises:
        ConfigurationError: there is none in a folder or of a name, or an installed workflow can't
            be loaded.
    """
    files: list[Path] = []
    for each in paths:
        plugin = load_workflow_plugin(str(each))
        if plugin is not None:
            files.append(plugin.file)
            continue
        path = Path(each).expanduser()
        if path.is_dir():
            found = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
            if not found:
                problem = f"has no workflow files ({', '.join(sorted(SUFFIXES))})"
                raise ConfigurationError(str(path), problem)
            files += found
        elif path.exists():
            files.append(path)
        else:
            problem = "there is no such file or folder, and of the installed workflows only: "
            raise ConfigurationError(str(each), problem + ", ".join(list_plugin_names()))
    return files
