"""The commands for the folder of a project: its creation, and trust in its settings."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trunkline.cli.declaration import command
from trunkline.cli.options import JsonOption, argument, flag
from trunkline.cli.terminal import print_json, print_stderr, print_table
from trunkline.errors import ConfigurationError, InvalidArgumentError

if TYPE_CHECKING:
    from trunkline.settings.trust import TrustedFolder

new = typer.Typer(help="Create a project to begin with.", rich_markup_mode=None)


@new.callback()
def _group() -> None:
    """Create a project to begin with."""


@command(new, "agent")
def create_project(
    name: Annotated[str, argument("NAME", "The agent's name.")],
    folder: Annotated[Path | None, argument("DIR", "The folder to create. [NAME]")] = None,
    *,
    langgraph: Annotated[bool, flag("Use a LangGraph graph.", "--langgraph")] = False,
    json: JsonOption = False,
) -> None:
    """Create a project for an agent: code, settings, tests, and how to run them."""
    from trunkline.cli.project import InstallSource, check_name, render_project, trust_project

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


def trust(
    folder: Annotated[Path | None, argument("FOLDER", "The folder. [the current one]")] = None,
    *,
    show_all: Annotated[bool, flag("List the trusted folders.", "--list")] = False,
    remove: Annotated[bool, flag("Withdraw the trust.", "--remove")] = False,
    json: JsonOption = False,
) -> None:
    """Let all commands take agents, tools and models from a folder's trunkline.toml.

    Without trust, only `up` and `serve` do. Trust ends when the file changes.
    """
    from trunkline.settings import CONFIG_FILE
    from trunkline.settings.settings_file import SettingsFile
    from trunkline.settings.trust import TrustStore

    store = TrustStore()
    if show_all:
        folders = [(str(trusted.folder), _describe_trust(trusted)) for trusted in store.folders()]
        if json:
            print_json([{"folder": path, "state": state} for path, state in folders])
        else:
            print_table(("FOLDER", "STATE"), folders)
        return
    folder = folder or Path()
    if remove:
        path = folder.resolve()
        if not store.remove(path):
            problem = f"{path} is not trusted; `trunkline trust --list`"
            raise InvalidArgumentError("FOLDER", problem)
        if json:
            print_json({"folder": str(path), "removed": True})
        else:
            print_stderr(f"{path} is no longer trusted")
        return
    file = SettingsFile.read(folder / CONFIG_FILE)
    _, names = file.reduce_to_harmless()
    trusted = store.add(folder, file.content)
    if json:
        print_json({"folder": str(trusted.folder), "settings": names})
    else:
        settings = ", ".join(names) or "all of its settings apply anyway"
        print_stderr(f"trusted {trusted.folder}, until its {CONFIG_FILE} changes: {settings}")


def _describe_trust(trusted: "TrustedFolder") -> str:
    from trunkline.settings import CONFIG_FILE
    from trunkline.settings.settings_file import SettingsFile

    try:
        file = SettingsFile.read(trusted.folder / CONFIG_FILE)
    except ConfigurationError:
        return "unreadable" if trusted.folder.exists() else "missing"
    return "trusted" if trusted.allows(file.content) else "changed"
