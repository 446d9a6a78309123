"""The commands that show and check settings."""

from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trunkline.cli.declaration import command
from trunkline.cli.exits import ExitCode, print_error
from trunkline.cli.options import JsonOption, argument, flag
from trunkline.cli.terminal import print_json, print_list
from trunkline.errors import ConfigurationError, InvalidArgumentError

if TYPE_CHECKING:
    from trunkline.core.settings import Settings

SCHEMAS = ("settings", "mcp", "workflow")

group = typer.Typer()


@command(group, "show")
def show_settings(
    *,
    only_set: Annotated[
        bool, flag("Only settings that do not have their default.", "--set")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Show the settings that `up` takes in this folder, and where each comes from."""
    from trunkline.core.settings.effective import DEFAULT, list_effective_settings

    settings = list_effective_settings()
    if only_set:
        settings = [setting for setting in settings if setting.source != DEFAULT]
    print_list(
        settings,
        {
            "SETTING": lambda setting: setting.name,
            "VALUE": lambda setting: _render(setting.value),
            "SOURCE": lambda setting: setting.source,
        },
        lambda each: {"setting": each.name, "value": each.value, "source": each.source},
        as_json=json,
    )


@command(group, "check")
def check_files(
    files: Annotated[
        list[Path] | None,
        argument(
            "FILE", "Settings, or MCP servers if it ends in .json. [the files that `up` takes here]"
        ),
    ] = None,
    *,
    json: JsonOption = False,
) -> ExitCode:
    """Check files of settings, with the agents they name, and MCP servers. Nothing is started."""
    from trunkline.observe.logs import configure_logging

    configure_logging(level="warning", log_format="plain")
    checked: list[str] = []
    code = ExitCode.OK
    # None stands for what `up` takes here.
    subjects: list[Path | None] = [*(files or ())] or [None]
    for file in subjects:
        try:
            checked += _check_current() if file is None else _check_file(file)
        except ConfigurationError as error:
            if file and not str(error).startswith(str(file)):
                error.add_note(f"in {file}")
            code = print_error(error)
    if json:
        print_json({"valid": checked})
    else:
        for name in checked:
            print(f"ok  {name}")
    return code


@command(group, "schema")
def print_schema(
    kind: Annotated[
        str,
        argument(
            "KIND",
            "settings: trunkline.toml; mcp: mcpServers files; workflow: workflow files.",
            autocompletion=lambda: list(SCHEMAS),
            show_default=True,
        ),
    ] = "settings",
) -> None:
    """Print a JSON schema, by which editors complete and check files."""
    if kind not in SCHEMAS:
        problem = f"{kind!r} is no schema; there are: {', '.join(SCHEMAS)}"
        raise InvalidArgumentError("KIND", problem)
    if kind == "mcp":
        from trunkline.tools.config import build_config_schema

        schema = build_config_schema()
    elif kind == "workflow":
        from trunkline.workflows.definition import build_workflow_schema

        schema = build_workflow_schema()
    else:
        from trunkline.agents.plugins import load_plugins
        from trunkline.core.settings.schema import build_settings_schema

        types = {
            name: plugin.settings_type
            for name, plugin in load_plugins().items()
            if plugin.settings_type is not None
        }
        schema = build_settings_schema(types)
    print(dumps(schema, indent=2))


def _check_file(file: Path) -> list[str]:
    from trunkline.core.settings import load_settings
    from trunkline.tools.config import load_config

    if file.suffix == ".json":
        load_config(file)
        return [str(file)]
    settings = load_settings(environment={"TRUNKLINE_CONFIG": str(file)})
    return [str(file), *_check_mesh(settings)]


def _check_current() -> list[str]:
    from trunkline.core.settings import CONFIG_FILE, load_settings

    name = CONFIG_FILE if Path(CONFIG_FILE).exists() else "the environment"
    return [name, *_check_mesh(load_settings())]


def _check_mesh(settings: "Settings") -> list[str]:
    import asyncio

    # It loads all that a mesh consists of.
    from trunkline.processes.all_in_one import check_mesh

    # Agents are built on an event loop, as in a mesh.
    asyncio.run(check_mesh(settings))
    return [str(settings.mcp_file)] if settings.mcp_file else []


def _render(value: object) -> str:
    if value is None or value == "":
        return "-"
    return value if isinstance(value, str) else dumps(value, ensure_ascii=False)
