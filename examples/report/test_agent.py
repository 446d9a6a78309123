"""Tests of the agent, each on a local mesh: run `pytest report` in the folder of examples."""

import json

from report.agent import report
from trunkline import Part, TaskState
from trunkline.testing import async_test, mesh

TABLE = Part(raw=b"a,b\n1,2\n3,x\n", media_type="text/csv", filename="table.csv")


@async_test
async def test_a_table_is_added_up() -> None:
    async with mesh(report) as m:
        answer = await m.ask("please", TABLE)
    assert answer.state is TaskState.COMPLETED
    assert answer.text == "a: 4\nb: 2\n"
    (file,) = answer.artifacts[1].parts
    assert (file.filename, json.loads(file.raw)) == ("sums.json", {"a": 4.0, "b": 2.0})


@async_test
async def test_it_asks_for_a_file() -> None:
    async with mesh(report) as m:
        asked = await m.ask("add it up")
        assert (asked.state, asked.status_text) == (TaskState.INPUT_REQUIRED, "Send a CSV file.")
        assert (await m.ask(TABLE, task=asked)).state is TaskState.COMPLETED


@async_test
async def test_its_settings_apply() -> None:
    table = Part(raw=b"a;b\n1;2\n3;4\n", media_type="text/csv")
    async with mesh(report, options={"report": {"delimiter": ";", "row_limit": 1}}) as m:
        answer = await m.ask(table)
    assert (answer.state, answer.status_text) == (
        TaskState.REJECTED,
        "The table has more than 1 rows.",
    )
