"""Limits of untrusted text: its size, and control characters, which take over terminals."""

import re
import unicodedata
from typing import Final

# Control characters (C0, DEL, C1), line and paragraph separators, surrogates, and the controls of
# text direction (Unicode's UAX 9), which show text in another order than it is read in.
_HIDDEN: Final = (
    "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufff9-\ufffb"
)
_CONTROLS: Final = re.compile(f"[{_HIDDEN}]")
_CONTROLS_BUT_LAYOUT: Final = re.compile(f"(?![\t\n])[{_HIDDEN}]")
# Sequences that colour text, move the cursor or set a title: CSI, OSC, and sequences of two
# characters.
_TERMINAL_SEQUENCES: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)"
)
# A text with more invisible characters than this is cut off.
_SOURCE_FACTOR: Final = 4
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escape_controls(text: str) -> str:
    r"""Return text on one line, with control characters as `\n`, `\t`, `\x1b` or `\u202e`."""
    return _CONTROLS.sub(_escape, text)


def escape_json_controls(text: str) -> str:
    """Escape the control characters that JSON allows in texts, in a JSON document on one line."""
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def remove_controls(text: str) -> str:
    """Return text without control characters other than tabs and line breaks."""
    return _CONTROLS_BUT_LAYOUT.sub("", text)


def to_plain_line(text: str, limit: int) -> str:
    """Return text on one line, of at most `limit` characters, without characters that don't show.

    The removed characters are control and format characters, such as characters of text direction
    and the invisible letters of Unicode's tags, surrogates, and code points that are private or
    have no meaning.
    """
    # Unicode's categories of invisible characters begin with C. Line breaks become spaces first.
    words = " ".join(text[: _SOURCE_FACTOR * limit].split())
    shown = "".join(char for char in words if unicodedata.category(char)[0] != "C")
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def truncate_utf8(text: str, size_bytes: int) -> str:
    """Return a text, shortened to at most `size_bytes` in UTF-8."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= size_bytes:
        return text
    return encoded[: size_bytes - 3].decode(errors="ignore") + "…"


def remove_terminal_sequences(text: str) -> str:
    """Return text without sequences for terminals; `remove_controls` would keep a part of them."""
    return _TERMINAL_SEQUENCES.sub("", text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return _SHORT.get(match[0]) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
