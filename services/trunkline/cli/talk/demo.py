"""`trunkline demo`: the main job on a mesh that lives as long as the demo."""

import sys
import time

from trunkline.cli.inside.mesh import open_view
from trunkline.cli.inside.trace import render, whole_trace
from trunkline.cli.outcome import Exit
from trunkline.cli.talk.answer import Answer
from trunkline.cli.talk.client import A2AClient
from trunkline.cli.talk.ephemeral import ephemeral_mesh
from trunkline.cli.talk.turn import Outcome, outcome_of, show_end, shown_answer, take_turn
from trunkline.cli.terminal import BOLD, paint, print_json
from trunkline.traces.tree import TraceTree

# The last one is answered by two agents in parallel; its trace is shown.
QUESTIONS = (
    "what is 1+2",
    "solve x^2-5x+6=0",
    "100 USD to EUR on 2020-03-02",
    "what is 15% of 240, and convert 36 USD to EUR",
)


async def demo(*, as_json: bool) -> Exit:
    """Start a mesh, ask it questions, show what it answers and the trace of the last answer.

    The exit code is 0 if every question was answered and the trace is whole.
    """
    if not as_json:
        print("starting a mesh of its own", flush=True)
    async with ephemeral_mesh() as mesh:
        async with A2AClient(mesh.http) as client:
            outcomes = [await _ask(client, question, as_json=as_json) for question in QUESTIONS]
        async with open_view(mesh.mesh) as view:
            spans = await whole_trace(view.traces(), outcomes[-1].trace_id)
    tree = TraceTree.build(spans)
    if as_json:
        print_json([one.as_json() for one in outcomes])
    else:
        print("\n".join(["", *render(tree)]), flush=True)
    is_well = tree.is_complete and all(one.exit is Exit.OK for one in outcomes)
    return Exit.OK if is_well else Exit.FAILED


async def _ask(client: A2AClient, question: str, *, as_json: bool) -> Outcome:
    if as_json:
        answer = Answer(write=lambda text: None)
    else:
        print(paint(f"\n> {question}", BOLD, sys.stdout), flush=True)
        answer = shown_answer(continues=False)
    started = time.monotonic()
    await take_turn(client, answer, question)
    took_ms = (time.monotonic() - started) * 1000
    outcome = await outcome_of(client, answer, agent=None)
    if not as_json:
        show_end(answer)
        print(f"  [{outcome.agent}, confidence {outcome.confidence or 0:.2f}, {took_ms:.0f} ms]")
    return outcome
