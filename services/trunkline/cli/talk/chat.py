"""`trunkline chat`: a conversation, line by line."""

import asyncio
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from trunkline.cli.options import agent_url
from trunkline.cli.outcome import Exit, complain
from trunkline.cli.talk.answer import Answer
from trunkline.cli.talk.client import A2AClient
from trunkline.cli.talk.ephemeral import mesh_at
from trunkline.cli.talk.turn import exit_of, outcome_of, show_end, shown_answer, take_turn
from trunkline.cli.terminal import is_text, print_json, say
from trunkline.errors import InvalidArgumentError, TaskNotCancelableError, TrunklineError


def chat(agent: str | None, *, url: str | None, api_key: str = "", as_json: bool) -> Exit:
    """Take lines from stdin until it ends; each is a turn of one conversation.

    Ctrl-C cancels the turn that runs. Lines come from a person or from a pipe.
    """
    # One loop for the whole conversation, which runs only while a turn does: while a line is
    # awaited, Ctrl-C and line editing are the terminal's usual ones.
    with asyncio.Runner() as runner:
        conversation = _Conversation(agent, as_json=as_json, api_key=api_key)
        code = Exit.OK
        try:
            runner.run(conversation.open(url))
            while (line := _next_line()) is not None:
                if line.strip():
                    _take_line(runner, conversation, line)
        except TrunklineError as error:
            code = complain(error)
        except KeyboardInterrupt:
            code = Exit.CANCELED
        finally:
            runner.run(conversation.close())
    return code


def _take_line(runner: asyncio.Runner, conversation: "_Conversation", line: str) -> None:
    try:
        if not is_text(line):
            problem = f"is not {sys.stdin.encoding} text and was not sent; write it again"
            raise InvalidArgumentError("the line", problem)
        runner.run(conversation.turn(line))
    except KeyboardInterrupt:
        say("canceling the turn")
        runner.run(conversation.cancel())
    except TrunklineError as error:
        complain(error)


def _next_line() -> str | None:
    """Return the next line, or None at the end."""
    if not sys.stdin.isatty():
        return sys.stdin.readline() or None
    # Gives `input` line editing and a history.
    import readline  # noqa: F401

    while True:
        try:
            return input("> ")
        except EOFError:
            print()
            return None
        except KeyboardInterrupt:
            say("\n(Ctrl-D leaves)")


@dataclass
class _Conversation:
    agent: str | None
    as_json: bool = field(kw_only=True)
    api_key: str = field(default="", kw_only=True, repr=False)
    context_id: str = ""
    # Of a task that waits for the next line.
    task_id: str = ""

    def __post_init__(self) -> None:
        self._open = AsyncExitStack()
        self._running: Answer | None = None

    async def open(self, url: str | None) -> None:
        mesh = await self._open.enter_async_context(mesh_at(url))
        client = A2AClient(agent_url(mesh.http, self.agent), api_key=self.api_key)
        self._client = await self._open.enter_async_context(client)

    async def close(self) -> None:
        await self._open.aclose()

    async def turn(self, text: str) -> None:
        continues = bool(self.task_id)
        if self.as_json:
            answer = Answer(write=lambda text: None, continues=continues)
        else:
            answer = shown_answer(continues=continues)
        self._running = answer
        await take_turn(
            self._client, answer, text, task_id=self.task_id, context_id=self.context_id
        )
        self._running = None
        self.context_id = answer.context_id or self.context_id
        self.task_id = answer.task_id if exit_of(answer) is Exit.INPUT_REQUIRED else ""
        if self.as_json:
            outcome = await outcome_of(self._client, answer, agent=self.agent)
            print_json(outcome.as_json())
        else:
            show_end(answer)

    async def cancel(self) -> None:
        """Cancel the task of the turn that was left."""
        answer, self._running = self._running, None
        if answer is None or not answer.task_id:
            return
        self.task_id = ""
        self.context_id = answer.context_id or self.context_id
        try:
            await self._client.cancel_task(answer.task_id)
        except TaskNotCancelableError:
            # It was faster.
            return
        except TrunklineError as error:
            complain(error)
