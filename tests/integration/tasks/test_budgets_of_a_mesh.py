"""A mesh whose budget ends: the running task fails, and further ones are refused."""

from pathlib import Path

import httpx2

from harness.a2a.bridged_mesh import Caller
from harness.mesh.command_line import run_command
from harness.mesh.processes import MeshProcess, running_mesh
from harness.mesh.small_mesh import PATIENCE_S
from harness.remote.model_server import call, model_server, say

# The server reports 11 tokens read and 7 written for each reply.
SETTINGS = """
model = "openai:first"
[models.openai]
input_price = 1
output_price = 2
[agent.math]
check = false
[limits]
month_tokens = 30
[limits.account.acme]
day_tokens = 5
"""
QUESTION = "what is 20*2+2"


async def check_refused(client: httpx2.AsyncClient, mesh: MeshProcess) -> None:
    caller = Caller(client, f"{mesh.http_url}/agents/math")
    for method in ("SendMessage", "SendStreamingMessage"):
        refused = await caller.post(method, {"message": caller.message(QUESTION)})
        assert refused.status_code == 429
        assert 1 <= int(refused.headers["retry-after"]) <= 31 * 86_400
        text = refused.json()["error"]["message"]
        assert text.startswith("account 'anonymous' has used its budget of 30 tokens a month")
        assert "-01T00:00:00Z" in text
    asked = await run_command("ask", "--url", mesh.http_url, "--agent", "math", QUESTION)
    assert asked.exit == 6
    assert "budget of 30 tokens a month" in asked.err


async def test_a_budget_of_a_mesh(tmp_path: Path) -> None:
    (tmp_path / "trunkline.toml").write_text(SETTINGS)
    with model_server() as server:
        async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE_S) as client:
            async with running_mesh(
                tmp_path, servers=("math",), environment=server.environment
            ) as mesh:
                math = Caller(client, f"{mesh.http_url}/agents/math")
                server.script(
                    say("It is 42."),
                    say("Let me see. ", calls=call("math__calculate", expression="6*7").calls),
                )
                task = await math.send(QUESTION)
                assert task["artifacts"][0]["parts"] == [{"text": "It is 42."}]
                async with math.streamed(QUESTION) as stream:
                    events = await stream.rest()
                assert events[-1].state == "TASK_STATE_FAILED"
                (part,) = events[-1].result["statusUpdate"]["status"]["message"]["parts"]
                assert part["text"].startswith("account 'anonymous' has used its budget of 30")
                assert len(server.requests) == 2
                await check_refused(client, mesh)
            async with running_mesh(
                tmp_path, servers=("math",), environment=server.environment
            ) as mesh:
                await check_refused(client, mesh)
    words = ("usage", "--data", str(tmp_path / "data"))
    rows = (await run_command(*words, "--json", folder=tmp_path)).json
    by_subject = {
        (row["account"], row["caller"], row["model"], row["token_budget"]): row
        for row in rows
        if len(row["period"]) == len("2026-01")
    }
    assert by_subject.keys() == {
        ("", "", "openai:first", None),
        ("acme", "", "", 30),
        ("anonymous", "", "", 30),
        ("anonymous", "anonymous", "", None),
    }
    used = by_subject["anonymous", "", "", 30]
    assert (used["input_tokens"], used["output_tokens"], used["tokens"]) == (22, 14, 36)
    assert used["cost"] == 50e-6
    assert by_subject["acme", "", "", 30]["tokens"] == 0
    table = (await run_command(*words, folder=tmp_path)).out
    assert "account 'anonymous'" in table
    assert "36" in table
