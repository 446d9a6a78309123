"""`trunkline new agent`: creates a project with an agent, its settings and tests."""

import keyword
from pathlib import Path
from typing import Final

from trunkline.cli.exits import ExitCode
from trunkline.cli.install_source import InstallSource
from trunkline.cli.terminal import print_json, print_stderr
from trunkline.errors import ConfigurationError
from trunkline.settings import CONFIG_FILE, ENV_PREFIX

# The example message on the new agent's card, which its test sends.
_EXAMPLE: Final = "Ada"
# The templates and the paths of the files made from them. KIND is `function` or `langgraph`.
_FILES: Final = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "gitignore": ".gitignore",
    "init.py": "{module}/__init__.py",
    "main.py": "{module}/__main__.py",
    "KIND.agent.py": "{module}/agent.py",
    "KIND.test_agent.py": "tests/test_agent.py",
}
# Names that collide with the supervisor or with packages that every project uses.
_RESERVED: Final = {"supervisor", "tests", "pytest", "hatchling"}


def create_project(name: str, folder: Path | None, *, with_graph: bool, as_json: bool) -> ExitCode:
    """Create a project in a folder, by default one with the agent's name; print its files.

    Raises:
        ConfigurationError: the name is invalid for an agent or a Python package, or in use; or the
            folder is not empty.
    """
    from importlib import metadata

    module = name.lower().replace("-", "_")
    _check_name(name, module)
    folder = folder or Path(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(str(folder), "exists and is not an empty folder")
    source = InstallSource.find()
    values = {
        "source": source.uv if source else "",
        "install": f"$ pip install {source.pip}\n" if source else "",
        "origin": _render_template("source.README.md", {"place": source.place}) if source else "",
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
    if source:
        contents["pyproject.toml"] += _render_template("source.pyproject.toml", values)
    agent_settings = "" if with_graph else _render_template("function.trunkline.toml", values)
    contents[CONFIG_FILE] = _render_template("trunkline.toml", values) + agent_settings
    for path, text in contents.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    _trust_project(folder)
    if as_json:
        print_json({"agent": name, "folder": str(folder), "files": sorted(contents)})
    else:
        for path in sorted(contents):
            print(folder / path)
        print_stderr(f"{folder / 'README.md'} says how to install, test and start it")
        if source and source.is_gone:
            print_stderr(
                f"trunkline was installed from {source.place}, which is gone: write its new place "
                "into README.md and pyproject.toml"
            )
    return ExitCode.OK


def _trust_project(folder: Path) -> None:
    """Trust the user's own project. A state folder that can't be written doesn't harm it."""
    from trunkline.settings.trust import TrustStore

    try:
        TrustStore().add(folder, (folder / CONFIG_FILE).read_bytes())
    except ConfigurationError as error:
        print_stderr(f"the folder is not trusted: {error}")


def _check_name(name: str, module: str) -> None:
    from importlib.util import find_spec

    from trunkline.messaging.addresses import check_agent_name

    source = f"agent {name!r}"
    check_agent_name(name, source)
    if not module.isidentifier() or name.startswith("_") or name.endswith("_"):
        problem = (
            "as the name of a package, it begins with a letter, ends with no `_`, and has no `.`"
        )
        raise ConfigurationError(source, problem)
    is_reserved = module in _RESERVED or find_spec(f"trunkline_agents.{module}")
    if keyword.iskeyword(module) or is_reserved or find_spec(module):
        raise ConfigurationError(source, "the name is taken; choose another")


def _render_template(name: str, values: dict[str, str]) -> str:
    from importlib import resources
    from string import Template

    template = resources.files("trunkline.cli") / "project_templates" / f"{name}.tmpl"
    return Template(template.read_text(encoding="utf-8")).substitute(values)
