"""The worker process of the math server: computes with SymPy, and can be killed at any time.

`engine` starts it and talks to it in lines of JSON. Requests arrive on stdin as `{"operation",
"arguments"}`. Each gets two replies on stdout: `started` when SymPy is loaded and the time of the
computation begins, then `answered`, `refused` or `failed`.
"""

import json
import os
import sys
from contextlib import suppress
from typing import Any, BinaryIO

from trunkline.errors import InvalidArgumentError

MEMORY_LIMIT_BYTES = 512 << 20
# For a worker whose server died. A running server kills its worker much earlier.
CPU_LIMIT_S = 30
REPLY_LIMIT_BYTES = 1 << 20
"""Far above any reply, because the operations bound their answers."""

Message = dict[str, Any]


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
    for line in requests:
        request = json.loads(line)
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


def _answer(request: Message) -> Message:
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


def _refusal(problem: str) -> Message:
    return {"kind": "refused", "field": "expression", "problem": problem}


def _send(replies: BinaryIO, reply: Message) -> None:
    replies.write(json.dumps(reply).encode() + b"\n")
    replies.flush()


def main() -> None:
    """Serve stdin and stdout. Prints of SymPy go to stderr, so that they do not break replies."""
    limit_memory(MEMORY_LIMIT_BYTES)
    with os.fdopen(os.dup(1), "wb") as replies:
        os.dup2(2, 1)
        serve(sys.stdin.buffer, replies)


if __name__ == "__main__":
    main()
