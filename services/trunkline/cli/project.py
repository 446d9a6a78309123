"""Makes a project of an agent of one's own."""

import importlib.util
import keyword
import re
from importlib import metadata, resources
from pathlib import Path
from string import Template
from typing import Final

from trunkline.cli.terminal import print_json
from trunkline.errors import ConfigurationError
from trunkline.settings import ENV_PREFIX

_EXAMPLE: Final = "Ada"
# Where each file comes from and goes to; what begins with KIND. is for projects of that kind.
_FILES: Final = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "gitignore": ".gitignore",
    "init.py": "{module}/__init__.py",
    "main.py": "{module}/__main__.py",
    "KIND.agent.py": "{module}/agent.py",
    "KIND.test_agent.py": "tests/test_agent.py",
}
# What a project has or needs beside its own package, on this machine or not.
_NEEDED: Final = {"supervisor", "tests", "pytest", "hatchling"}


def create_project(name: str, folder: Path | None, *, with_graph: bool, as_json: bool) -> int:
    """Make the project in a folder, that called NAME here if none is given.

    Raises:
        ConfigurationError: the name is none for an agent and a package, or the folder isn't empty.
    """
    module = name.replace("-", "_")
    _check_name(name, module)
    folder = folder or Path(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(str(folder), "is there already, and not an empty folder")
    values = {
        "name": name,
        "module": module,
        "variable": f"{ENV_PREFIX}AGENT_{module.upper()}_",
        "example": _EXAMPLE,
        "version": metadata.version("trunkline"),
    }
    kind = "langgraph" if with_graph else "function"
    made = {
        path.format(module=module): _filled(source.replace("KIND", kind), values)
        for source, path in _FILES.items()
    }
    settings = "" if with_graph else _filled("function.trunkline.toml", values)
    made["trunkline.toml"] = _filled("trunkline.toml", values) + settings
    for path, text in made.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    if as_json:
        print_json({"agent": name, "folder": str(folder), "files": sorted(made)})
    else:
        for path in sorted(made):
            print(folder / path)
    return 0


def _check_name(name: str, module: str) -> None:
    where = f"agent {name!r}"
    # What packages may be called, and Python's modules, and agents.
    if not re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", name):
        problem = (
            "a name is made of lower-case letters, digits and hyphens, begins with a letter and "
            "does not end with a hyphen"
        )
        raise ConfigurationError(where, problem)
    is_ours = module in _NEEDED or importlib.util.find_spec(f"trunkline_agents.{module}")
    if keyword.iskeyword(module) or is_ours or importlib.util.find_spec(module):
        raise ConfigurationError(where, "the name is taken; choose another")


def _filled(name: str, values: dict[str, str]) -> str:
    template = resources.files("trunkline.cli") / "project_templates" / f"{name}.tmpl"
    return Template(template.read_text(encoding="utf-8")).substitute(values)
