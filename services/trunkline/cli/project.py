"""The command `trunkline new agent`: creates a project with an agent, its settings and tests."""

import keyword
import re
from pathlib import Path
from typing import Annotated, Final

import typer

from trunkline.cli.exits import finish
from trunkline.cli.options import JsonOption
from trunkline.cli.terminal import print_json
from trunkline.errors import ConfigurationError
from trunkline.settings import ENV_PREFIX

_EXAMPLE: Final = "Ada"
# Templates and their targets. KIND is replaced by the kind of the project.
_FILES: Final = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "gitignore": ".gitignore",
    "init.py": "{module}/__init__.py",
    "main.py": "{module}/__main__.py",
    "KIND.agent.py": "{module}/agent.py",
    "KIND.test_agent.py": "tests/test_agent.py",
}
# Names that a project already uses, whether installed here or not.
_RESERVED: Final = {"supervisor", "tests", "pytest", "hatchling"}


new = typer.Typer(help="Create a project to begin with.", rich_markup_mode=None)


@new.callback()
def _group() -> None:
    """Create a project to begin with."""


@new.command("agent")
def new_agent(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The agent's name.", show_default=False)
    ],
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="The folder to create. [NAME]")
    ] = None,
    *,
    langgraph: Annotated[bool, typer.Option("--langgraph", help="Use a LangGraph graph.")] = False,
    json: JsonOption = False,
) -> None:
    """Create a project for an agent: code, settings, tests, and how to run them."""
    finish(lambda: create_project(name, folder, with_graph=langgraph, as_json=json))


def create_project(name: str, folder: Path | None, *, with_graph: bool, as_json: bool) -> int:
    """Create the project in a folder, by default one called NAME.

    Raises:
        ConfigurationError: the name does not suit an agent and a Python package, or the folder is
            not empty.
    """
    from importlib import metadata

    module = name.replace("-", "_")
    _check_name(name, module)
    folder = folder or Path(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(str(folder), "exists and is not an empty folder")
    values = {
        "name": name,
        "module": module,
        "variable": f"{ENV_PREFIX}AGENT_{module.upper()}_",
        "example": _EXAMPLE,
        "version": metadata.version("trunkline"),
    }
    kind = "langgraph" if with_graph else "function"
    contents = {
        path.format(module=module): _render_template(source.replace("KIND", kind), values)
        for source, path in _FILES.items()
    }
    settings = "" if with_graph else _render_template("function.trunkline.toml", values)
    contents["trunkline.toml"] = _render_template("trunkline.toml", values) + settings
    for path, text in contents.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    if as_json:
        print_json({"agent": name, "folder": str(folder), "files": sorted(contents)})
    else:
        for path in sorted(contents):
            print(folder / path)
    return 0


def _check_name(name: str, module: str) -> None:
    from importlib.util import find_spec

    where = f"agent {name!r}"
    # The name must be valid for an agent, a package and, with underscores, a Python module.
    if not re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", name):
        problem = (
            "a name is made of lower-case letters, digits and hyphens, begins with a letter and "
            "does not end with a hyphen"
        )
        raise ConfigurationError(where, problem)
    is_reserved = module in _RESERVED or find_spec(f"trunkline_agents.{module}")
    if keyword.iskeyword(module) or is_reserved or find_spec(module):
        raise ConfigurationError(where, "the name is taken; choose another")


def _render_template(name: str, values: dict[str, str]) -> str:
    from importlib import resources
    from string import Template

    template = resources.files("trunkline.cli") / "project_templates" / f"{name}.tmpl"
    return Template(template.read_text(encoding="utf-8")).substitute(values)
