"""Standard streams of a command: payload to stdout, everything else to stderr, without secrets."""

import json
import re
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TextIO
from urllib.parse import quote, quote_plus

from trunkline.core.json_types import JsonValue
from trunkline.core.printable import escape_json_controls, remove_controls

_REDACTED: Final = "[redacted]"
_TOKEN_MEMBER: Final = re.compile(
    r'("(?:access_token|refresh_token|id_token|device_code|client_secret)"\s*:\s*")[^"]*'
)
# Shorter values would replace ordinary words, and are no credentials.
_SHORTEST_SECRET: Final = 4
_SECRET_HEADERS: Final = frozenset(
    {"authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key"}
)


@dataclass(slots=True)
class Console:
    """The streams and surroundings of one invocation."""

    stdin: TextIO
    stdout: TextIO
    stderr: TextIO
    environment: Mapping[str, str] = field(repr=False)
    folder: Path
    """The working directory."""
    secrets: set[str] = field(default_factory=set, repr=False)
    """Texts that diagnostics replace."""
    secret_headers: set[str] = field(default_factory=set)
    """Lower-case names of headers whose values diagnostics replace."""
    is_debug: bool = False

    @classmethod
    def standard(cls) -> "Console":
        """Return the console of this process."""
        import os

        return cls(sys.stdin, sys.stdout, sys.stderr, os.environ, Path.cwd())

    def add_secrets(self, values: Iterable[str]) -> None:
        """Keep these texts out of diagnostics, also as they stand in URLs and forms."""
        for value in values:
            if len(value) >= _SHORTEST_SECRET:
                self.secrets |= {value, quote(value, safe=""), quote_plus(value)}

    def write_json(self, value: object) -> None:
        """Write one JSON document on one line of stdout."""
        line = escape_json_controls(json.dumps(value, ensure_ascii=False))
        self._write(self.stdout, f"{line}\n")

    def write_text(self, text: str) -> None:
        """Write text to stdout, without control characters."""
        self._write(self.stdout, remove_controls(text))

    def warn(self, text: str) -> None:
        """Write a line of diagnostics to stderr."""
        self._write(self.stderr, remove_controls(self.redact(text)) + "\n")

    def redact(self, text: str) -> str:
        """Return text without known secrets."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            text = text.replace(secret, _REDACTED)
        return text

    def _write(self, stream: TextIO, text: str) -> None:
        encoding = stream.encoding or "utf-8"
        stream.write(text.encode(encoding, "replace").decode(encoding))
        stream.flush()


class DebugLog:
    """Logs the wire to stderr. It is a WireObserver. Credentials are always replaced."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._start = time.monotonic()

    def note(self, text: str) -> None:
        """Log a step of the command itself."""
        elapsed_ms = (time.monotonic() - self._start) * 1000
        self._console.warn(f"debug {elapsed_ms:8.1f} ms  {text}")

    def request(self, target: str, headers: Mapping[str, str], body: bytes) -> None:
        """See WireObserver."""
        self.note(f"--> {target}")
        self._log_headers(headers)
        if body:
            self.data(body)

    def response(self, status: str, headers: Mapping[str, str]) -> None:
        """See WireObserver."""
        self.note(f"<-- {status}")
        self._log_headers(headers)

    def data(self, content: bytes) -> None:
        """See WireObserver."""
        text = content.decode("utf-8", "replace")
        # Tokens in an answer are not known as secrets before it is parsed.
        shown = _TOKEN_MEMBER.sub(rf"\1{_REDACTED}", text)
        self.note(f"    {shown}")

    def _log_headers(self, headers: Mapping[str, str]) -> None:
        hidden = _SECRET_HEADERS | self._console.secret_headers
        for name, value in headers.items():
            self.note(f"    {name}: {_REDACTED if name.lower() in hidden else value}")


def pretty(value: JsonValue) -> str:
    """Return a JSON value on several lines."""
    return json.dumps(value, ensure_ascii=False, indent=2)
