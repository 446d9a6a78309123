"""A workflow with nodes of all types, in a process that tests kill.

`journey` adds a line to the file `notes` in the folder WORKFLOW_FOLDER at its actions. The agents
that it asks run elsewhere, and so does the messaging service.
"""

import os
import signal
from pathlib import Path

from harness.workflows.building import action_node, agent_node, build
from harness.workflows.kill_points import install_kill_points
from trunkline import from_workflow, run
from trunkline.workflows.compiler import compile_workflow

NOTE = "harness.workflows.functions:note"

JOURNEY = build(
    "journey",
    action_node("note", handler=NOTE, config={"line": "first"}),
    {"id": "size", "type": "condition", "cases": [{"label": "long", "when": "last.text != ''"}]},
    agent_node("ask", "double", "21"),
    {"id": "shop", "type": "tool", "tool": "shop/order", "arguments": {"n": 1, "item": "pen"}},
    {"id": "fork", "type": "parallel", "join": "joined"},
    agent_node("left", "double", "1"),
    agent_node("left_again", "double", "${last.text}"),
    {"id": "sure", "type": "approval", "question": "Sure?"},
    {"id": "inner", "type": "workflow", "workflow": "inner", "inputs": {"n": 3}},
    action_node("joined", set={"inner": "${nodes.inner.data.n}"}),
    {"id": "nap", "type": "wait", "duration": "300ms"},
    action_node("tell", handler="send", config={"recipient": "double", "text": "5"}),
    {"id": "hear", "type": "wait", "message": "user_message"},
    action_node("note_again", handler=NOTE, config={"line": "last"}),
    {
        "id": "end",
        "output": {
            "text": "${nodes.ask.text} ${nodes.left_again.text} "
            "${string(data.inner)} ${nodes.hear.text}"
        },
    },
    edges="""start > note > size > ask: long
        size > ask
        ask > shop > fork
        shop > fork: failed
        fork > left > left_again > joined
        fork > sure > inner: approved
        sure > joined: rejected
        inner > joined
        joined > nap > tell > hear > note_again > end""",
)
INNER = build(
    "inner",
    agent_node("ask", "double", "${string(input.n)}"),
    {"id": "end", "output": {"n": "${int(nodes.ask.text)}"}},
    edges="start > ask > end",
)


def serve_again_and_again() -> None:
    """Serve in a child process, in a further one each time when it has died.

    The modules are loaded before, because that takes longer than all else of a start. The file
    `hosts` in the folder WORKFLOW_FOLDER has the id of each child in a line. SIGTERM ends both.
    """
    ends = False
    child = 0

    def end(*_args: object) -> None:
        nonlocal ends
        ends = True
        if child:
            os.kill(child, signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    install_kill_points()
    # It loads LangGraph, too.
    compile_workflow(JOURNEY)
    while not ends:
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            run(from_workflow(JOURNEY), from_workflow(INNER))
            return
        with (Path(os.environ["WORKFLOW_FOLDER"]) / "hosts").open("a", encoding="utf-8") as file:
            file.write(f"{child}\n")
        os.waitpid(child, 0)


if __name__ == "__main__":
    serve_again_and_again()
