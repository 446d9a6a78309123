"""Describes the exceptions of agents' code to the people who look at their tasks."""

import sysconfig
import traceback
from pathlib import Path
from types import FrameType
from typing import Final

from trunkline.span_content import current_capture

_TEXT_CHARS: Final = 500
_OWN_PACKAGES: Final = frozenset({"trunkline", "trunkline_agents", "trunkline_bridge"})
_LIBRARIES: Final = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)


def describe_defect(error: BaseException) -> str:
    """Return the type of an exception and its place in the agent's code, in one line.

    The place is a module and a line, without a path of the machine. The text of the exception may
    hold secrets: it is included if content is captured, without what the capture redacts. Else the
    line says where it is.
    """
    place = _find_place(error)
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
        # An exception that was never raised has no traceback.
        place = _find_place(error) or place
    capture = current_capture()
    text = capture.clean(" ".join(str(error).split()), _TEXT_CHARS) if capture else ""
    line = (
        type(error).__name__ + (f": {text}" if text else "") + (f" (at {place})" if place else "")
    )
    return line if capture else f"{line}; its host's log has the text"


def _find_place(error: BaseException) -> str:
    """Return `MODULE:LINE` of the innermost frame in the agent's code; "" without a traceback."""
    frames = list(traceback.walk_tb(error.__traceback__))
    foreign = [each for each in frames if _package(each[0]) not in _OWN_PACKAGES]
    own_code = [each for each in foreign if not each[0].f_code.co_filename.startswith(_LIBRARIES)]
    for candidates in (own_code, foreign, frames):
        if candidates:
            frame, line = candidates[-1]
            return f"{_module(frame)}:{line}"
    return ""


def _package(frame: FrameType) -> str:
    return _module(frame).partition(".")[0]


def _module(frame: FrameType) -> str:
    name = str(frame.f_globals.get("__name__", ""))
    return Path(frame.f_code.co_filename).stem if name in ("", "__main__") else name
