"""`trunkline trace` says of a trace what the API of the page says."""

from pathlib import Path
from typing import Any

import httpx2

from harness.a2a.sse_client import call, user_message
from harness.mesh.command_line import run_command
from harness.mesh.processes import MeshProcess, running_mesh
from trunkline.cli.times import render_latency


async def ask(mesh: MeshProcess, text: str, path: str = "/") -> dict[str, Any]:
    params = {"message": user_message(text)}
    answer = await call(mesh.http_url, path, "SendMessage", params)
    task: dict[str, Any] = answer["result"]["task"]
    return task


async def read_page(mesh: MeshProcess, task_id: str) -> dict[str, Any]:
    """Return what the page gets of the trace of a task."""
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
        answer = await client.get(f"{mesh.http_url}/ui/api/tasks/{task_id}/trace")
    assert answer.status_code == 200, answer.text
    read: dict[str, Any] = answer.json()
    return read


async def trace(mesh: MeshProcess, task_id: str, *options: str) -> Any:
    """Return what the command prints, once all spans are there."""
    done = await run_command("trace", task_id, "--mesh", mesh.mesh_address, *options)
    assert done.exit == 0, done.err
    return done.json if options else done.out


async def test_the_command_and_the_page_say_the_same(tmp_path: Path) -> None:
    async with running_mesh(tmp_path, servers=("math",)) as mesh:
        task_id = (await ask(mesh, "what is 19 * 23?"))["id"]
        failed = (await ask(mesh, "fail on purpose", "/agents/echo"))["id"]
        for wanted in (task_id, failed):
            rows = await trace(mesh, wanted, "--json")
            summary, _, *lines = (await trace(mesh, wanted)).splitlines()
            page = await read_page(mesh, wanted)
            (totals,) = page["traces"]
            assert [
                (row["span_id"], row["name"], row["service"], row["depth"], row["is_critical"])
                for row in rows
            ] == [
                (span["spanId"], span["name"], span["service"], span["depth"], span["isCritical"])
                for span in page["spans"]
            ]
            assert [row["self_ms"] for row in rows] == [
                round(span["selfMs"], 3) for span in page["spans"]
            ]
            assert f"trace {totals['traceId']}: {len(rows)} spans" in summary
            assert render_latency(totals["durationMs"]) in summary
            assert f"{len(totals['services'])} services" in summary
            errors = totals["errors"]
            assert f", {errors} error{'' if errors == 1 else 's'}" in summary
            for line, span in zip(lines, page["spans"], strict=True):
                assert f"{span['service']}  {span['name']}" in line
                assert ("*" in line.split(span["service"])[0]) is span["isCritical"]
                error_type = span.get("attributes", {}).get("error.type", "failed")
                assert line.endswith(f"! {error_type}") is bool(span.get("isError"))
            if wanted == failed:
                assert errors > 0
                continue
            assert totals["modelCalls"] >= 1
            assert f"{totals['modelCalls']} model call" in summary
