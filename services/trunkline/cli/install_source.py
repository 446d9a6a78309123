"""The place that trunkline was installed from, for projects that need it before it is on an index.

Installers record it in `direct_url.json` (PEP 610), unless they took it from an index.
"""

import json
import shlex
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit


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
        """Return the source of the installed trunkline; None if that is an index."""
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


def _to_table(**values: str | bool) -> str:
    """Return an inline table of TOML, whose basic strings are written as those of JSON."""
    entries = (
        f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()
    )
    return f"{{ {', '.join(entries)} }}"
