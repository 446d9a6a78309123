"""An agent with typed settings that reads a CSV file and writes a JSON file.

    $ trunkline up --agent report.agent:report
    $ curl http://127.0.0.1:8000/agents/report/message:send -H 'Content-Type: application/json' -d \
      '{"message":{"messageId":"m-1","role":"ROLE_USER","parts":[{"raw":"YSxiCjEsMgozLDQK",
        "mediaType":"text/csv","filename":"table.csv"}]}}'

Run its tests with `pytest report`.
"""

import csv
import io
import json

from pydantic import BaseModel, Field

from trunkline import Part, TaskContext, agent, run


class Settings(BaseModel):
    """`[agent.report.options]` of trunkline.toml, or TRUNKLINE_AGENT_REPORT_… variables."""

    delimiter: str = Field(default=",", min_length=1, max_length=1)
    row_limit: int = 10_000


@agent(
    name="report",
    description="Adds up the columns of a CSV file.",
    tags=["report", "csv", "table", "columns"],
    input_modes=["text/plain", "text/csv"],
    output_modes=["text/plain", "application/json"],
    settings=Settings,
)
async def report(task: TaskContext[Settings]) -> None:
    """Write the sum of each column as a line, and all of them as a JSON file."""
    tables = [part for part in task.message.parts if part.media_type == "text/csv"]
    if not tables:
        await task.require_input("Send a CSV file.")
        return
    # `read` accepts inline content, content stored by the mesh, and URLs.
    text = (await task.read(tables[0])).decode("utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(text), delimiter=task.settings.delimiter))
    if len(rows) > task.settings.row_limit:
        await task.reject(f"The table has more than {task.settings.row_limit} rows.")
        return
    sums = {name: sum(map(number, (row[name] for row in rows))) for name in (rows or [{}])[0]}
    lines = task.artifact("sums")
    for name, total in sums.items():
        await lines.append(f"{name}: {total:g}\n")
    await lines.close()
    content = json.dumps(sums).encode()
    file = Part(raw=content, media_type="application/json", filename="sums.json")
    await task.artifact("file").append(file, last=True)


def number(cell: str | None) -> float:
    """Return the number in a cell; 0 for text."""
    try:
        return float(cell or 0)
    except ValueError:
        return 0.0


if __name__ == "__main__":
    run(report)
