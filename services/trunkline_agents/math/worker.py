"""The worker process of the math server: computes with SymPy, and can be killed at any time.

`engine` starts it and talks to it in frames: a JSON object after its length in four bytes,
big-endian. Requests arrive on stdin as `{"operation", "arguments"}`. Each gets two replies on
stdout: `started` when SymPy is loaded and the time of the computation begins, then `answered`,
`refused` or `failed`.
"""

import json
import os
import sys
from contextlib import suppress
from typing import Any, BinaryIO

from trunkline.errors import InvalidArgumentError

MEMORY_LIMIT_BYTES = 512 << 20
# Only for a worker whose server died: a server that runs kills its worker much earlier.
CPU_LIMIT_S = 30
# Far above any answer, because the operations bound their answers.
MAX_FRAME_BYTES = 1 << 20
LENGTH_BYTES = 4

Frame = dict[str, Any]


class BrokenFrameError(Exception):
    """The peer stopped in the middle of a frame, or sent data that is not a frame."""


def encode_frame(frame: Frame) -> bytes:
    """Return the bytes of a frame."""
    body = json.dumps(frame, separators=(",", ":")).encode()
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def decode_length(head: bytes) -> int:
    """Return the length of the body that follows.

    Raises:
        BrokenFrameError: it is over MAX_FRAME_BYTES.
    """
    length = int.from_bytes(head, "big")
    if length > MAX_FRAME_BYTES:
        raise BrokenFrameError(f"a frame of {length} bytes")
    return length


def decode_body(body: bytes) -> Frame:
    """Return the frame of a body.

    Raises:
        BrokenFrameError: it is not a JSON object.
    """
    try:
        frame = json.loads(body)
    except ValueError as error:
        raise BrokenFrameError("not JSON") from error
    if not isinstance(frame, dict):
        raise BrokenFrameError("not an object")
    return frame


def read_frame(stream: BinaryIO) -> Frame | None:
    """Read one frame, blocking; None at the end of the stream.

    Raises:
        BrokenFrameError: the stream ended inside a frame, or holds data that is not a frame.
    """
    head = stream.read(LENGTH_BYTES)
    if not head:
        return None
    body = stream.read(decode_length(head))
    if len(head) < LENGTH_BYTES or len(body) < int.from_bytes(head, "big"):
        raise BrokenFrameError("the stream ended inside a frame")
    return decode_body(body)


def limit_memory(size_bytes: int) -> None:
    """Limit the address space of this process, if the platform can."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        if hard == resource.RLIM_INFINITY or hard > size_bytes:
            resource.setrlimit(resource.RLIMIT_AS, (size_bytes, hard))


def limit_cpu(more_s: int) -> None:
    """Limit the processor time that this process may still use, if the platform can."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF)
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        soft = int(used.ru_utime + used.ru_stime) + more_s + 1
        if hard == resource.RLIM_INFINITY or hard > soft:
            resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def serve(requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer requests one by one until their stream ends or memory has run out once."""
    from trunkline_agents.math.operations import WARM_UP_ARGUMENTS, run_operation

    warm: set[str] = set()
    while (request := read_frame(requests)) is not None:
        limit_cpu(CPU_LIMIT_S)
        operation = str(request["operation"])
        if operation not in warm:
            run_operation(operation, WARM_UP_ARGUMENTS[operation])
            warm.add(operation)
        _send(replies, {"kind": "started"})
        reply = _answer(request)
        _send(replies, reply)
        if reply.get("is_last"):
            return


def _answer(request: Frame) -> Frame:
    from trunkline_agents.math.operations import run_operation

    try:
        answer = run_operation(request["operation"], request["arguments"])
    except InvalidArgumentError as error:
        return {"kind": "refused", "field": error.field, "problem": error.problem}
    except RecursionError:
        return _refusal("That is too complicated: the way to the answer is too deep.")
    except OverflowError:
        return _refusal("That is too large: a number on the way to the answer can't be computed.")
    except MemoryError:
        # The memory that is left may not suffice for another question, so the worker ends.
        return {**_refusal("That needs more memory than is allowed."), "is_last": True}
    except Exception as error:  # noqa: BLE001 - a defect of SymPy must not end the worker
        return {"kind": "failed", "problem": type(error).__name__}
    return {"kind": "answered", "text": answer.text, "data": answer.data}


def _refusal(problem: str) -> Frame:
    return {"kind": "refused", "field": "expression", "problem": problem}


def _send(replies: BinaryIO, frame: Frame) -> None:
    replies.write(encode_frame(frame))
    replies.flush()


def main() -> None:
    """Serve stdin and stdout. Prints of SymPy go to stderr, so that they break no frame."""
    limit_memory(MEMORY_LIMIT_BYTES)
    with os.fdopen(os.dup(1), "wb") as replies:
        os.dup2(2, 1)
        serve(sys.stdin.buffer, replies)


if __name__ == "__main__":
    main()
