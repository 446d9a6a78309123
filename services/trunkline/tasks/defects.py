"""Describes the exceptions of agents' code to the people who look at their tasks."""

import traceback
from typing import Final

from trunkline.span_content import current_capture
from trunkline.tasks.agent_code import find_agent_code

_TEXT_CHARS: Final = 500


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
