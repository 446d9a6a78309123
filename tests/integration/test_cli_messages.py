"""The commands for messages and rooms, against a real mesh."""

import asyncio
import json
from pathlib import Path

from harness.mesh.command_line import CompletedCommand, run_in_process
from harness.mesh.processes import running_mesh

AGENT = """
from trunkline import EvaluationRequest, EvaluationResult, agent

@agent(description="Evaluates drafts.")
async def teacher(task):
    return "hello"


@teacher.on(EvaluationRequest)
async def evaluate(task, request):
    if request.context == "fail":
        await task.reject("not a draft")
        return None
    return EvaluationResult(approved=True, proposal=request.proposal)
"""


async def test_messages_and_rooms_from_a_shell(tmp_path: Path) -> None:
    (tmp_path / "school.py").write_text(AGENT)
    async with running_mesh(tmp_path, "--agent", "school:teacher") as mesh:

        async def run(*words: str) -> CompletedCommand:
            return await asyncio.to_thread(run_in_process, *words, "--mesh", mesh.mesh_address)

        draft = '{"proposal": "a draft"}'
        reply = await run("messages", "request", "teacher", draft, "--type", "evaluation_request")
        assert (reply.exit, json.loads(reply.out)["approved"]) == (0, True)
        joined = await run("rooms", "join", "class", "teacher")
        assert (joined.exit, joined.out) == (0, "class: teacher\n")
        sent = await run("messages", "send", "room:class", "welcome", "--type", "note", "--json")
        message_id = sent.json["envelope"]["envelope_id"]
        shown = await run("messages", "show", message_id)
        assert f"message       {message_id}" in shown.out
        assert "payload       welcome" in shown.out
        listed = await run("messages", "list", "--room", "class")
        assert [line.split()[1] for line in listed.out.splitlines()[1:]] == ["note", "system"]
        bad = '{"proposal": "p", "context": "fail"}'
        await run("messages", "send", "teacher", bad, "--type", "evaluation_request", "--id", "bad")
        # The reply to a later message: the conversations of one recipient are independent.
        dead = await run("messages", "dead", "--json")
        while not dead.json:
            dead = await run("messages", "dead", "--json")
        assert [(d["envelope_id"], d["problem"]) for d in dead.json] == [("bad", "not a draft")]
        assert "not a draft" in (await run("messages", "dead")).out
        assert (await run("messages", "redrive", "--id", "bad")).out == "1 delivered again\n"
        dry = await run("messages", "replay", "--id", message_id, "--dry-run")
        assert (dry.out, dry.err) == (f"{message_id}\n", "1 would be sent again\n")
        assert (await run("messages", "purge", "--id", message_id)).out == "1 deleted\n"
        missing = await run("messages", "show", message_id)
        assert (missing.exit, "no message" in missing.err) == (1, True)
        rooms = (await run("rooms", "list", "--json")).json
        assert [(room["name"], room["members"]) for room in rooms] == [("class", ["teacher"])]
        assert (await run("rooms", "leave", "class", "teacher")).out == "class: no members\n"
        assert (await run("rooms", "show", "class")).exit == 1
        for words in (("list", "--state", "lost"), ("purge",), ("send", "nobody", "x")):
            refused = await run("messages", *words)
            assert (refused.exit, refused.err[:6]) == (1, "error:"), words
