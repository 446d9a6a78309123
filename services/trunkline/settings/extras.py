"""The extras of this package: what to run when one is missing."""

import sys
from importlib import metadata
from pathlib import Path
from typing import Final

_PACKAGE: Final = "trunkline"
# uv writes it into the environment of a tool.
_UV_RECEIPT: Final = "uv-receipt.toml"


def describe_install(*extras: str) -> str:
    """Return the command that adds extras to this environment, as its installer has it."""
    return f"`{_find_installer()} '{_PACKAGE}[{','.join(extras)}]'`"


def _find_installer() -> str:
    if (Path(sys.prefix) / _UV_RECEIPT).exists():
        return "uv tool install"
    installer = metadata.distribution(_PACKAGE).read_text("INSTALLER") or ""
    return "uv pip install" if installer.strip() == "uv" else "pip install"
