"""The process that computes, so that it can be killed; `engine` starts it and talks to it.

Frames come in on stdin: `{"operation", "arguments"}`. For each, two go out on stdout: `started`
when SymPy is loaded and the question's own time begins, then `answered`, `refused` or `failed`.
"""

import os
import sys
from contextlib import suppress
from typing import BinaryIO

from trunkline.errors import InvalidArgumentError
from trunkline_agents.math.frames import Frame, packed, read_frame

MEMORY_LIMIT_BYTES = 512 << 20
# Only for a worker whose server is gone: a server that lives kills it long before.
CPU_LIMIT_S = 30


def limit_memory(size_bytes: int) -> None:
    """Bound the address space, where the platform has such a bound."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        if hard == resource.RLIM_INFINITY or hard > size_bytes:
            resource.setrlimit(resource.RLIMIT_AS, (size_bytes, hard))


def limit_cpu(more_s: int) -> None:
    """Bound the processor time of what comes next, where the platform has such a bound."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF)
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        soft = int(used.ru_utime + used.ru_stime) + more_s + 1
        if hard == resource.RLIM_INFINITY or hard > soft:
            resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def serve(requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer requests one by one until their stream ends, or memory has run out once."""
    from trunkline_agents.math.operations import WARM_UP_ARGUMENTS, run_operation

    warm: set[str] = set()
    while (request := read_frame(requests)) is not None:
        limit_cpu(CPU_LIMIT_S)
        operation = str(request["operation"])
        if operation not in warm:
            run_operation(operation, WARM_UP_ARGUMENTS[operation])
            warm.add(operation)
        _send(replies, {"kind": "started"})
        reply = _reply_to(request)
        _send(replies, reply)
        if reply.get("is_last"):
            return


def _reply_to(request: Frame) -> Frame:
    from trunkline_agents.math.operations import run_operation

    try:
        answer = run_operation(request["operation"], request["arguments"])
    except InvalidArgumentError as error:
        return {"kind": "refused", "field": error.field, "problem": error.problem}
    except RecursionError:
        return _refusal("That is too complicated: the way to the answer is too deep.")
    except MemoryError:
        # What is left of the memory may not do for the next question: a new worker is started.
        return {**_refusal("That needs more memory than is allowed."), "is_last": True}
    except Exception as error:  # noqa: BLE001 - a defect of SymPy must not end the worker
        return {"kind": "failed", "problem": type(error).__name__}
    return {"kind": "answered", "text": answer.text, "data": answer.data}


def _refusal(problem: str) -> Frame:
    return {"kind": "refused", "field": "expression", "problem": problem}


def _send(replies: BinaryIO, frame: Frame) -> None:
    replies.write(packed(frame))
    replies.flush()


def main() -> None:
    """Serve stdin and stdout; a stray print goes to stderr, where it breaks nothing."""
    limit_memory(MEMORY_LIMIT_BYTES)
    with os.fdopen(os.dup(1), "wb") as replies:
        os.dup2(2, 1)
        serve(sys.stdin.buffer, replies)


if __name__ == "__main__":
    main()
