"""Tables fit the terminal, ids are never cut, and times are ages."""

import io
import sys
from datetime import UTC, datetime, timedelta

import pytest
from rich.cells import cell_len

from harness.terminal import read_until, terminal
from trunkline.cli.commands.messages import print_messages
from trunkline.cli.table_layout import cut_text, join_cells, lay_out_table
from trunkline.cli.terminal import GREEN, paint_state, print_table, write
from trunkline.cli.times import parse_since, render_age, render_duration, render_expiry
from trunkline.errors import InvalidArgumentError
from trunkline.v1 import envelope_pb2

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
ID = "fbvof29w-6b04ff2b173537b660acb766"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_table_fits_and_ids_are_whole(width: int) -> None:
    rows = [(ID, "supervisor", "x" * 200), (ID, "math", "中文" * 40)]
    table = lay_out_table(("TASK", "AGENT", "DESCRIPTION"), rows, width=width)
    assert table is not None
    lines = [join_cells(cells) for cells in table]
    assert max(map(cell_len, lines)) <= width
    assert all(line.startswith(ID) and line.endswith("…") for line in lines[1:])
    assert "supervisor" in lines[1]


def test_a_table_has_any_width_in_a_pipe() -> None:
    table = lay_out_table(("NAME",), [("x" * 500,)], width=None)
    assert table == [["NAME".ljust(500)], ["x" * 500]]


def test_ids_that_do_not_fit_make_no_table() -> None:
    assert lay_out_table(("TASK", "PARENT", "AGENT"), [(ID, ID, "math")], width=60) is None


def test_cut_text_ends_with_an_ellipsis() -> None:
    assert cut_text("abcdef", 6) == "abcdef"
    assert cut_text("abcdef", 4) == "abc…"
    assert cut_text("中文中文", 4) == "中…"


def test_a_narrow_terminal_gets_no_optional_column(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch, columns=60) as reader:
        print_table(("TASK", "STATE", "PARENT"), [(ID, "completed", ID)], optional=("PARENT",))
        output = read_until(reader, b"completed\x1b[0m\n")
    assert output == f"\x1b[1mTASK{' ' * 31}STATE\x1b[0m\n{ID}  \x1b[32mcompleted\x1b[0m\n"


def test_a_terminal_too_narrow_for_ids_gets_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch, columns=40) as reader:
        print_table(("TASK", "TRACE"), [(ID, ID)])
        output = read_until(reader, f"trace  {ID}\n".encode())
    assert output == f"task   {ID}\ntrace  {ID}\n"


def test_the_lines_of_a_list_are_wrapped_and_not_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch, columns=30) as reader:
        row = ("currency/list_currencies", "", "Lists what can be converted.")
        print_table(("TOOL", "APPROVAL", "TEXT"), [row])
        output = read_until(reader, b"converted.\n")
    assert output == (
        "tool      currency/list_currencies\ntext      Lists what can be\n          converted.\n"
    )


def test_a_list_also_leaves_out_the_optional_column(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch, columns=30) as reader:
        print_table(("TASK", "AGENT", "PARENT"), [(ID, "math", ID)], optional=("PARENT",))
        assert read_until(reader, b"math\n") == f"task   {ID}\nagent  math\n"


def test_a_terminal_shows_no_empty_optional_column(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch, columns=120) as reader:
        print_table(("AGENT", "PARENT"), [("math", "")], optional=("PARENT",))
        assert "PARENT" not in read_until(reader, b"math\n")


def test_a_terminal_is_told_that_a_table_is_empty(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    print_table(("TASK",), [], empty="no tasks")
    assert capsys.readouterr().out == "TASK\n"
    with terminal(monkeypatch):
        print_table(("TASK",), [], empty="no tasks")
        assert isinstance(sys.stderr, io.StringIO)
        assert sys.stderr.getvalue() == "no tasks\n"


def test_names_of_tools_are_whole() -> None:
    rows = [("currency/list_currencies", "x" * 80)]
    assert lay_out_table(("TOOL", "DESCRIPTION"), rows, width=30) is None


def test_states_have_colours_on_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch):
        assert f"[{GREEN}mcompleted" in paint_state("completed", sys.stdout)
        assert paint_state("nothing", sys.stdout) == "nothing"
    assert paint_state("completed", io.StringIO()) == "completed"


def build_message(message_id: str) -> envelope_pb2.StoredEnvelope:
    envelope = envelope_pb2.Envelope(
        envelope_id=message_id, sender="user:anonymous", recipient="echo", type="user_message"
    )
    envelope.create_time.FromDatetime(datetime.now(UTC) - timedelta(minutes=25, seconds=30))
    delivery = envelope_pb2.Delivery(recipient="echo", state=envelope_pb2.DELIVERY_STATE_HANDLED)
    return envelope_pb2.StoredEnvelope(envelope=envelope, deliveries=[delivery])


@pytest.mark.parametrize(("columns", "fits"), [(80, "TO"), (120, "TYPE")])
def test_ids_of_messages_are_whole(
    monkeypatch: pytest.MonkeyPatch, columns: int, fits: str
) -> None:
    message_id = "05535c18-2e24-4bc5-a8ca-16a1ab368693"
    with terminal(monkeypatch, columns=columns) as reader:
        monkeypatch.setenv("NO_COLOR", "1")
        print_messages(map(build_message, (f"{message_id}.echo.1", message_id)))
        write("end\n")
        title, *rows = read_until(reader, b"end\n").splitlines()
    assert fits in title.split()
    assert rows[0].startswith(f"{message_id}.echo.1  user:")


@pytest.mark.parametrize(
    ("seconds", "age"),
    [(-5, "now"), (0, "now"), (4, "now"), (5, "5s ago"), (119, "1m ago"), (180, "3m ago"),
     (3599, "59m ago"), (7200, "2h ago"), (3 * 86400, "3d ago")],
)  # fmt: skip
def test_ages_have_the_largest_fitting_unit(seconds: int, age: str) -> None:
    assert render_age(NOW - timedelta(seconds=seconds), NOW) == age


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "5s ago"), (0, "now"), (6, "in 6s"), (180, "in 3m"), (30 * 86400, "in 30d")],
)
def test_what_expires_later_is_not_now(seconds: int, text: str) -> None:
    assert render_expiry(NOW + timedelta(seconds=seconds), NOW) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 ms"), (0.0005, "500 µs"), (0.0123, "12.3 ms"), (3.44, "3.44 s"), (59.97, "1m 0s"),
     (320, "5m 20s"), (3600 * 3 + 605, "3h 10m")],
)  # fmt: skip
def test_durations_have_a_unit(seconds: float, text: str) -> None:
    assert render_duration(seconds) == text


def test_since_is_an_age_or_a_time() -> None:
    assert parse_since("2026-11-24T12:00Z") == NOW
    assert parse_since("2026-11-24 13:00+01:00") == NOW
    age = datetime.now(UTC) - parse_since("2h")
    assert abs(age - timedelta(hours=2)) < timedelta(minutes=5)
    with pytest.raises(InvalidArgumentError, match="--since"):
        parse_since("yesterday")
