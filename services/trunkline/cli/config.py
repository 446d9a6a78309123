"""`trunkline config`: shows the effective settings, checks files of settings, prints schemas."""

import asyncio
import json
from pathlib import Path
from typing import Any, Final

from trunkline.agents.plugins import load_plugins
from trunkline.cli.exits import ExitCode, print_error
from trunkline.cli.terminal import print_json, print_table
from trunkline.errors import ConfigurationError, InvalidArgumentError
from trunkline.logs import configure_logging
from trunkline.settings import CONFIG_FILE, Settings, load_settings
from trunkline.settings.effective import DEFAULT, EffectiveSetting, list_effective_settings
from trunkline.settings.schema import build_settings_schema
from trunkline.tools.config import build_config_schema, load_config

SCHEMAS: Final = ("settings", "mcp", "workflow")


def show_settings(*, only_set: bool, as_json: bool) -> ExitCode:
    """Print the settings that `up` takes here, with the source of each. Secrets are hidden.

    With `only_set`, settings with their default are left out.

    Raises:
        ConfigurationError: a setting is wrong.
    """
    settings = list_effective_settings()
    if only_set:
        settings = [setting for setting in settings if setting.source != DEFAULT]
    if as_json:
        print_json([_to_json(setting) for setting in settings])
    else:
        rows = [(setting.name, _render(setting.value), setting.source) for setting in settings]
        print_table(("SETTING", "VALUE", "SOURCE"), rows)
    return ExitCode.OK


def check_files(files: list[Path], *, as_json: bool) -> ExitCode:
    """Check files: those that end in `.json` have MCP servers, others settings.

    Without files, check the settings that `up` takes here. With settings, the agents, workflows and
    MCP servers that they name are loaded and checked as `up` does. An error names the file and the
    line or the key that is wrong. The other files are checked, too.
    """
    configure_logging(level="warning", log_format="plain")
    checked: list[str] = []
    code = ExitCode.OK
    # None: what `up` takes here.
    subjects: list[Path | None] = [*files] or [None]
    for file in subjects:
        try:
            checked += _check_current() if file is None else _check_file(file)
        except ConfigurationError as error:
            if file and not str(error).startswith(str(file)):
                error.add_note(f"in {file}")
            code = print_error(error)
    if as_json:
        print_json({"valid": checked})
    else:
        for name in checked:
            print(f"ok  {name}")
    return code


def print_schema(kind: str) -> ExitCode:
    """Print the JSON schema of `trunkline.toml`, of `mcpServers` files or of workflow files.

    Raises:
        InvalidArgumentError: there is no such schema.
    """
    if kind not in SCHEMAS:
        problem = f"{kind!r} is no schema; there are: {', '.join(SCHEMAS)}"
        raise InvalidArgumentError("KIND", problem)
    if kind == "mcp":
        schema = build_config_schema()
    elif kind == "workflow":
        from trunkline.workflows.definition import build_workflow_schema

        schema = build_workflow_schema()
    else:
        types = {
            name: plugin.settings_type
            for name, plugin in load_plugins().items()
            if plugin.settings_type is not None
        }
        schema = build_settings_schema(types)
    print(json.dumps(schema, indent=2))
    return ExitCode.OK


def _check_file(file: Path) -> list[str]:
    if file.suffix == ".json":
        load_config(file)
        return [str(file)]
    settings = load_settings(environment={"TRUNKLINE_CONFIG": str(file)})
    return [str(file), *_check_mesh(settings)]


def _check_current() -> list[str]:
    name = CONFIG_FILE if Path(CONFIG_FILE).exists() else "the environment"
    return [name, *_check_mesh(load_settings())]


def _check_mesh(settings: Settings) -> list[str]:
    # It loads all that a mesh consists of.
    from trunkline.mesh.all_in_one import check_mesh

    # Agents are built on an event loop, as in a mesh.
    asyncio.run(check_mesh(settings))
    return [str(settings.mcp_file)] if settings.mcp_file else []


def _to_json(setting: EffectiveSetting) -> dict[str, Any]:
    return {"setting": setting.name, "value": setting.value, "source": setting.source}


def _render(value: object) -> str:
    if value is None or value == "":
        return "-"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
