"""`trunkline demo`: asks questions on a temporary mesh, and shows the trace of the last answer."""

import sys
import time

from trunkline.cli.agent_client import AgentClient
from trunkline.cli.ask import TurnReport, build_report, send_turn, show_end, terminal_answer
from trunkline.cli.ephemeral_mesh import start_ephemeral_mesh
from trunkline.cli.exits import ExitCode
from trunkline.cli.mesh_view import open_mesh_view
from trunkline.cli.streamed_answer import StreamedAnswer
from trunkline.cli.terminal import BOLD, paint, print_json
from trunkline.cli.times import render_percent
from trunkline.cli.trace import fetch_trace, render_trace
from trunkline.client.trace_tree import TraceTree

# Two agents answer the last question in parallel, so its trace is the one to show.
QUESTIONS = (
    "what is 1+2",
    "solve x^2-5x+6=0",
    "100 USD to EUR on 2020-03-02",
    "what is 15% of 240, and convert 36 USD to EUR",
)


async def demo(*, as_json: bool) -> ExitCode:
    """Start a mesh, ask it questions, print the answers and the trace of the last one.

    The exit code is 0 if every question was answered and the trace is complete.
    """
    if not as_json:
        print("starting a temporary mesh", flush=True)
    async with start_ephemeral_mesh() as mesh:
        async with AgentClient(mesh.http) as client:
            reports = [await _ask(client, question, as_json=as_json) for question in QUESTIONS]
        async with open_mesh_view(mesh.mesh) as view:
            spans = await fetch_trace(view.trace_client(), reports[-1].trace_id)
    tree = TraceTree.build(spans)
    if as_json:
        print_json([report.to_json() for report in reports])
    else:
        print("\n".join(["", *render_trace(tree)]), flush=True)
    is_ok = tree.is_complete and all(report.exit_code is ExitCode.OK for report in reports)
    return ExitCode.OK if is_ok else ExitCode.FAILED


async def _ask(client: AgentClient, question: str, *, as_json: bool) -> TurnReport:
    if as_json:
        answer = StreamedAnswer(write=lambda text: None)
    else:
        print(paint(f"\n> {question}", BOLD, sys.stdout), flush=True)
        answer = terminal_answer(continues=False)
    started = time.monotonic()
    await send_turn(client, answer, question)
    took_ms = (time.monotonic() - started) * 1000
    report = await build_report(client, answer, agent=None)
    if not as_json:
        show_end(answer)
        confidence = render_percent(report.confidence or 0)
        print(f"  [{report.agent}, confidence {confidence}, {took_ms:.0f} ms]")
    return report
