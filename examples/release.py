"""A LangGraph graph with tools, one of which needs a person's approval.

    $ trunkline up --agent release:release
    $ trunkline ask --agent release "deploy 1.2"
    release: deploy with {"version": "1.2"} needs your approval (ID).
    $ trunkline approve ID              # or: trunkline ask --task TASK approve

`plan` matches a pattern here; call a model instead: `await model.bind_tools(TOOLS).ainvoke(…)`.
"""

import re
from typing import cast

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt

from trunkline import from_langgraph, run

DEPLOYED = ["1.0", "1.1"]


@tool
def deploy(version: str) -> str:
    """Deploy a version."""
    DEPLOYED.append(version)
    return f"{version} is deployed."


@tool
def versions() -> str:
    """List the deployed versions."""
    return ", ".join(DEPLOYED)


def plan(state: MessagesState) -> Command[str]:
    """Choose a tool, or answer with a tool's result."""
    last = state["messages"][-1]
    if isinstance(last, ToolMessage):
        return Command(update={"messages": [AIMessage(last.text)]}, goto=END)
    match = re.search(r"deploy (\S+)", last.text)
    name, arguments = ("deploy", {"version": match[1]}) if match else ("versions", {})
    call = {"name": name, "args": arguments, "id": f"call-{len(state['messages'])}"}
    reply = AIMessage("", tool_calls=[call])
    return Command(update={"messages": [reply]}, goto="approve" if match else "tools")


def approve(state: MessagesState) -> Command[str]:
    """Ask a person. The turn ends here; the answer may come days later, on another host."""
    reply = cast("AIMessage", state["messages"][-1])
    call = reply.tool_calls[0]
    request = {"name": call["name"], "args": call["args"]}
    answer = interrupt({"action_requests": [request], "review_configs": []})
    decision = answer["decisions"][0]
    if decision["type"] == "reject":
        refusal = ToolMessage(f"Not deployed: {decision['message']}.", tool_call_id=call["id"])
        return Command(update={"messages": [refusal]}, goto="plan")
    if decision["type"] == "edit":
        edited_call = {**call, "args": decision["edited_action"]["args"]}
        reply = reply.model_copy(update={"tool_calls": [edited_call]})
    return Command(update={"messages": [reply]}, goto="tools")


graph = StateGraph(MessagesState)
graph.add_node("plan", plan, destinations=("approve", "tools", END))
graph.add_node("approve", approve, destinations=("plan", "tools"))
graph.add_node("tools", ToolNode([deploy, versions]))
graph.add_edge(START, "plan")
graph.add_edge("tools", "plan")

release = from_langgraph(
    graph.compile(),
    name="release",
    description="Deploys versions after an approval, and lists those deployed.",
    tags=["release", "deploy", "version", "versions"],
    examples=["deploy 1.2", "which versions were deployed?"],
)

if __name__ == "__main__":
    run(release)
