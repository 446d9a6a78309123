"""Commands that follow the mesh continue after its processes were killed and started again."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.mesh.command_line import StartedCommand, start_command
from harness.mesh.host_processes import PATIENCE_S, has_ended, hosts, is_waiting
from harness.polling import poll

Line = dict[str, Any]
_A_MOMENT_S = 1.0


class Output:
    """The lines of JSON that a command prints."""

    def __init__(self, command: StartedCommand) -> None:
        self._command = command
        self.lines: list[Line] = []

    async def wait_for(self, is_wanted: Callable[[Line], bool]) -> Line:
        """Read until a line is as wanted; return it."""
        async with asyncio.timeout(PATIENCE_S):
            while raw := await self._command.stdout.readline():
                self.lines.append(json.loads(raw))
                if is_wanted(self.lines[-1]):
                    return self.lines[-1]
        raise AssertionError(f"the command has ended: {(await self._command.stderr.read())!r}")


async def test_commands_continue_after_a_host_and_the_registry_were_killed(tmp_path: Path) -> None:
    async with hosts(tmp_path, "echo") as (services, caller):
        mesh = ("--mesh", services.mesh_address, "--json")
        waiting = await caller.begin_question()
        async with (
            start_command("events", *mesh) as events_command,
            start_command("tasks", "--follow", *mesh) as tasks_command,
            start_command("top", *mesh) as top_command,
        ):
            events, tasks, top = (
                Output(command) for command in (events_command, tasks_command, top_command)
            )
            await top.wait_for(lambda line: shows(line, waiting, "input-required"))
            await tasks.wait_for(lambda line: line["task_id"] == waiting)

            # Earlier tasks may have ended before the command read its first event.
            async def is_read() -> bool:
                task_id = await caller.begin("hello")
                await caller.until(task_id, has_ended)
                await tasks.wait_for(lambda line: is_end(line, task_id))
                with suppress(TimeoutError):
                    async with asyncio.timeout(_A_MOMENT_S):
                        await events.wait_for(lambda line: line["task_id"] == task_id)
                return bool(events.lines)

            await poll(is_read)

            counting = await caller.begin("count 300 20")
            async with start_command("watch", counting, *mesh) as watch_command:
                watch = Output(watch_command)
                await watch.wait_for(lambda line: "5 " in str(line))
                await services.kill("echo")
                await services.kill("registry")
                await services.restart("registry")
                await services.restart("echo")
                await watch.wait_for(lambda line: "TASK_STATE_COMPLETED" in str(line))
                assert await watch_command.wait() == 0
            await caller.wait_until_moved("echo", waiting)
            await caller.until(waiting, is_waiting)
            second = await caller.begin("hello again")
            await caller.until(second, has_ended)
            await caller.answer(waiting, "Ada")

            await events.wait_for(lambda line: line["task_id"] == waiting and "Ada" in str(line))
            await tasks.wait_for(lambda line: is_end(line, waiting))
            await top.wait_for(lambda line: not line["tasks"] and bool(line["hosts"]))
        # Nothing is shown twice.
        for shown in (events.lines, watch.lines):
            keys = [(line.get("task_id", counting), line["sequence"]) for line in shown]
            assert len(keys) == len(set(keys))
        keys = [(line["task_id"], line["sequence"]) for line in events.lines]
        assert second in {task_id for task_id, _ in keys}


def shows(line: Line, task_id: str, state: str) -> bool:
    """Return whether a state of the mesh has a task in a state."""
    return any((task["task_id"], task["state"]) == (task_id, state) for task in line["tasks"])


def is_end(line: Line, task_id: str) -> bool:
    """Return whether a status is the end of a task."""
    return (line["task_id"], line["state"]) == (task_id, "completed")
