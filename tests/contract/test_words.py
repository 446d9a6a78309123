"""The command line and the page have the same words for events and for the columns of tables."""

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

import pytest

from trunkline.cli import task_list, top, trace
from trunkline.cli.commands import messages, webhooks
from trunkline.cli.event_lines import EVENT_WORDS, FAILURE_WORDS
from trunkline.cli.terminal import STATE_COLOURS
from trunkline.mesh.client.mesh_words import tool_server_state
from trunkline.v1 import event_pb2, tool_service_pb2

ROOT: Final = Path(__file__).resolve().parents[2]
ASSETS: Final = ROOT / "bridge/trunkline_bridge/api/page/static/assets"
COLUMN: Final = re.compile(r'key: "\w+",\s+title: "([^"]+)"')

TABLES: Final[Mapping[str, tuple[Collection[str], str, str, Collection[str]]]] = {
    # The terminal's columns, the page's file, the name of its table, and the columns that only the
    # terminal has: ids, which the page has as links of a row, and what the page shows elsewhere.
    "messages": (messages.MESSAGE_COLUMNS, "messages", "COLUMNS", {"MESSAGE"}),
    "dead letters": (messages.DEAD_LETTER_COLUMNS, "messages", "DEAD_COLUMNS", {"MESSAGE"}),
    "webhooks": (webhooks.COLUMNS, "webhooks", "COLUMNS", {"WEBHOOK"}),
    "tasks": (task_list.COLUMNS, "tasks", "COLUMNS", {"SINCE"}),
    "traces": (trace.COLUMNS, "traces", "makeColumns", set()),
    "agents": (
        top.TABLES["agents"].values(), "mesh", "AGENT_COLUMNS", {"WORKING", "WAITING", "TOKENS/S"}
    ),
    "calls": (top.TABLES["edges"].values(), "mesh", "EdgeTable", set()),
    "hosts": (top.TABLES["hosts"].values(), "mesh", "HOST_COLUMNS", set()),
}  # fmt: skip


def read_words(name: str) -> dict[str, str]:
    """Return a table of words of the page, with the names of the contract as keys."""
    source = (ASSETS / "store/event_words.js").read_text(encoding="utf-8")
    found = re.search(rf"export const {name} = (\{{.*?\n\}});", source, re.DOTALL)
    assert found
    text = re.sub(r"^  (\w+):", r'  "\1":', found[1], flags=re.MULTILINE)
    words: dict[str, str] = json.loads(text.replace(",\n}", "\n}"))
    return {re.sub("[A-Z]", lambda upper: f"_{upper[0].lower()}", key): word
            for key, word in words.items()}  # fmt: skip


def read_titles(file: str, table: str) -> set[str]:
    """Return the titles of a table's columns on the page, from its constant or function."""
    source = (ASSETS / f"views/{file}.js").read_text(encoding="utf-8")
    found = re.search(rf"(?:const|function) {table}\b.*?\n[\]}}]", source, re.DOTALL)
    assert found, f"{file}.js has no {table}"
    return set(COLUMN.findall(found[0]))


def test_events_have_the_same_words_in_the_terminal_and_on_the_page() -> None:
    assert read_words("EVENT_WORDS") == EVENT_WORDS
    assert read_words("FAILURE_WORDS") == FAILURE_WORDS


def test_every_kind_of_event_has_a_word_of_its_own() -> None:
    assert set(EVENT_WORDS) == {field.name for field in event_pb2.Event.DESCRIPTOR.fields}
    words = [*EVENT_WORDS.values(), *FAILURE_WORDS.values()]
    assert len(set(words)) == len(words)


@pytest.mark.parametrize("name", TABLES)
def test_columns_have_the_same_words_in_the_terminal_and_on_the_page(name: str) -> None:
    titles, file, table, own = TABLES[name]
    shown = {title.upper() for title in read_titles(file, table)}
    assert {title for title in titles if title not in shown} == own


def test_states_of_tool_servers_are_words_that_the_terminal_paints() -> None:
    states = (number for number in tool_service_pb2.ToolServerState.values() if number)
    words = {tool_server_state(tool_service_pb2.ToolServer(state=state)) for state in states}
    assert words == {"idle", "starting", "ready", "failed", "needs_sign_in"}
    assert words <= STATE_COLOURS.keys()


def test_states_of_deliveries_have_the_same_words() -> None:
    source = (ASSETS / "views/message_parts.js").read_text(encoding="utf-8")
    found = re.search(r"DELIVERY_TONES = \{(.*?)\}", source)
    assert found
    assert set(re.findall(r"(\w+):", found[1])) == messages.STATES.keys()
    assert f">{messages.STORED}<" in source
