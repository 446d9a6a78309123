"""Agents written inside tests, messages for them, and readers of their results."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields
from typing import Any, Protocol

from trunkline.agents import FunctionAgent, agent
from trunkline.core.settings import Settings
from trunkline.tasks.budgets import Budgets
from trunkline.tasks.host import TaskHost
from trunkline.tasks.resources import CancelChild
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.v1 import message_pb2, message_service_pb2, part_pb2, snapshot_pb2


def define(function: Callable[..., Any], **options: Any) -> FunctionAgent:
    """Make an agent called `tested` of a function."""
    return agent(name="tested", description="Under test.", **options)(function)


@dataclass(frozen=True, slots=True)
class RuntimeAgent(FunctionAgent):
    """An agent whose function gets the host's side of a turn, as the supervisor's does."""

    async def run(self, turn: TurnRuntime) -> None:
        """Call the function."""
        function: Callable[[Any], Any] = self.function
        await function(turn)


def define_runtime(function: Callable[[TurnRuntime], Any], **options: Any) -> RuntimeAgent:
    """Make an agent called `tested` of a function that gets the host's side of a turn."""
    defined = define(function, **options)
    return RuntimeAgent(**{field.name: getattr(defined, field.name) for field in fields(defined)})


def message(
    text: str = "hello", *, message_id: str = "m-1", task_id: str = "", context_id: str = ""
) -> message_pb2.Message:
    """A user's message."""
    return message_pb2.Message(
        message_id=message_id,
        task_id=task_id,
        context_id=context_id,
        role=message_pb2.ROLE_USER,
        parts=[part_pb2.Part(text=text)],
    )


def texts(snapshot: snapshot_pb2.TaskSnapshot) -> list[str]:
    """The text of each artifact."""
    return ["".join(p.text for p in artifact.parts) for artifact in snapshot.task.artifacts]


def status_texts(snapshot: snapshot_pb2.TaskSnapshot) -> str:
    """The text of the status message."""
    return "".join(part.text for part in snapshot.task.status.message.parts)


NOTHING = message_service_pb2.Submission()


class OpenHost(Protocol):
    """Opens a host with agents on the test's journal."""

    def __call__(
        self,
        *agents: FunctionAgent,
        settings: Settings | None = None,
        cancel_child: CancelChild | None = None,
        budgets: Budgets | None = None,
    ) -> Awaitable[TaskHost]: ...


async def start(host: TaskHost, text: str = "hello", **fields: Any) -> str:
    """Submit to `tested`; return the id of the task."""
    submission = message_service_pb2.Submission(**fields)
    accepted = await host.submit("tested", message(text), submission)
    assert not isinstance(accepted, message_pb2.Message)
    return accepted.task_id


async def finish(host: TaskHost, text: str = "hello", **fields: Any) -> snapshot_pb2.TaskSnapshot:
    """Submit to `tested` and wait for the turn's end."""
    return await host.wait_turn(await start(host, text, **fields))
