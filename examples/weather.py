"""A model that calls tools, in a LangGraph graph. Its tokens reach the client as they are written.

    $ OPENAI_API_KEY=… trunkline up --agent weather:weather
    $ trunkline ask --agent weather "do I need a coat in Oslo?"
    Yes, it is 4 °C in Oslo.

`pip install 'trunkline[openai]'` brings the client. WEATHER_MODEL names the model, OPENAI_BASE_URL
any server that speaks OpenAI's API. Each model call counts for the limits of the request.
"""

import os

from langchain_core.messages import SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from trunkline import from_langgraph, run

TEMPERATURES = {"Oslo": 4, "Rome": 19}
INSTRUCTIONS = SystemMessage("Advise on the weather, by the temperature that a tool tells.")


@tool
def temperature(city: str) -> str:
    """Return the temperature in a city."""
    return f"{TEMPERATURES[city]} °C" if city in TEMPERATURES else f"{city} is not known."


model = ChatOpenAI(model=os.environ.get("WEATHER_MODEL", "gpt-5-mini")).bind_tools([temperature])


async def advise(state: MessagesState) -> MessagesState:
    """Call the model, which answers or calls tools."""
    return {"messages": [await model.ainvoke([INSTRUCTIONS, *state["messages"]])]}


graph = StateGraph(MessagesState)
graph.add_node("advise", advise)
graph.add_node("tools", ToolNode([temperature]))
graph.add_edge(START, "advise")
graph.add_conditional_edges("advise", tools_condition)  # to the tools, or to the end
graph.add_edge("tools", "advise")

weather = from_langgraph(
    graph.compile(),
    name="weather",
    description="Advises on the weather.",
    tags=["weather", "coat", "umbrella"],
    examples=["do I need a coat in Oslo?"],
)

if __name__ == "__main__":
    run(weather)
