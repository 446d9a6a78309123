"""A wall clock that jumps: in a process with this on its path, it adds the seconds in a file.

The monotonic clock is unchanged, because it never jumps on any system. gRPC's Python part is
unchanged too: it passes times to its C part, which reads the machine's own clock.
"""

import datetime
import os
import sys
import time
from pathlib import Path

_FILE = Path(os.environ["CLOCK_OFFSET_FILE"])
_time, _time_ns = time.time, time.time_ns  # noqa: TID251  the very thing
_NS = 1_000_000_000


def _offset_s() -> int:
    return int(_FILE.read_text() or "0")


def _jumping_time() -> float:
    caller: str = sys._getframe(1).f_globals.get("__name__", "")
    return _time() if caller.startswith("grpc") else _time() + _offset_s()


class _JumpingDatetime(datetime.datetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> "_JumpingDatetime":
        return cls.fromtimestamp(_jumping_time(), tz)

    @classmethod
    def utcnow(cls) -> "_JumpingDatetime":
        return cls.fromtimestamp(_jumping_time(), datetime.UTC).replace(tzinfo=None)


time.time = _jumping_time  # noqa: TID251
time.time_ns = lambda: _time_ns() + _offset_s() * _NS
datetime.datetime = _JumpingDatetime  # type: ignore[misc]
