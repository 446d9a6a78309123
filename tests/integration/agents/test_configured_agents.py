"""Agents and supervisors that tables of trunkline.toml define, with a model and without Python."""

from pathlib import Path

import pytest

from harness.mesh.command_line import run_command
from harness.mesh.processes import running_mesh
from harness.remote.model_server import ModelServer, call, model_server, say

SETTINGS = """
model = "openai:any"

[agent.clerk]
description = "Works the books out."
instructions = "Answer in one line."
servers = ["math"]
allow_tools = ["calculate"]
check = false

[agent.poet]
description = "Writes verses."
instructions = "Rhyme."
check = false

[agent.math]
instructions = "No words."
check = false

[supervisor.office]
agents = ["clerk", "poet"]
instructions = "Verses are the poet's."
"""


def prompt_of(provider: ModelServer, number: int = 0) -> str:
    return str(provider.requests[number].messages[0]["content"])


async def test_tables_define_agents_with_tools_and_instructions(tmp_path: Path) -> None:
    (tmp_path / "trunkline.toml").write_text(SETTINGS)
    with model_server() as provider:
        environment = provider.environment
        async with running_mesh(tmp_path, servers=("math",), environment=environment) as mesh:

            async def ask(agent: str, text: str) -> str:
                words = ("ask", text, "--agent", agent, "--url", mesh.http_url, "--json")
                done = await run_command(*words, folder=tmp_path)
                assert done.exit == 0, done.err
                answer: str = done.json["answer"]
                return answer

            provider.script(call("math__calculate", expression="6*7"), say("It is 42."))
            assert await ask("clerk", "six times seven") == "It is 42."
            assert "Works the books out." in prompt_of(provider)
            assert prompt_of(provider).endswith("Answer in one line.")
            assert "math__calculate" in provider.requests[0].tools
            assert "math__solve" not in provider.requests[0].tools
            assert provider.requests[1].last == "42"

            provider.script(say("The sea is wide."))
            assert await ask("poet", "a verse") == "The sea is wide."
            assert prompt_of(provider).endswith("Rhyme.")
            assert "your tools" not in prompt_of(provider)

            provider.script(say("42"))
            assert await ask("math", "six times seven") == "42"
            assert prompt_of(provider).endswith("No words.")

            plan = {"steps": [{"agent": "poet", "text": "a verse"}]}
            provider.script(call("make_plan", **plan), say("The wind is cold."))
            assert await ask("office", "a verse, please") == "The wind is cold."
            assert "Who runs this supervisor adds:\nVerses are the poet's." in prompt_of(provider)

            listed = await run_command("agents", "--mesh", mesh.mesh_address, "--json")
            skills = {each["name"]: each["skills"] for each in listed.json}
            assert "Calculate" in skills["clerk"]
            assert "clerk" in skills


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        (
            '[agent.clerk]\ndescription = "x"\nservers = ["stock"]',
            "[agent.clerk] servers: there is no MCP server 'stock'; there are: ",
        ),
        ('[agent.clerk]\ntags = ["x"]', "[agent.clerk]: give a description too"),
        ('[agent.math]\ndescription = "x"', "agent 'math': there are two of this name"),
        ('[agent.all]\ndescription = "x"', "[agent.all]"),
    ],
)
async def test_a_wrong_table_is_named(tmp_path: Path, table: str, problem: str) -> None:
    (tmp_path / "trunkline.toml").write_text(table)
    done = await run_command(
        "up", "--http", "127.0.0.1:0", "--mesh", "127.0.0.1:0", folder=tmp_path
    )
    assert done.exit == 1
    assert problem in done.err
