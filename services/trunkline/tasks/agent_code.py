"""Finds places and describes exceptions in the code of agents, without a path of the machine."""

import sys
import sysconfig
import traceback
from collections.abc import Iterable, Set
from pathlib import Path
from types import FrameType
from typing import Final

from trunkline.observe.span_content import current_capture

# Bundled agents, which are in a package of their own, are agents as any other.
_OUR_PACKAGES: Final = frozenset({"trunkline", "trunkline_bridge"})
_TEXT_CHARS: Final = 500
_LIBRARIES: Final = tuple({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})


def find_agent_code(
    frames: Iterable[tuple[FrameType, int]], packages: Set[str] = frozenset()
) -> str:
    """Return `MODULE:LINE` of the first frame in code of an agent, or "" without such a frame.

    `frames` are pairs of a frame and its line. Code of an agent is in one of the top-level
    `packages`, or is neither ours nor part of a library.
    """
    for frame, line in frames:
        module = str(frame.f_globals.get("__name__", ""))
        package = module.partition(".")[0]
        is_library = (
            package in sys.stdlib_module_names and package != "__main__"
        ) or frame.f_code.co_filename.startswith(_LIBRARIES)
        if package in packages or not (package in _OUR_PACKAGES or is_library):
            name = Path(frame.f_code.co_filename).stem if module in ("", "__main__") else module
            return f"{name}:{line}"
    return ""


def describe_defect(error: BaseException) -> str:
    """Return the type of an exception and its place in the agent's code, in one line.

    The place is a module and a line, without a path of the machine. The text of the exception may
    hold secrets: it is included if content is captured, without what the capture redacts. Else the
    line says where the text is.
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
    frames = list(traceback.walk_tb(error.__traceback__))
    return find_agent_code(reversed(frames))
