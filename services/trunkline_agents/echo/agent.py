"""The echo agent: the first word of a request selects its behaviour."""

import asyncio
import re

from trunkline import Part, TaskContext, agent
from trunkline.errors import InvalidArgumentError

_COUNT = re.compile(r"count (?:to )?(\d{1,7})(?: (\d{1,6}))?(?: (\d{1,5}))?")
_WAIT = re.compile(r"wait (\d{1,5}(?:\.\d{1,3})?)")
_FILE = re.compile(r"file (\d{1,9})")
# Larger content must be an artifact by reference, which echo does not support.
_FILE_LIMIT_BYTES = 1024 * 1024


@agent(
    name="echo",
    description="Repeats your text, and counts, asks, waits, fails or rejects on request.",
    # `command` means that the other tags count only as the first word of a request.
    tags=["echo", "repeat", "count", "wait", "command"],
    examples=["echo hello", "count 5", "ask What is your name?"],
    input_modes=["*/*"],
    output_modes=["text/plain", "application/octet-stream"],
    direct_replies=True,
    repeatable=True,
)
async def echo(task: TaskContext) -> None:
    """Run one turn.

    `echo TEXT`, `repeat TEXT` and any other text repeat it. `count N [GAP_MS [SIZE]]`
    streams N deltas, GAP_MS milliseconds apart, padded to SIZE bytes. `ask QUESTION` requires
    input and completes with the next message. `wait SECONDS`, `fail REASON`, `reject REASON`,
    `message TEXT` (a direct reply) and `file BYTES` do what they say.
    """
    text = task.text.strip()
    word, _, rest = text.partition(" ")
    if task.turn > 1:
        await task.artifact("answer").append(f"answer: {text}", last=True)
    elif word == "ask" and rest:
        await task.require_input(rest)
    elif word == "fail":
        await task.fail(rest or "asked to fail")
    elif word == "reject":
        await task.reject(rest or "asked to reject")
    elif word == "message" and rest:
        await task.reply(rest)
    elif match := _COUNT.fullmatch(text):
        await _count(task, *(int(group or 0) for group in match.groups()))
    elif match := _WAIT.fullmatch(text):
        await task.working(f"Waiting {match[1]} s")
        await asyncio.sleep(float(match[1]))
        await task.artifact("wait").append(f"waited {match[1]} s", last=True)
    elif match := _FILE.fullmatch(text):
        await _file(task, int(match[1]))
    else:
        await _repeat(task, rest if word.lower() in {"echo", "repeat"} and rest else text)


async def _count(task: TaskContext, count: int, gap_ms: int, size_bytes: int) -> None:
    artifact = task.artifact("count")
    for number in range(1, count + 1):
        if gap_ms and number > 1:
            await asyncio.sleep(gap_ms / 1000)
        await artifact.append(f"{number} ".ljust(size_bytes, "x"), last=number == count)


async def _file(task: TaskContext, size_bytes: int) -> None:
    if size_bytes > _FILE_LIMIT_BYTES:
        raise InvalidArgumentError("file BYTES", f"is over {_FILE_LIMIT_BYTES}; ask for less")
    pattern = bytes(range(256))
    content = (pattern * (size_bytes // len(pattern) + 1))[:size_bytes]
    part = Part(raw=content, filename=f"{size_bytes}.bin", media_type="application/octet-stream")
    await task.artifact("file").append(part, last=True)


async def _repeat(task: TaskContext, text: str) -> None:
    """Repeat the text as one artifact, and all other parts unchanged."""
    others = [part for part in task.message.parts if not part.HasField("text")]
    artifact = task.artifact("echo")
    if text or not others:
        await artifact.append(text, last=not others)
    for part in others:
        await artifact.append(part, last=part is others[-1])
