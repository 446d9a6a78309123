"""The command that lets the settings of a folder apply to all commands."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from trunkline.cli.options import JsonOption, argument, flag
from trunkline.cli.terminal import print_json, print_stderr, print_table
from trunkline.errors import ConfigurationError, InvalidArgumentError

if TYPE_CHECKING:
    from trunkline.core.settings.trust import TrustedFolder


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
    from trunkline.core.settings import CONFIG_FILE
    from trunkline.core.settings.settings_file import SettingsFile
    from trunkline.core.settings.trust import TrustStore

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
    from trunkline.core.settings import CONFIG_FILE
    from trunkline.core.settings.settings_file import SettingsFile

    try:
        file = SettingsFile.read(trusted.folder / CONFIG_FILE)
    except ConfigurationError:
        return "unreadable" if trusted.folder.exists() else "missing"
    return "trusted" if trusted.allows(file.content) else "changed"
