"""The commands for messages and rooms, against a real mesh."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from harness.mesh.command_line import CompletedCommand, run_command
from harness.mesh.processes import running_mesh
from harness.polling import poll
from trunkline.cli import declaration
from trunkline.cli.app import app
from trunkline.cli.exits import ExitCode
from trunkline.errors import EnvelopeNotFoundError, InvalidArgumentError

AGENT = """
from trunkline import EvaluationRequest, EvaluationResult, agent

@agent(description="Evaluates drafts.")
async def teacher(task):
    return "hello"


@agent(description="Answers a part.")
async def half(task):
    await task.mark_partial()
    return "the first half"


@teacher.on(EvaluationRequest)
async def evaluate(task, request):
    if request.context == "break":
        raise ValueError("the cupboard is bare")
    if request.context == "fail":
        await task.reject("not a draft")
        return None
    return EvaluationResult(approved=True, proposal=request.proposal)
"""


async def test_a_dead_letter_says_why_and_the_log_leads_to_it(tmp_path: Path) -> None:
    (tmp_path / "school.py").write_text(AGENT)
    once = {"TRUNKLINE_MESSAGING_ATTEMPTS": "1"}
    async with running_mesh(tmp_path, "--agent", "school:teacher", environment=once) as mesh:

        async def run(*words: str) -> CompletedCommand:
            return await run_command(
                "messages", *words, folder=tmp_path, TRUNKLINE_MESH=mesh.mesh_address
            )

        for context in ("fail", "break"):
            draft = json.dumps({"proposal": "p", "context": context})
            await run("send", "teacher", draft, "--type", "evaluation_request", "--id", context)
        dead = await poll(lambda: run("dead", "--json"), lambda done: len(done.json) == 2)
    problems = {each["envelope_id"]: each["problem"] for each in dead.json}
    assert problems["fail"] == "not a draft"
    assert "ValueError (at school:" in problems["break"]
    log = (tmp_path / "data/private/log.jsonl").read_text()
    lines = [json.loads(line) for line in log.splitlines() if "messages.dead_letter" in line]
    assert {line["envelope"] for line in lines} == {"fail", "break"}
    # What an agent says is content.
    assert "not a draft" not in log


async def test_messages_and_rooms_from_a_shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    work: list[Any] = []
    monkeypatch.setattr(declaration, "run", work.append)
    command = typer.main.get_command(app)
    (tmp_path / "school.py").write_text(AGENT)
    async with running_mesh(
        tmp_path, "--agent", "school:teacher", "--agent", "school:half"
    ) as mesh:

        async def run(*words: str, expected: ExitCode = ExitCode.OK) -> str:
            """Run a command in the loop of the test; return its output."""
            words = (*words, "--mesh", mesh.mesh_address)
            command.main(args=list(words), standalone_mode=False)
            assert (await work.pop() or ExitCode.OK) == expected, words
            return capsys.readouterr().out

        draft = '{"proposal": "a draft"}'
        request = ("--type", "evaluation_request")
        reply = json.loads(await run("messages", "request", "teacher", draft, *request))
        assert reply["approved"] is True
        part = await run("messages", "request", "half", "go", expected=ExitCode.PARTIAL)
        assert part == "the first half\n"
        told = ("messages", "request", "half", "go", "--json")
        part_json = json.loads(await run(*told, expected=ExitCode.PARTIAL))
        assert part_json["metadata"] == {"trunkline/outcome": "partial"}
        assert await run("rooms", "join", "class", "teacher") == "class: teacher\n"
        sent = await run("messages", "send", "room:class", "hi", "--type", "note", "--json")
        message_id = json.loads(sent)["envelope"]["envelope_id"]
        shown = await run("messages", "show", message_id)
        assert f"message       {message_id}" in shown
        assert "payload       hi" in shown
        listed = (await run("messages", "list", "--room", "class")).splitlines()[1:]
        assert [line.split()[-1] for line in listed] == ["note", "system"]
        bad = '{"proposal": "p", "context": "fail"}'
        await run("messages", "send", "teacher", bad, *request, "--id", "bad")
        while not (dead := json.loads(await run("messages", "dead", "--json"))):
            pass
        assert [(d["envelope_id"], d["problem"]) for d in dead] == [("bad", "not a draft")]
        assert "not a draft" in await run("messages", "dead")
        assert await run("messages", "redrive", "bad") == "1 delivered again\n"
        dry = await run("messages", "replay", message_id, "--dry-run")
        assert dry == f"{message_id}\n"
        assert await run("messages", "purge", message_id) == "1 deleted\n"
        with pytest.raises(EnvelopeNotFoundError):
            await run("messages", "show", message_id)
        found = json.loads(await run("rooms", "list", "--json"))
        assert [(room["name"], room["members"]) for room in found] == [("class", ["teacher"])]
        assert await run("rooms", "leave", "class", "teacher") == "class: no members\n"
        await run("rooms", "show", "class", expected=ExitCode.FAILED)
        mistakes = (
            ("list", "--state", "lost"),
            ("purge",),
            ("list", "--since", "soon"),
            ("redrive", "unknown"),
        )
        for words in mistakes:
            with pytest.raises(InvalidArgumentError):
                await run("messages", *words)
