"""The questions of `trunkline demo`."""

import sys
import time

from trunkline.cli.agent_client import AgentClient
from trunkline.cli.ask import TurnReport, build_report, send_turn, show_end, terminal_answer
from trunkline.cli.streamed_answer import StreamedAnswer
from trunkline.cli.terminal import BOLD, paint
from trunkline.cli.times import render_percent

# Two agents answer the last question in parallel, so its trace is the one to show.
QUESTIONS = (
    "what is 1+2",
    "solve x^2-5x+6=0",
    "100 USD to EUR on 2020-03-02",
    "what is 15% of 240, and convert 36 USD to EUR",
)


async def ask_and_show(client: AgentClient, question: str, *, as_json: bool) -> TurnReport:
    """Ask a question; print it with the answer, and who gave that."""
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
