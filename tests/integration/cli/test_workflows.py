"""`trunkline up --workflow`, and the commands that run workflows, on a real mesh."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from harness.a2a.graphql_client import GraphQLClient
from harness.a2a.sse_client import call, user_message
from harness.mcp.bundled_servers import only_servers
from harness.mesh.command_line import CompletedCommand, run_command, run_in_process
from harness.mesh.processes import MeshProcess, running_mesh
from harness.workflows.parrot import PARROT

pytestmark = pytest.mark.asyncio(loop_scope="module")

CALLER = """
name: caller
nodes:
  - {id: start, type: start}
  - {id: ask, type: agent, agent: echo}
  - {id: use, type: wait, duration: 1s}
  - {id: speak, type: workflow, workflow: parrot, inputs: {text: hi}}
  - {id: end, type: end}
edges:
  - {from: start, to: ask}
  - {from: ask, to: use}
  - {from: use, to: speak}
  - {from: speak, to: end}
"""
HELD = """
name: held
nodes:
  - {id: start, type: start}
  - {id: hold, type: wait, duration: 1h}
  - {id: end, type: end}
edges:
  - {from: start, to: hold}
  - {from: hold, to: end}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mesh")
    (folder / "flows").mkdir()
    (folder / "flows" / "parrot.yaml").write_text(PARROT)
    (folder / "flows" / "held.yaml").write_text(HELD)
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(folder: Path) -> AsyncIterator[MeshProcess]:
    flows = ("--workflow", str(folder / "flows"))
    environment = {"TRUNKLINE_GRAPHQL_ENABLED": "true"}
    async with running_mesh(folder, *flows, environment=environment) as running:
        yield running


async def run(*words: str) -> CompletedCommand:
    return await asyncio.to_thread(run_in_process, *words)


async def test_a_workflow_runs_by_its_name_over_a2a_and_for_a_supervisor(
    mesh: MeshProcess,
) -> None:
    ran = await run("workflow", "run", "parrot", "hi", "--url", mesh.http_url, "--json")
    assert (ran.exit, ran.json["answer"]) == (0, "polly says hi"), ran.err

    message = user_message("hello")
    answer = await call(mesh.http_url, "/agents/parrot", "SendMessage", {"message": message})
    task = answer["result"]["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    (artifact,) = [each for each in task["artifacts"] if "answer" in str(each.get("metadata"))]
    assert artifact["parts"] == [{"text": "polly says hello"}]

    routed = await run("ask", "tell the parrot hello", "--url", mesh.http_url, "--json")
    assert routed.json["agent"] == "parrot", routed.out
    assert "polly says" in routed.json["answer"]

    events = await run_command("events", ran.json["task_id"], "--mesh", mesh.mesh_address, "--json")
    lines: list[dict[str, Any]] = [json.loads(line) for line in events.out.splitlines()]
    plan = next(number for number, line in enumerate(lines) if "plan" in line)
    first = next(number for number, line in enumerate(lines) if "step_started" in line)
    assert lines[plan]["plan"]["plan_id"] == "parrot@1"
    assert plan < first
    spans = await run("trace", ran.json["trace_id"], "--mesh", mesh.mesh_address, "--json")
    nodes = {span["name"] for span in spans.json}
    assert {"run_node start", "run_node ask", "run_node end"} <= nodes


async def test_names_of_a_file_are_checked_against_a_mesh(mesh: MeshProcess, folder: Path) -> None:
    file = folder / "caller.yaml"
    file.write_text(CALLER)
    valid = await run_command("workflow", "validate", str(file), "--mesh", mesh.mesh_address)
    assert (valid.exit, valid.out.strip(), valid.err) == (0, f"ok  {file}", "")

    wrong = CALLER.replace("echo", "ecko").replace("parrot", "parot")
    file.write_text(wrong.replace("type: wait, duration: 1s", "type: tool, tool: math/add"))
    faults = await run_command(
        "workflow", "validate", str(file), "--json", TRUNKLINE_MESH=mesh.mesh_address
    )
    assert faults.exit == 1
    checked = faults.json[str(file)]
    assert checked["unchecked"] == []
    found = {each["line"]: each["problem"] for each in checked["faults"]}
    assert "the mesh has no agent 'ecko'; did you mean 'echo'?" in found[5]
    assert "the mesh has no tool 'math/add'" in found[6]
    assert "the mesh has no workflow 'parot'; did you mean 'parrot'?" in found[7]
    unchecked = await run("workflow", "validate", str(file))
    assert unchecked.exit == 0
    assert "agents, tools, workflows were not checked" in unchecked.err


async def test_a_started_run_is_paused_resumed_and_canceled(mesh: MeshProcess) -> None:
    started = await run("workflow", "start", "held", "--url", mesh.http_url, "--json")
    task_id = started.json["task_id"]
    where = ("--mesh", mesh.mesh_address, "--json")
    paused = await run("workflow", "pause", task_id, *where)
    resumed = await run("workflow", "resume", task_id, *where)
    assert (paused.json["paused"], resumed.json["paused"]) == (True, False)
    shown = await run("task", task_id, "--mesh", mesh.mesh_address)
    assert ", paused" not in shown.out
    await run("workflow", "pause", task_id, *where)
    shown = await run("task", task_id, "--mesh", mesh.mesh_address)
    # The pause may come before its first node.
    state = rf"state (submitted|working), paused \(`trunkline workflow resume {task_id}`"
    assert re.search(state, " ".join(shown.out.split()))
    canceled = await run("cancel", task_id, *where)
    assert canceled.json["state"] == "canceled"
    ended = await run("workflow", "pause", task_id, *where)
    assert ended.exit == 1
    assert "canceled" in ended.err


async def test_the_id_of_a_started_run_is_all_that_is_printed_and_its_path_is_drawn(
    mesh: MeshProcess, folder: Path
) -> None:
    started = await run("workflow", "start", "held", "--url", mesh.http_url)
    (task_id,) = started.out.split()
    ran = await run("workflow", "run", "parrot", "hi", "--url", mesh.http_url, "--json")
    where = ("--mesh", mesh.mesh_address, "--data", str(folder / "data"))
    drawn = await run("workflow", "show", ran.json["task_id"], *where)
    assert "class n0,n1,n2 visited" in drawn.out, drawn.err
    named = await run("workflow", "show", "parrot", *where)
    assert "ask<br/>agent echo" in named.out
    assert "visited" not in named.out
    failed = await run("workflow", "show", task_id, *where, "--failed", "hold")
    assert "a task has the path of its run" in failed.err
    elsewhere = await run(
        "workflow", "show", task_id, *where[:2], "--data", str(folder / "elsewhere")
    )
    assert "name the data directory of its mesh with --data" in elsewhere.err
    asked = await run("ask", "@echo say 7, then @echo repeat {1}", "--url", mesh.http_url, "--json")
    plan = await run("workflow", "show", asked.json["task_id"], *where)
    assert "class n1,n2 visited" in plan.out, plan.out + plan.err
    await run("cancel", task_id, "--mesh", mesh.mesh_address)
    nothing = await run("workflow", "list", "--data", str(folder / "elsewhere"))
    assert (nothing.exit, nothing.out) == (0, "")
    assert "serve one with `trunkline up --workflow FILE`" in nothing.err


async def test_a_run_is_controlled_by_graphql(mesh: MeshProcess) -> None:
    async with httpx2.AsyncClient(trust_env=False) as http:
        client = GraphQLClient(http, mesh.http_url)
        listed = await client.data("{ workflows { nodes { name definition } } }")
        names = [workflow["name"] for workflow in listed["workflows"]["nodes"]]
        assert names == ["held", "parrot"]
        started = await client.data('mutation { startWorkflow(name: "held", text: "x") { id } }')
        task_id = started["startWorkflow"]["id"]
        act = "mutation($id: ID!) {{ {}(id: $id) {{ isPaused state }} }}"
        paused = await client.data(act.format("pauseRun"), id=task_id)
        assert paused["pauseRun"]["isPaused"]
        canceled = await client.data(act.format("cancelRun"), id=task_id)
        assert canceled["cancelRun"]["state"] == "CANCELED"
        roll_back = 'mutation { rollBackWorkflow(name: "held") { version } }'
        assert await client.reason(roll_back) == "PERMISSION_DENIED"


async def test_versions_are_listed_and_rolled_back(mesh: MeshProcess, folder: Path) -> None:
    data = ("--data", str(folder / "data"))
    listed = await run("workflow", "list", *data)
    assert listed.out.splitlines() == [
        "held  version 1 of 1",
        "parrot  version 1 of 1  Repeats a sentence in a loud voice.",
    ]
    oldest = await run("workflow", "rollback", "parrot", *data)
    assert "version 1 is the oldest" in oldest.err
    versions = await run("workflow", "versions", "parrot", *data, "--json")
    assert versions.json["current"] is True


async def test_a_file_runs_on_a_mesh_of_its_own_and_a_changed_one_needs_a_new_version(
    mesh: MeshProcess, folder: Path
) -> None:
    file = folder / "parrot.yaml"
    file.write_text(PARROT.replace("polly", "coco"))
    ran = await run_command(
        "workflow",
        "run",
        str(file),
        "hi",
        "--json",
        TRUNKLINE_MCP_FILE=only_servers(folder)["TRUNKLINE_MCP_FILE"],
    )
    assert (ran.exit, ran.json["answer"]) == (0, "coco says hi"), ran.err

    free = "127.0.0.1:0"
    changed = await run_command(
        *("up", "--workflow", str(file), "--http", free, "--a2a-grpc", free, "--mesh", free),
        *("--data", str(folder / "data")),
        TRUNKLINE_MCP_FILE=only_servers(folder)["TRUNKLINE_MCP_FILE"],
    )
    assert changed.exit != 0
    assert "give the changed workflow `version: 2`" in changed.err


async def test_the_plan_of_a_task_is_saved_as_a_workflow_that_gives_the_same_answer(
    mesh: MeshProcess, folder: Path
) -> None:
    where = ("--mesh", mesh.mesh_address)
    question = "@echo say 7, then @echo repeat {1}"
    asked = await run("ask", question, "--url", mesh.http_url, "--json")
    assert asked.json["answer"] == "say 7\nsay 7", asked.out
    file = folder / "saved.yaml"

    exported = await run(
        *("workflow", "export", asked.json["task_id"], *where, "-o", str(file), "--name", "saved")
    )

    assert exported.exit == 0, exported.err
    assert "say ${input.number_1}" in file.read_text()
    valid = await run("workflow", "validate", str(file), *where)
    assert (valid.exit, valid.out) == (0, f"ok  {file}\n")
    servers = only_servers(folder)["TRUNKLINE_MCP_FILE"]
    ran = await run_command("workflow", "run", str(file), "--json", TRUNKLINE_MCP_FILE=servers)
    assert (ran.exit, ran.json["answer"]) == (0, asked.json["answer"]), ran.err

    parrot = await run("ask", "--agent", "parrot", "hi", "--url", mesh.http_url, "--json")
    of_a_run = await run("workflow", "export", parrot.json["task_id"], *where)
    assert of_a_run.exit != 0
    assert "is a run of the workflow parrot@1" in of_a_run.err
    unknown = await run("workflow", "export", "no-such-task", *where)
    assert unknown.exit != 0
    assert "no task 'no-such-task' here" in unknown.err
    missing = await run("workflow", "export", "missing.yaml", *where)
    assert "missing.yaml: can't be read" in missing.err
