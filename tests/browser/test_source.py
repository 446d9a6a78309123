"""The page's source: its types, its libraries, and what it loads."""

import hashlib
import json
import re
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from harness.browser import PARTNERS, ROOT
from trunkline.cli.event_lines import EventDescriber
from trunkline.cli.times import render_age, render_duration, render_percent
from trunkline.json_values import message_to_dict
from trunkline.v1 import event_pb2

STATIC = ROOT / "bridge/trunkline_bridge/api/page/static"
VENDOR = STATIC / "assets/vendor"
IMPORTED = re.compile(r"""(?:\bfrom |\bimport |\bimport\()"(\.{1,2}/[^"\n]+)["]""")


def sources() -> list[Path]:
    return [path for path in (STATIC / "assets").rglob("*.js") if VENDOR not in path.parents]


def run_script(code: str) -> Any:
    """Run a module in Node.js, which can import those of the page, and return what it prints."""
    run = subprocess.run(
        [ROOT / ".venv-partners/bin/node", "--input-type=module", "-"],
        input=code,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(run.stdout)


def show_events(*events: event_pb2.Event) -> list[dict[str, str]]:
    """Return the entries of the page's timeline for events."""
    written = [
        {"sequence": number, "time": "", "event": message_to_dict(event)}
        for number, event in enumerate(events, 1)
    ]
    entries: list[dict[str, str]] = run_script(f"""
        import {{ appendEvents }} from "{(STATIC / "assets/store/task_events.js").as_uri()}";
        const entries = [];
        appendEvents(entries, {json.dumps(written)});
        console.log(JSON.stringify(entries.map(({{ title, detail }}) => ({{ title, detail }}))));
    """)
    return entries


def test_types_are_right() -> None:
    compiler = PARTNERS / "typescript/bin/tsc"
    node = ROOT / ".venv-partners/bin/node"
    check = subprocess.run(
        [node, compiler, "--project", ROOT / "bridge/tsconfig.json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (check.returncode, check.stdout) == (0, "")


def test_times_and_shares_are_written_as_in_the_terminal() -> None:
    seconds = [0, 0.0004, 0.0123, 0.3, 0.9994, 1, 3.764, 59.94, 59.97, 61, 125, 3599, 3601, 90_061]
    ratios = [0, 0.004, 0.0994, 0.0996, 0.883, 1]
    now = datetime.now(UTC)
    expected = [
        [render_age(now - timedelta(seconds=each), now) for each in seconds],
        [render_duration(each) for each in seconds],
        [render_percent(each) for each in ratios],
    ]
    source = (STATIC / "assets/format.js").read_text(encoding="utf-8")
    code = f"""
        const {{ age, duration, percent }} = await import({json.dumps("data:text/javascript,")}
          + encodeURIComponent({json.dumps(source)}));
        const seconds = {json.dumps(seconds)};
        console.log(JSON.stringify([seconds.map((each) => age(0, each * 1000)),
          seconds.map((each) => duration(each * 1000)), {json.dumps(ratios)}.map(percent)]));
    """
    assert run_script(code) == expected


def test_integers_that_a_double_rounds_are_shown_and_sent_exactly() -> None:
    text = '{"id":9007199254740993,"least":-18446744073709551617,"small":5,"half":0.5,"z":[]}'
    shown = run_script(f"""
        import {{ parseJson, toNumber }} from "{(STATIC / "assets/json.js").as_uri()}";
        const value = parseJson({json.dumps(text)});
        console.log(JSON.stringify([
          JSON.stringify(value), String(value.id), typeof value.small,
          ...["9007199254740993", "1e3", "x"].map((each) => String(toNumber(each))),
        ]));
    """)
    assert shown == [text, "9007199254740993", "number", "9007199254740993", "1000", "NaN"]


@pytest.mark.parametrize("agents", [["math"], [""], ["", "math"], ["math", "", ""]])
def test_the_steps_of_a_plan_are_named_as_in_the_terminal(agents: list[str]) -> None:
    event = event_pb2.Event()
    for agent in agents:
        event.plan.steps.add(agent=agent, text="start")
    [entry] = show_events(event)
    _, _, line = EventDescriber().describe(event, "t-1").partition(": ")
    assert entry["detail"].split(" · ") == line.split("; ")


def test_an_event_without_content_has_no_word_of_the_language() -> None:
    events = []
    for field in event_pb2.Event.DESCRIPTOR.fields:
        event = event_pb2.Event()
        getattr(event, field.name).SetInParent()
        events.append(event)
    plan = event_pb2.Event()
    plan.plan.steps.add()
    shown = show_events(*events, plan)
    assert len(shown) == len(events) + 1
    assert not re.search("undefined|null|NaN", json.dumps(shown))


def test_times_between_events_are_written_as_in_the_terminal() -> None:
    start = 1_700_000_000_123_456_789
    lengths_ns = [
        0,
        800,
        462_000,
        1_640_123,
        28_000_400,
        999_700_000,
        3_764_000_000,
        90_061 * 10**9,
    ]
    times = [Timestamp(), *(Timestamp() for _ in lengths_ns)]
    for time, length in zip(times, [0, *lengths_ns], strict=True):
        time.FromNanoseconds(start + length)
    first, *others = (time.ToJsonString() for time in times)
    shown = run_script(f"""
        import {{ duration, elapsedMs }} from "{(STATIC / "assets/format.js").as_uri()}";
        const others = {json.dumps(others)};
        console.log(JSON.stringify(others.map((time) => duration(elapsedMs("{first}", time)))));
    """)
    assert shown == [render_duration(length / 1e9) for length in lengths_ns]
    assert shown[1:4] == ["1 µs", "462 µs", "1.64 ms"]


def test_no_duration_is_taken_from_times_without_microseconds() -> None:
    """`timeMs` is for clocks and ages alone: a Date has whole milliseconds."""
    for path in sources():
        found = re.findall(r"timeMs\([^()]*\) - timeMs\(", path.read_text(encoding="utf-8"))
        assert not found, path


def test_libraries_are_those_of_the_manifest() -> None:
    manifest = json.loads((VENDOR / "manifest.json").read_text())
    files = {path.name: path for path in VENDOR.iterdir() if path.name != "manifest.json"}
    hashes = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    assert hashes == manifest["files"]
    lock = json.loads((ROOT / "requirements/page/package-lock.json").read_text())["packages"]
    licences = (VENDOR / "LICENSES.txt").read_text()
    for package in manifest["packages"]:
        name, version = package["name"], package["version"]
        assert lock[f"node_modules/{name}"]["version"] == version
        assert f"{name} {version} ({package['licence']})" in licences


def test_every_import_and_style_sheet_is_a_file_of_the_page() -> None:
    for path in sources():
        text = path.read_text(encoding="utf-8")
        for target in IMPORTED.findall(text):
            assert (path.parent / target).is_file(), f"{path}: {target}"
    for name in re.findall(r'styles: "([^"]+)"', (STATIC / "assets/views.js").read_text()):
        assert (STATIC / f"assets/styles/views/{name}.css").is_file(), name


def test_modules_are_not_too_long() -> None:
    lengths = {path.name: len(path.read_text().splitlines()) for path in sources()}
    assert {name: lines for name, lines in lengths.items() if lines > 400} == {}
