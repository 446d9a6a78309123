"""Agents that ask each other: `dinner` asks `recipe`, and then `price` for all ingredients at once.

    $ trunkline up --agent dinner:dinner --agent dinner:recipe --agent dinner:price
    $ trunkline ask --agent dinner "pancakes for 4"
    pancakes for 4: 400 g flour, 8 eggs, 800 ml milk
    It costs 4.40.

Each asked agent works on a task of its own. `trunkline trace TASK` shows all of them in one trace.
"""

import asyncio
import re
from collections.abc import AsyncIterator

from trunkline import AgentCallError, TaskContext, agent, run

RECIPES = {"pancakes": {"flour": (100, " g"), "eggs": (2, ""), "milk": (200, " ml")}}
PRICES = {"flour": 0.002, "eggs": 0.25, "milk": 0.002}


@agent(tags=["recipe"], repeatable=True)
async def recipe(task: TaskContext) -> AsyncIterator[str]:
    """Lists the ingredients of a dish for some people."""
    match = re.search(r"(\w+) for (\d+)", task.text)
    if match is None or match[1] not in RECIPES:
        await task.reject(f"I know recipes for {', '.join(RECIPES)} only")
        return
    for number, (name, (amount, unit)) in enumerate(RECIPES[match[1]].items()):
        yield f"{', ' if number else ''}{amount * int(match[2])}{unit} {name}"


@agent(tags=["price"], repeatable=True)
async def price(task: TaskContext) -> str:
    """Tells the price of an amount."""
    match = re.search(r"(\d+).* (\w+)", task.text)
    if match is None or match[2] not in PRICES:
        raise ValueError(task.text)
    return f"{int(match[1]) * PRICES[match[2]]:.2f}"


@agent(tags=["dinner"], examples=["pancakes for 4"], repeatable=True)
async def dinner(task: TaskContext) -> AsyncIterator[str]:
    """Plans a dinner and tells what it costs."""
    ingredients = task.stream("recipe", task.text)
    try:
        yield f"{task.text}: "
        async for piece in ingredients:
            yield piece
    except AgentCallError as error:
        yield f"no dinner, because {error.text}."
        return
    # If the host dies here, the repeated turn gets the prices that were asked before.
    async with asyncio.TaskGroup() as group:
        prices = [
            group.create_task(task.ask("price", amount, key=amount))
            for amount in ingredients.answer.text.split(", ")
        ]
    yield f"\nIt costs {sum(float(price.result().text) for price in prices):.2f}."


if __name__ == "__main__":
    run(dinner, recipe, price)
