"""Finds the place in an agent's code where something happened, without a path of the machine."""

import sys
import sysconfig
from collections.abc import Iterable, Set
from pathlib import Path
from types import FrameType
from typing import Final

# Bundled agents, which are in a package of their own, are agents as any other.
_OUR_PACKAGES: Final = frozenset({"trunkline", "trunkline_bridge"})
_LIBRARIES: Final = tuple({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})


def find_agent_code(
    frames: Iterable[tuple[FrameType, int]], packages: Set[str] = frozenset()
) -> str:
    """Return `MODULE:LINE` of the first frame in code of an agent; "" if there is none.

    `frames` are pairs of a frame and its line. Code of an agent is in one of the top-level
    `packages`, or is neither ours nor that of a library.
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
