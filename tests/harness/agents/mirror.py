"""Agents that answer with the JSON that they get: `mirror`, and `teller`, which asks `mirror`."""

import json

from trunkline import Part, TaskContext, agent, read_json, write_json

MODES = ["text/plain", "application/json"]


@agent(name="mirror", description="Answers with the data that it gets.", input_modes=MODES)
async def mirror(task: TaskContext) -> None:
    """Answer with the data and the metadata of the message, or with the result of a tool."""
    answer = Part(media_type="application/json")
    if task.text:
        write_json(answer.data, (await task.call_tool(task.text)).data)
    else:
        (part,) = task.message.parts
        write_json(answer.data, read_json(part.data))
        write_json(answer.metadata, read_json(part.metadata))
    await task.artifact("mirror").append(answer, last=True)


@agent(name="teller", description="Asks the mirror with the JSON of a text.")
async def teller(task: TaskContext) -> None:
    """Answer with the data of the other agent's answer."""
    (value,) = (await task.ask("mirror", json.loads(task.text))).data
    await task.artifact("answer").append(value, last=True)
