"""`trunkline trust`: decides which folders may bring agents, tools and models by their settings."""

from pathlib import Path

from trunkline.cli.exits import ExitCode
from trunkline.cli.terminal import print_json, print_stderr, print_table
from trunkline.errors import ConfigurationError, InvalidArgumentError
from trunkline.settings import CONFIG_FILE
from trunkline.settings.settings_file import SettingsFile
from trunkline.settings.trust import TrustedFolder, TrustStore


def trust_folder(folder: Path, *, as_json: bool) -> ExitCode:
    """Trust a folder, and print the settings that apply by that.

    Raises:
        ConfigurationError: the folder has no settings file, it is not TOML, or the user's state
            can't be written.
    """
    file = SettingsFile.read(folder / CONFIG_FILE)
    _, names = file.reduce_to_harmless()
    trusted = TrustStore().add(folder, file.content)
    if as_json:
        print_json({"folder": str(trusted.folder), "settings": names})
    else:
        settings = ", ".join(names) or "all of its settings apply anyway"
        print_stderr(f"trusted {trusted.folder}, until its {CONFIG_FILE} changes: {settings}")
    return ExitCode.OK


def remove_folder(folder: Path, *, as_json: bool) -> ExitCode:
    """Withdraw the trust in a folder, which may be gone.

    Raises:
        InvalidArgumentError: it is not trusted.
        ConfigurationError: the user's state can't be written.
    """
    path = folder.resolve()
    if not TrustStore().remove(path):
        problem = f"{path} is not trusted; `trunkline trust --list`"
        raise InvalidArgumentError("FOLDER", problem)
    if as_json:
        print_json({"folder": str(path), "removed": True})
    else:
        print_stderr(f"{path} is no longer trusted")
    return ExitCode.OK


def list_folders(*, as_json: bool) -> ExitCode:
    """Print the trusted folders, and which of them have changed since.

    Raises:
        ConfigurationError: another user may write the user's state, or it can't be read.
    """
    folders = [(str(trusted.folder), _state(trusted)) for trusted in TrustStore().folders()]
    if as_json:
        print_json([{"folder": folder, "state": state} for folder, state in folders])
    else:
        print_table(("FOLDER", "STATE"), folders)
    return ExitCode.OK


def _state(trusted: TrustedFolder) -> str:
    try:
        file = SettingsFile.read(trusted.folder / CONFIG_FILE)
    except ConfigurationError:
        return "unreadable" if trusted.folder.exists() else "missing"
    return "trusted" if trusted.allows(file.content) else "changed"
