"""Draws workflows: as Mermaid text, and as an SVG, with the path of a run on it.

The layout is layered, from top to bottom: a node comes below the nodes that lead to it, and edges
of loops lead back up at the side.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, NamedTuple

from trunkline.workflows.definition import (
    ActionNode,
    AgentNode,
    Edge,
    Node,
    ToolNode,
    Workflow,
    WorkflowNode,
)
from trunkline.workflows.routing import group_edges

_SHAPES: Final[Mapping[str, tuple[str, str]]] = {
    "start": ("([", "])"),
    "end": ("([", "])"),
    "condition": ("{", "}"),
    "approval": ("{{", "}}"),
    "parallel": ("[/", "/]"),
    "wait": ("[\\", "\\]"),
    "workflow": ("[[", "]]"),
}
_WIDTH: Final = 170
_HEIGHT: Final = 46
_GAP_X: Final = 40
_GAP_Y: Final = 56
_MARGIN: Final = 30
_LABEL_CHARS: Final = 24
_STYLE: Final = (
    "text{font:13px sans-serif;text-anchor:middle;fill:#1f2933}"
    ".sub,.label{font-size:11px;fill:#52606d}"
    ".node{fill:#f5f7fa;stroke:#7b8794}.edge{fill:none;stroke:#7b8794}"
    ".visited .node{fill:#e3f9e5;stroke:#207227;stroke-width:2}"
    ".failed .node{fill:#ffe3e3;stroke:#ab091e;stroke-width:2}"
    ".edge.visited{stroke:#207227;stroke-width:2}"
)


@dataclass(frozen=True, slots=True)
class RunPath:
    """The path of a run through a workflow."""

    visited: Sequence[str] = ()
    """The ids of the nodes that have run, in their order."""
    failed: str = ""
    """The node at which it failed."""

    def covers(self, edge: Edge) -> bool:
        """Return whether the run may have followed an edge: its ends ran, in this order."""
        try:
            after = self.visited.index(edge.source) + 1
        except ValueError:
            return False
        return edge.target in self.visited[after:] or edge.target == self.failed


def draw_mermaid(workflow: Workflow, path: RunPath | None = None) -> str:
    """Return a flowchart in Mermaid's language."""
    path = path or RunPath()
    names = {node.id: f"n{number}" for number, node in enumerate(workflow.nodes)}
    lines = ["flowchart TD"]
    for node in workflow.nodes:
        begin, end = _SHAPES.get(node.type, ("[", "]"))
        text = "<br/>".join(map(_escape_mermaid, (node.id, *filter(None, (_detail(node),)))))
        lines.append(f'    {names[node.id]}{begin}"{text}"{end}')
    for edge in workflow.edges:
        label = f'|"{_escape_mermaid(edge.condition)}"|' if edge.condition else ""
        lines.append(f"    {names[edge.source]} -->{label} {names[edge.target]}")
    visited = [names[node] for node in dict.fromkeys(path.visited) if node in names]
    followed = [str(number) for number, edge in enumerate(workflow.edges) if path.covers(edge)]
    if visited:
        lines += [
            "    classDef visited fill:#e3f9e5,stroke:#207227,stroke-width:2px",
            f"    class {','.join(visited)} visited",
        ]
    if followed:
        lines.append(f"    linkStyle {','.join(followed)} stroke:#207227,stroke-width:2px")
    if path.failed in names:
        lines += [
            "    classDef failed fill:#ffe3e3,stroke:#ab091e,stroke-width:2px",
            f"    class {names[path.failed]} failed",
        ]
    return "\n".join(lines) + "\n"


def draw_svg(workflow: Workflow, path: RunPath | None = None) -> str:
    """Return an SVG image, without scripts or references to other files."""
    path = path or RunPath()
    layout = _lay_out(workflow)
    loops = sum(_is_upward(edge, layout) for edge in workflow.edges)
    width = max(x for x, _ in layout.values()) + _WIDTH + _MARGIN + 24 * loops + 60 * bool(loops)
    height = max(y for _, y in layout.values()) + _HEIGHT + _MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img">',
        f"<title>{escape(workflow.name)}</title><style>{_STYLE}</style>",
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
        'markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" fill="#7b8794"/></marker></defs>',
        *_draw_edges(workflow.edges, layout, path),
    ]
    for node in workflow.nodes:
        x, y = layout[node.id]
        state = (
            "failed" if node.id == path.failed else "visited" if node.id in path.visited else "todo"
        )
        detail = _detail(node)
        lines.append(f'<g class="{state}" data-node="{node.id}">{_draw_shape(node, x, y)}')
        lines.append(_draw_text(node.id, x, y + (20 if detail else 28), ""))
        if detail:
            lines.append(_draw_text(detail, x, y + 36, "sub"))
        lines.append("</g>")
    return "\n".join([*lines, "</svg>"]) + "\n"


class _Point(NamedTuple):
    x: int
    y: int


def _lay_out(workflow: Workflow) -> dict[str, _Point]:
    """Return the left upper corner of each node."""
    order = _find_layers(workflow)
    rows: dict[int, list[str]] = {}
    for node_id, layer in order.items():
        rows.setdefault(layer, []).append(node_id)
    origins: dict[str, list[str]] = {}
    for edge in workflow.edges:
        if order[edge.source] < order[edge.target]:
            origins.setdefault(edge.target, []).append(edge.source)
    places: dict[str, float] = {}
    for _, row in sorted(rows.items()):
        # Nodes stand below the middle of the nodes that lead to them, so that few edges cross.
        row.sort(key=lambda node: _middle([places[each] for each in origins.get(node, ())]))
        for number, node_id in enumerate(row):
            places[node_id] = number - (len(row) - 1) / 2
    left = min(places.values())
    return {
        node_id: _Point(
            round((place - left) * (_WIDTH + _GAP_X)) + _MARGIN,
            order[node_id] * (_HEIGHT + _GAP_Y) + _MARGIN,
        )
        for node_id, place in places.items()
    }


def _middle(values: Collection[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _find_layers(workflow: Workflow) -> dict[str, int]:
    """Return the layer of each node, behind the nodes before it, without edges of loops."""
    outgoing = group_edges(workflow)
    forward: dict[str, list[str]] = {node.id: [] for node in workflow.nodes}
    state: dict[str, bool] = {}
    finished: list[str] = []
    for root in forward:
        if root in state:
            continue
        state[root] = True
        stack: list[tuple[str, Iterator[Edge]]] = [(root, iter(outgoing.get(root, ())))]
        while stack:
            node_id, edges = stack[-1]
            edge = next(edges, None)
            if edge is None:
                stack.pop()
                state[node_id] = False
                finished.append(node_id)
            elif edge.target not in state:
                forward[node_id].append(edge.target)
                state[edge.target] = True
                stack.append((edge.target, iter(outgoing.get(edge.target, ()))))
            elif not state[edge.target]:
                forward[node_id].append(edge.target)
            # Else the edge closes a loop: it leads back up.
    layers = dict.fromkeys(forward, 0)
    for node_id in reversed(finished):
        for target in forward[node_id]:
            layers[target] = max(layers[target], layers[node_id] + 1)
    return layers


def _is_upward(edge: Edge, layout: Mapping[str, _Point]) -> bool:
    return layout[edge.target].y <= layout[edge.source].y


def _draw_edges(
    edges: Sequence[Edge], layout: Mapping[str, _Point], path: RunPath
) -> Iterator[str]:
    right = max(x for x, _ in layout.values()) + _WIDTH
    for edge in edges:
        begin, end = layout[edge.source], layout[edge.target]
        if _is_upward(edge, layout):
            right += 24
            x1, y1 = begin.x + _WIDTH, begin.y + _HEIGHT // 2
            x2, y2 = end.x + _WIDTH, end.y + _HEIGHT // 2
            line = f"M{x1} {y1}C{right + 20} {y1} {right + 20} {y2} {x2} {y2}"
            place = _Point(right - 10, (y1 + y2) // 2)
        else:
            x1, y1 = begin.x + _WIDTH // 2, begin.y + _HEIGHT
            x2, y2 = end.x + _WIDTH // 2, end.y
            bend = _GAP_Y // 2
            line = f"M{x1} {y1}C{x1} {y1 + bend} {x2} {y2 - bend} {x2} {y2}"
            place = _Point(x1 + (x2 - x1) // 3, y1 + 16)
        state = " visited" if path.covers(edge) else ""
        names = f'data-from="{edge.source}" data-to="{edge.target}"'
        yield f'<path class="edge{state}" {names} marker-end="url(#arrow)" d="{line}"/>'
        if edge.condition:
            yield f'<text class="label" x="{place.x}" y="{place.y}">{_cut(edge.condition)}</text>'


def _draw_shape(node: Node, x: int, y: int) -> str:
    if node.type in {"condition", "approval"}:
        points = [(x + 14, y), (x + _WIDTH - 14, y), (x + _WIDTH, y + _HEIGHT // 2)]
        points += [(x + _WIDTH - 14, y + _HEIGHT), (x + 14, y + _HEIGHT), (x, y + _HEIGHT // 2)]
        joined = " ".join(f"{a},{b}" for a, b in points)
        return f'<polygon class="node" points="{joined}"/>'
    radius = _HEIGHT // 2 if node.type in {"start", "end"} else 6
    size = f'width="{_WIDTH}" height="{_HEIGHT}" rx="{radius}"'
    return f'<rect class="node" x="{x}" y="{y}" {size}/>'


def _draw_text(text: str, x: int, y: int, css_class: str) -> str:
    return f'<text class="{css_class}" x="{x + _WIDTH // 2}" y="{y}">{_cut(text)}</text>'


def _detail(node: Node) -> str:
    """Return the second line of a node: what it uses, else its type."""
    match node:
        case AgentNode():
            return f"agent {node.agent}"
        case ToolNode():
            return f"tool {node.tool}"
        case WorkflowNode():
            return f"workflow {node.workflow}"
        case ActionNode() if node.handler:
            return f"action {node.handler}"
    return "" if node.type == node.id else node.type


def _cut(text: str) -> str:
    printable = "".join(character if character.isprintable() else " " for character in text)
    return escape(
        printable if len(printable) <= _LABEL_CHARS else f"{printable[: _LABEL_CHARS - 1]}…"
    )


def _escape_mermaid(text: str) -> str:
    """Return text for a quoted label: entities for what Mermaid or HTML read."""
    return "".join(
        character if character.isalnum() or character in " _-./:,$(){}" else f"#{ord(character)};"
        for character in text
    )
