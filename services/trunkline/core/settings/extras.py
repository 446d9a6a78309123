"""The extras of this package: which ones are installed, and how to install another."""

import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_PACKAGE: Final = "trunkline"
# A module that each extra installs.
_MODULES: Final[Mapping[str, str]] = {
    "speed": "uvloop",
    "openai": "langchain_openai",
    "anthropic": "langchain_anthropic",
    "google": "langchain_google_genai",
    "ollama": "langchain_ollama",
    "embeddings": "onnxruntime",
    "redis": "redis",
    "workflows": "cel",
    "graphql": "strawberry",
}
# uv writes it into the environment of a tool. Such an environment has no pip, and `uv tool upgrade`
# removes what `uv pip` adds to it.
_UV_RECEIPT: Final = "uv-receipt.toml"


def list_installed_extras() -> list[str]:
    """Return the extras whose packages are installed."""
    return [extra for extra, module in _MODULES.items() if find_spec(module) is not None]


def describe_install(*extras: str) -> str:
    """Return the command that adds extras to this environment, for the installer that made it."""
    return f"`{_find_installer()} '{_PACKAGE}[{','.join(extras)}]'`"


def _find_installer() -> str:
    # Slow to import, and only errors need it.
    from importlib import metadata

    if (Path(sys.prefix) / _UV_RECEIPT).exists():
        return "uv tool install"
    installer = metadata.distribution(_PACKAGE).read_text("INSTALLER") or ""
    return "uv pip install" if installer.strip() == "uv" else "pip install"
