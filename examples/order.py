"""Tools of an MCP server: the server is an agent, and other agents call its tools.

    $ trunkline up --mcp stock.json --agent order:order
    $ trunkline ask --agent stock "how many apples are there?"
    5
    $ trunkline ask --agent order "3 pears"
    Only 0 pears are in stock.
    $ trunkline ask --agent order "3 apples"
    order: stock/take with {"item": "apples", "number": 3} needs your approval (TASK.1).
    Answer "approve", "reject" and why, or "edit" and other arguments as JSON.
    $ trunkline ask --agent order --task TASK approve
    2 apples are left.

The server is stock.py; stock.json says how it is started.
"""

import re

from trunkline import TaskContext, agent, run


@agent(tags=["order"], examples=["3 apples"])
async def order(task: TaskContext) -> str | None:
    """Orders what is in stock."""
    match = re.fullmatch(r"(\d+) (\w+)", task.text)
    if match is None:
        await task.reject('Say "3 apples".')
        return None
    number, item = int(match[1]), match[2]
    count = int((await task.call_tool("stock/count", {"item": item})).text)
    if count < number:
        return f"Only {count} {item} are in stock."
    # The function stops here. After the answer it runs again from its start, with the same message.
    taken = await task.call_tool("stock/take", {"item": item, "number": number})
    return f"Not ordered: {taken.text}" if taken.is_error else taken.text


if __name__ == "__main__":
    run(order)
