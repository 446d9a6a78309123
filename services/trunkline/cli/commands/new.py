"""The command that creates a project with an agent, its settings and tests, from templates.

A project needs the place that trunkline was installed from, before trunkline is on an index.
Installers record it in `direct_url.json` (PEP 610), unless they took it from an index.
"""

import json
import keyword
import shlex
from dataclasses import dataclass
from importlib import metadata, resources
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Annotated, Any, Final, Self
from urllib.parse import unquote, urlsplit

import typer

from trunkline.cli.declaration import command
from trunkline.cli.options import JsonOption, argument, flag
from trunkline.cli.terminal import print_json, print_stderr
from trunkline.core.settings import CONFIG_FILE, ENV_PREFIX
from trunkline.core.settings.trust import TrustStore
from trunkline.errors import ConfigurationError
from trunkline.messages.addresses import check_agent_name

group = typer.Typer()

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


@dataclass(frozen=True, slots=True)
class InstallSource:
    """A wheel, a folder or a repository with trunkline."""

    uv: str
    """Its entry in the table `[tool.uv.sources]`, as TOML."""
    pip: str
    """The arguments of `pip install`, quoted for a shell."""
    place: str
    """A path, or a URL."""
    is_gone: bool = False
    """True for a file or a folder that is no longer there."""

    @classmethod
    def find(cls) -> Self | None:
        """Return the source of the installed trunkline, or None if the source is an index."""
        text = metadata.distribution("trunkline").read_text("direct_url.json")
        return cls.parse(json.loads(text)) if text else None

    @classmethod
    def parse(cls, direct_url: dict[str, Any]) -> Self:
        """Return the source that a `direct_url.json` describes."""
        url = direct_url["url"]
        if vcs := direct_url.get("vcs_info"):
            system, revision = vcs["vcs"], vcs["commit_id"]
            table = _to_table(**{system: url, "rev": revision})
            return cls(table, shlex.quote(f"{system}+{url}@{revision}"), url)
        parts = urlsplit(url)
        if parts.scheme != "file":
            return cls(_to_table(url=url), shlex.quote(url), url)
        path = unquote(parts.path)
        if direct_url.get("dir_info", {}).get("editable"):
            table, arguments = _to_table(path=path, editable=True), f"-e {shlex.quote(path)}"
        else:
            table, arguments = _to_table(path=path), shlex.quote(path)
        return cls(table, arguments, path, is_gone=not Path(path).exists())


@command(group, "agent")
def create_project(
    name: Annotated[str, argument("NAME", "The agent's name.")],
    folder: Annotated[Path | None, argument("DIR", "The folder to create. [NAME]")] = None,
    *,
    langgraph: Annotated[bool, flag("Use a LangGraph graph.", "--langgraph")] = False,
    json: JsonOption = False,
) -> None:
    """Create a project for an agent: code, settings, tests, and how to run them."""
    module = name.lower().replace("-", "_")
    check_name(name, module)
    folder = folder or Path(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(str(folder), "exists and is not an empty folder")
    source = InstallSource.find()
    contents = render_project(name, module, source, langgraph=langgraph)
    for path, text in contents.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    trust_project(folder)
    if json:
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


def _to_table(**values: str | bool) -> str:
    """Return an inline table of TOML, whose basic strings are written like strings of JSON."""
    entries = (
        f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()
    )
    return f"{{ {', '.join(entries)} }}"


def render_project(
    name: str, module: str, source: InstallSource | None, *, langgraph: bool
) -> dict[str, str]:
    """Return the texts of a project's files by their paths. `module` is the name of its package."""
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
    kind = "langgraph" if langgraph else "function"
    contents = {
        path.format(module=module): _render_template(template.replace("KIND", kind), values)
        for template, path in _FILES.items()
    }
    if source:
        contents["pyproject.toml"] += _render_template("source.pyproject.toml", values)
    agent_settings = "" if langgraph else _render_template("function.trunkline.toml", values)
    contents[CONFIG_FILE] = _render_template("trunkline.toml", values) + agent_settings
    return contents


def trust_project(folder: Path) -> None:
    """Trust the user's own project. A state folder that can't be written doesn't harm it."""
    try:
        TrustStore().add(folder, (folder / CONFIG_FILE).read_bytes())
    except ConfigurationError as error:
        print_stderr(f"the folder is not trusted: {error}")


def check_name(name: str, module: str) -> None:
    """Check the name of an agent. ConfigurationError: it is invalid, or in use."""
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

    template = resources.files("trunkline.cli") / "project_templates" / f"{name}.tmpl"
    return Template(template.read_text(encoding="utf-8")).substitute(values)
