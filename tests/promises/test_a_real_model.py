"""A small real model answers over OpenAI's protocol: words stream, are counted, and can be stopped.

It runs only in `make prove`. A model of this size can't plan and uses tools badly, so the tests
promise what has to hold for every model: an end with a text or a reason, and no defect.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from harness.mesh.command_line import run_command
from harness.mesh.processes import MeshProcess, running_mesh
from harness.polling import poll
from harness.remote.local_model import local_model, wait_for_slots
from trunkline.cli.exits import ExitCode

_ENDS: Final = (ExitCode.OK, ExitCode.FAILED, ExitCode.INPUT_REQUIRED, ExitCode.CANCELED)
SETTINGS = """
model = "openai:smollm2"

[models.openai]
base_url = "{url}/v1"
timeout_s = 300
max_tokens = {tokens}

[agent.poet]
description = "Writes verses."
instructions = "You write short verses."
check = false

[agent.clerk]
description = "Works the books out."
instructions = "Use your tool for each sum."
servers = ["math"]
check = false

[supervisor.office]
agents = ["clerk", "poet"]
"""


@pytest.fixture
async def model_url(tmp_path: Path) -> AsyncIterator[str]:
    async with local_model(tmp_path) as url:
        yield url


async def ask(mesh: MeshProcess, agent: str, text: str) -> dict[str, object]:
    words = ("ask", text, "--agent", agent, "--url", mesh.http_url, "--json")
    done = await run_command(*words)
    assert done.exit in _ENDS, done.err
    answered: dict[str, object] = done.json
    return answered


async def test_the_words_of_a_model_stream_and_are_counted(tmp_path: Path, model_url: str) -> None:
    (tmp_path / "trunkline.toml").write_text(SETTINGS.format(url=model_url, tokens=60))
    async with running_mesh(tmp_path, servers=("math",)) as mesh:
        answered = await ask(mesh, "poet", "Write two lines about the sea.")
        task_id = str(answered["task_id"])
        events = await run_command("events", task_id, "--mesh", mesh.mesh_address, "--json")

        async def show_task() -> str:
            return (await run_command("task", task_id, "--mesh", mesh.mesh_address)).out

        # The counts are on spans, which come a moment after the answer.
        await poll(show_task, lambda shown: "tokens" in shown)

    assert answered["state"] == "completed"
    assert len(str(answered["answer"]).split()) > 2
    deltas = [line for line in map(json.loads, events.out.splitlines()) if "delta" in line]
    assert len(deltas) > 1


async def test_cancel_stops_the_model(tmp_path: Path, model_url: str) -> None:
    (tmp_path / "trunkline.toml").write_text(SETTINGS.format(url=model_url, tokens=6000))
    async with running_mesh(tmp_path, servers=("math",)) as mesh, asyncio.TaskGroup() as group:
        text = "Count from one to ten thousand, in words, one number in each line."
        asking = group.create_task(ask(mesh, "poet", text))
        await wait_for_slots(model_url, 1)

        async def list_working() -> list[dict[str, str]]:
            words = ("tasks", "--state", "working", "--mesh", mesh.mesh_address, "--json")
            listed: list[dict[str, str]] = (await run_command(*words)).json
            return listed

        (task, *_) = await poll(list_working)
        canceled = await run_command("cancel", task["task_id"], "--mesh", mesh.mesh_address)
        await wait_for_slots(model_url, 0)
        answered = await asking

    assert canceled.exit == ExitCode.OK, canceled.err
    assert answered["state"] == "canceled"


@pytest.mark.parametrize("agent", ["office", "clerk"])
async def test_whatever_a_model_says_a_request_ends_with_a_text_or_a_reason(
    tmp_path: Path, model_url: str, agent: str
) -> None:
    (tmp_path / "trunkline.toml").write_text(SETTINGS.format(url=model_url, tokens=200))
    async with running_mesh(tmp_path, servers=("math",)) as mesh:
        answers = [
            await ask(mesh, agent, text)
            for text in ("What is 6 times 7?", "Write a verse.", "What is 2+3, and a verse on it?")
        ]

    for answered in answers:
        assert answered["state"] in ("completed", "failed", "input-required")
        texts = f"{answered['answer']}{answered['status_text']}"
        assert texts
        assert "internal error" not in texts
