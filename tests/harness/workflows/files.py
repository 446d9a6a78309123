"""Valid workflow files, and seeded mutations of them."""

import copy
import json
import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final, TypeAlias

import yaml

REVIEW: Final = """\
name: review
version: 2
description: A writer proposes, a reviewer scores.
inputs:
  type: object
  required: [text]
  properties: {text: {type: string}, rounds: {type: integer}}
limits: {steps: 30, time: 1h}
nodes:
  - {id: start, type: start}
  - {id: draft, type: agent, agent: writer, message: "${input.text}", timeout: 30s}
  - {id: score, type: agent, agent: reviewer, message: {proposal: "${nodes.draft.text}"}}
  - id: check
    type: condition
    cases:
      - {label: good, when: "nodes.score.data.score >= 80"}
      - {label: again, when: "steps < 12 && has(nodes.draft)"}
    otherwise: person
  - {id: ask, type: approval, question: "Publish ${nodes.draft.text}?", arguments: {text: x}}
  - {id: keep, type: action, set: {stop: true, text: "${nodes.draft.text}"}}
  - {id: tell, type: action, handler: broadcast, config: {room: main}}
  - {id: end, type: end, output: "${nodes.draft.text}"}
  - {id: refused, type: end, state: rejected}
edges:
  - {from: start, to: draft}
  - {from: draft, to: score}
  - {from: score, to: check}
  - {from: check, to: keep, condition: good}
  - {from: check, to: draft, condition: again}
  - {from: check, to: ask, condition: person}
  - {from: ask, to: keep, condition: approved}
  - {from: ask, to: refused, condition: rejected}
  - {from: keep, to: tell}
  - {from: tell, to: end}
  - {from: tell, to: refused, condition: failed, priority: 2}
"""
PARALLEL: Final = """\
name: both
nodes:
  - {id: start, type: start}
  - {id: outer, type: parallel, join: merge}
  - {id: a, type: tool, tool: math/add, arguments: {values: [1, "${input.number}"]}}
  - {id: inner, type: parallel, join: met}
  - {id: b, type: wait, message: vote, when: "message.data.ok == true", duration: 5m}
  - {id: c, type: workflow, workflow: other, inputs: {text: "${last.text}"}}
  - {id: met, type: action, set: {votes: "${nodes.b.data}"}}
  - {id: late, type: action, set: {late: true}}
  - {id: merge, type: action, handler: "json:dumps"}
  - {id: end, type: end}
edges:
  - {from: start, to: outer}
  - {from: outer, to: a}
  - {from: outer, to: inner}
  - {from: inner, to: b}
  - {from: inner, to: c}
  - {from: b, to: met}
  - {from: b, to: late, condition: timeout, priority: 1}
  - {from: late, to: met}
  - {from: c, to: met}
  - {from: met, to: merge}
  - {from: a, to: merge}
  - {from: merge, to: end}
"""
DICTIONARY: Final[dict[str, Any]] = {
    "nodes": [
        {"id": "start", "type": "start", "handler": None, "config": {}},
        {"id": "student-proposes", "type": "agent", "handler": "student", "config": {}},
        {"id": "teacher", "type": "agent", "handler": "teacher"},
        {"id": "approved", "type": "condition", "handler": "json:loads", "config": {}},
        {"id": "publish", "type": "action", "handler": "broadcast", "config": {"room": "main"}},
        {"id": "end", "type": "end", "handler": None, "config": {}},
    ],
    "edges": [
        {"from_node": "start", "to_node": "student-proposes", "condition": None, "priority": 0},
        {"from_node": "student-proposes", "to_node": "teacher", "condition": None},
        {"from_node": "teacher", "to_node": "approved"},
        {"from_node": "approved", "to_node": "publish", "condition": "true", "priority": 1},
        {"from_node": "approved", "to_node": "end", "condition": "false"},
        {"from_node": "publish", "to_node": "end"},
    ],
}
SHARED_JOIN: Final = """\
nodes:
  - {id: choose, type: condition, handler: "json:loads"}
  - {id: one, type: parallel, join: met}
  - {id: inner, type: parallel, join: met}
  - {id: two, type: parallel, join: met}
  - {id: a, type: action, config: {}, handler: "json:dumps"}
  - {id: b, type: agent, handler: student}
  - {id: met, type: action, handler: "json:dumps"}
  - {id: end, type: end}
edges:
  - {from_node: choose, to_node: one, condition: "true"}
  - {from_node: choose, to_node: two}
  - {from_node: one, to_node: a}
  - {from_node: one, to_node: inner}
  - {from_node: a, to_node: met}
  - {from_node: inner, to_node: b}
  - {from_node: inner, to_node: met}
  - {from_node: b, to_node: met}
  - {from_node: two, to_node: met}
  - {from_node: two, to_node: met}
  - {from_node: met, to_node: end}
start_node: choose
"""
VALID: Final = (
    *(REVIEW.encode(), PARALLEL.encode(), SHARED_JOIN.encode()),
    json.dumps(DICTIONARY).encode(),
)

_TOKENS: Final = (
    b"[",
    b"{",
    b"}",
    b"]",
    b"&a ",
    b"*a",
    b"<<: ",
    b"\t",
    b"\x00",
    b"\xff",
    b"---\n",
    b"...\n",
    b"!!python/object/apply:os.system ",
    b"? ",
    b"| \n",
    b"${",
    b"%YAML 9.9\n",
    b"'",
    b'"',
    b"\\ud800",
    b"[" * 500,
    b"{a: " * 200,
    b"# \n",
    b": ",
    b"- ",
    b"\xf0\x9f\x98\x80",
    b"1e999",
    b"99999999999999999999",
)
_VALUES: Final[tuple[Any, ...]] = (
    None,
    True,
    -1,
    1.5,
    10**30,
    "",
    "x" * 5000,
    "${",
    "${nodes.draft.text.map(x, x)}",
    "${" + "(" * 400 + "}",
    "((((",
    "a.map(x, x.map(y, y))",
    "nosuch:fn",
    "..:x",
    "json:nosuch",
    [],
    {},
    [[]],
    {"": {"": []}},
    {"$ref": "https://example.com/schema"},
    {"type": "nosuch"},
    "start",
    "end",
    "draft",
    "__start__",
    "last",
    "1h",
    "9" * 300 + "h",
    "\x00\ud7ff",
)

_TEXTS: Final = (
    *("hello", "${last.text}", "${string(steps)}", "${steps * 2 % 7}", "\U0001f600", "$x", ""),
    *("${size(last.text)}", "${'a' + 'b'}", "${has(input.text) ? 'yes' : 'no'}", "{}", "${[1, 2]}"),
)
_TESTS: Final = (
    *("steps > 3", "size(last.text) > 5", "last.text.contains('a')", "has(input.text)"),
    *("true", "steps % 2 == 0 && steps < 9", "last.text in ['hi', 'x']", "[1, 2].all(x, x > 0)"),
)


def mutate(rng: random.Random) -> tuple[str, bytes]:
    """Return the name and the content of a file: a valid one with a few things changed.

    One of ten is large, deep, or refers to itself, and three of ten are valid.
    """
    kind = rng.random()
    if kind < 0.1:
        return rng.choice(("w.yaml", "w.json")), rng.choice(_EXTREMES)(rng).encode()
    if kind < 0.4:
        return "w.json", json.dumps(_Composer(rng).compose()).encode()
    content = rng.choice(VALID)
    if rng.random() < 0.5:
        return rng.choice(("w.yaml", "w.json")), _mutate_bytes(rng, content)
    value = yaml.safe_load(content)
    for _ in range(rng.randint(1, 4)):
        _mutate_value(rng, value)
    if rng.random() < 0.5:
        return "w.json", json.dumps(value, ensure_ascii=rng.random() < 0.5).encode()
    return "w.yaml", yaml.safe_dump(value, allow_unicode=True, sort_keys=False).encode()


_Tails: TypeAlias = Sequence[tuple[str, str]]
"""Nodes whose next one is missing, each with the condition of the edge to it."""


class _Composer:
    """Composes a valid workflow of blocks, one after another, some of them in others."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._nodes: list[dict[str, Any]] = []
        self._edges: list[dict[str, Any]] = []

    def compose(self) -> dict[str, Any]:
        """Return the workflow."""
        rng = self._rng
        tails: _Tails = self._add([], type="start")
        for _ in range(rng.randint(1, 6)):
            tails = self._add_block(tails)
        end = {"output": self._text()} if rng.random() < 0.7 else {}
        self._add(tails, type="end", **end)
        return {
            "name": "composed",
            "version": rng.randint(1, 9),
            "limits": {"steps": rng.randint(20, 90)},
            "nodes": rng.sample(self._nodes, len(self._nodes)),
            "edges": rng.sample(self._edges, len(self._edges)),
        }

    def _add_block(self, tails: _Tails, *, depth: int = 0) -> _Tails:
        blocks: list[Callable[[_Tails, int], _Tails]] = [self._add_action, self._add_agent]
        if depth < 2:
            blocks += [self._add_condition, self._add_parallel, self._add_loop]
        if not depth and self._rng.random() < 0.3:
            blocks.append(self._add_approval)
        return self._rng.choice(blocks)(tails, depth)

    def _add(self, tails: _Tails, **node: Any) -> list[tuple[str, str]]:
        """Add a node behind others."""
        name = f"n{len(self._nodes)}"
        self._nodes.append({"id": name, **node})
        for before, condition in tails:
            edge: dict[str, Any] = {"from": before, "to": name}
            if condition:
                edge["condition"] = condition
            if self._rng.random() < 0.2:
                edge["priority"] = self._rng.randint(0, 5)
            self._edges.append(edge)
        return [(name, "")]

    def _add_action(self, tails: _Tails, _depth: int) -> _Tails:
        names = self._rng.sample(("a", "b", "c"), self._rng.randint(1, 3))
        return self._add(tails, type="action", set={name: self._text() for name in names})

    def _add_agent(self, tails: _Tails, _depth: int) -> _Tails:
        agent = self._rng.choice(("writer", "reviewer"))
        return self._add(tails, type="agent", agent=agent, message=self._text())

    def _add_approval(self, tails: _Tails, _depth: int) -> _Tails:
        asked = self._add(tails, type="approval", question=self._text())[0][0]
        self._add([(asked, "rejected")], type="end", state="rejected")
        return [(asked, "approved")]

    def _add_condition(self, tails: _Tails, depth: int) -> _Tails:
        labels = [f"case{number}" for number in range(self._rng.randint(1, 3))]
        cases = [{"label": label, "when": self._test()} for label in labels]
        checked = self._add(tails, type="condition", cases=cases, otherwise="other")[0][0]
        branches = [self._add_block([(checked, label)], depth=depth + 1) for label in labels]
        return [(checked, "other"), *(tail for branch in branches for tail in branch)]

    def _add_parallel(self, tails: _Tails, depth: int) -> _Tails:
        began = self._add(tails, type="parallel")
        node = self._nodes[-1]
        branches = [self._add_block(began, depth=depth + 1) for _ in range(self._rng.randint(2, 3))]
        joined = self._add_action([tail for branch in branches for tail in branch], depth)
        node["join"] = joined[0][0]
        return joined

    def _add_loop(self, tails: _Tails, depth: int) -> _Tails:
        first = f"n{len(self._nodes)}"
        body = self._add_block(tails, depth=depth + 1)
        cases = [{"label": "again", "when": f"steps < {self._rng.randint(1, 15)}"}]
        checked = self._add(body, type="condition", cases=cases, otherwise="done")[0][0]
        self._edges.append({"from": checked, "to": first, "condition": "again"})
        return [(checked, "done")]

    def _text(self) -> str:
        return " ".join(self._rng.choices(_TEXTS, k=self._rng.randint(1, 3)))

    def _test(self) -> str:
        return self._rng.choice(("", "!")) + f"({self._rng.choice(_TESTS)})"


def _bomb(rng: random.Random) -> str:
    """Return anchors, each of which expands the one before several times."""
    lines = ["a0: &a0 [x, x]"]
    for level in range(1, rng.randint(2, 40)):
        names = ", ".join(rng.choices([f"*a{level - 1}", f"*a{max(0, level - 2)}"], k=9))
        lines.append(f"a{level}: &a{level} [{names}]")
    return "\n".join([*lines, REVIEW.replace("inputs:", "inputs: *a1\nx:", 1)])


def _cycle(rng: random.Random) -> str:
    """Return a value that has itself as a part."""
    value = rng.choice(("&c [*c]", "&c {a: *c}", "&c {*c : 1}", "&c [[[*c, 1]]]"))
    return rng.choice(
        (f"nodes: {value}", REVIEW.replace("{type: integer}", value, 1), f"{value}\n{REVIEW}")
    )


def _nest(rng: random.Random) -> str:
    """Return a value that is nested deeply, open or closed."""
    depth = rng.choice((30, 41, 500, 20_000, 100_000))
    opening, closing = rng.choice((("[", "]"), ('{"a":', "}"), ("{a: ", "}"), ("- ", "")))
    value = opening * depth + "1" + closing * rng.choice((depth, 0))
    return value if rng.random() < 0.5 else REVIEW.replace("{type: integer}", value, 1)


def _extend(rng: random.Random) -> str:
    """Return a long chain of nodes, with a few edges back and forward."""
    count = rng.choice((200, 1_000, 3_000))
    ids = ["start", *(f"n{number}" for number in range(count)), "end"]
    nodes: list[dict[str, Any]] = [
        {"id": "start", "type": "start"},
        {"id": "end", "type": "end"},
    ]
    nodes += [{"id": each, "type": "action", "set": {each: 1}} for each in ids[1:-1]]
    edges = [{"from": a, "to": b} for a, b in pairwise(ids)]
    for _ in range(rng.randrange(5)):
        edge = {"from": rng.choice(ids), "to": rng.choice(ids), "condition": "failed"}
        edges.append(edge)
    return json.dumps({"name": "long", "nodes": nodes, "edges": edges})


def _fill(rng: random.Random) -> str:
    """Return a file that is too large, or has a huge text, number or key."""
    text = rng.choice(("x", "9", "${", "\\", "(", "a.", "- ", "\t")) * rng.choice((10_000, 300_000))
    return rng.choice((text, f"{text}: 1", REVIEW.replace("A writer", f'"{text}"', 1)))


def _express(rng: random.Random) -> str:
    """Return a workflow with a random expression of CEL."""
    tokens = (
        *("input", "nodes.draft", "data", "last.text", "steps", "1", "'x'", "true", "null", "[1]"),
        *(
            "{'a': 1}",
            "+",
            "-",
            "*",
            "/",
            "%",
            "==",
            "<",
            "&&",
            "||",
            "!",
            "?",
            ":",
            "in",
            ".",
            ",",
        ),
        *("(", ")", "[", "]", "{", "}", "size(", "has(", ".map(x, ", ".all(x, ", ".matches("),
        *(
            "duration('1s')",
            "timestamp('x')",
            "int(",
            "0x",
            "1e400",
            "'\\\\'",
            "b'x'",
            "r'",
            "9" * 40,
        ),
    )
    text = " ".join(rng.choices(tokens, k=rng.randint(1, 30)))
    old = rng.choice(("nodes.score.data.score >= 80", "steps < 12 && has(nodes.draft)"))
    value = yaml.safe_load(REVIEW)
    for node in value["nodes"]:
        for case in node.get("cases", ()):
            case["when"] = text if case["when"] == old else case["when"]
    value["nodes"][1]["message"] = f"${{{text}}}" if rng.random() < 0.3 else "hi"
    return json.dumps(value)


_EXTREMES: Final = (_bomb, _cycle, _nest, _extend, _fill, _express, _express, _express)


def _mutate_bytes(rng: random.Random, content: bytes) -> bytes:
    data = bytearray(content)
    for _ in range(rng.randint(1, 6)):
        place = rng.randrange(len(data) + 1)
        match rng.randrange(4):
            case 0:
                data[place:place] = rng.choice(_TOKENS)
            case 1:
                del data[place : place + rng.randint(1, 40)]
            case 2:
                data[place : place + 1] = bytes([rng.randrange(256)])
            case _:
                begin = rng.randrange(len(data) + 1)
                data[place:place] = data[begin : begin + rng.randint(1, 200)]
    return bytes(data)


def _mutate_value(rng: random.Random, root: Any) -> None:
    containers = [root]
    for each in containers:
        items = each.values() if isinstance(each, dict) else each
        containers += [item for item in items if isinstance(item, dict | list)]
    chosen = rng.choice([each for each in containers if each] or [root])
    keys = list(chosen) if isinstance(chosen, dict) else list(range(len(chosen)))
    if not keys:
        return
    key = rng.choice(keys)
    match rng.randrange(4):
        case 0:
            del chosen[key]
        case 1:
            chosen[key] = copy.deepcopy(rng.choice(_VALUES))
        case 2:
            other = rng.choice(containers)
            chosen[key] = copy.deepcopy(other) if len(str(other)) < 20_000 else None
        case _ if isinstance(chosen, list):
            chosen.append(copy.deepcopy(chosen[key]))
        case _:
            chosen[f"{key}{rng.choice(('s', '_', ' '))}"] = chosen.pop(key)
