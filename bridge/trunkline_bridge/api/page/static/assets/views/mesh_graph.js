/** The graph of the mesh as SVG: nodes that can be chosen, and edges with their rates. */

import { GraphCanvas } from "../components/graph_canvas.js";
import { Empty, Loading } from "../components/basics.js";
import { duration, percent, rate } from "../format.js";
import { edgePath, useGraphLayout } from "../store/graph_layout.js";
import { html } from "../vendor/preact.js";

/**
 * @typedef {import("../store/mesh_graph.js").MeshNode} MeshNode
 * @typedef {import("../store/mesh.js").Edge} Edge
 * @typedef {import("../store/graph_layout.js").Point} Point
 * @typedef {Point & {width: number, height: number}} Box
 *
 * @typedef {object} Choice
 * @property {boolean} isSelected
 * @property {boolean} isRelated Its host or a room of it is selected.
 * @property {(id: string) => void} onSelect
 */

const NODE_HEIGHT = 44;
const LEAST_WIDTH = 104;
const CHARACTER_WIDTH = 7.6;
const KIND_WIDTH = 6.4;
const MOST_CHARACTERS = 22;
const ERROR_RATIO = 0.05;
const MOST_LABELS = 60;
// Frames of hosts keep agents apart that call each other. A graph of many would be too tall to read.
const MOST_FRAMED = 30;
const RANK_GAP = 36;
const RANK_GAP_WITHOUT_LABELS = 130;
const LABEL_HEIGHT = 16;
const LABEL_CHARACTER_WIDTH = 6.2;
// The layout has room for the longest usual numbers, so that it stays the same while they change.
const LABEL_CHARACTERS = 24;
const TITLE_HEIGHT = 20;
const LABEL_WIDTH = LABEL_CHARACTERS * LABEL_CHARACTER_WIDTH;
// Members of rooms beyond these are marked in the graph when their room is chosen.
const MOST_MEMBERS = 30;

/** @param {MeshNode} node */
const nodeWidth = (node) => Math.min(220, Math.max(LEAST_WIDTH, node.label.length * CHARACTER_WIDTH + 40, node.kind.length * KIND_WIDTH + 36));
/** @param {Edge} edge */
const edgeId = (edge) => `${edge.from}→${edge.to}→${edge.kind}`;

/**
 * Returns the lines from rooms to their members, but for those that messages have drawn; none if they were too many.
 * @param {import("../store/mesh_graph.js").MeshGraphData} graph
 */
function listMemberships({ edges, rooms }) {
  const lines = rooms.flatMap(({ id, members }) => members.map((member) => ({ id: `${id}→${member}→member`, from: id, to: member })));
  if (lines.length > MOST_MEMBERS) return [];
  return lines.filter((line) => !edges.some((edge) => edge.from === line.from && edge.to === line.to));
}

/** @param {MeshNode} node */
function nodeTone(node) {
  if (node.problem || node.breaker === "open") return "error";
  return node.breaker && node.breaker !== "closed" ? "warn" : "ok";
}

/** @param {Edge} edge */
function edgeTone(edge) {
  if (edge.breaker === "open" || edge.errorRatio >= ERROR_RATIO) return "error";
  return edge.breaker && edge.breaker !== "closed" ? "warn" : "";
}

/**
 * @param {{graph: import("../store/mesh_graph.js").MeshGraphData, selected: string, onSelect: (id: string) => void}} props
 */
export function MeshGraph({ graph, selected, onSelect }) {
  const memberships = listMemberships(graph);
  const withLabels = graph.edges.length <= MOST_LABELS;
  const frames = graph.nodes.filter((node) => node.group === "agent").length <= MOST_FRAMED ? graph.hosts : [];
  const framed = new Set(frames.map((frame) => frame.id));
  const layout = useGraphLayout({
    nodes: graph.nodes.filter((node) => !framed.has(node.id)).map((node) => ({ id: node.id, width: nodeWidth(node), height: NODE_HEIGHT })),
    edges: [
      ...graph.edges.map((edge) => ({ id: edgeId(edge), from: edge.from, to: edge.to, ...(withLabels && { width: LABEL_WIDTH, height: LABEL_HEIGHT }) })),
      ...memberships,
    ],
    groups: frames,
    direction: "LR",
    rankGap: withLabels ? RANK_GAP : RANK_GAP_WITHOUT_LABELS,
  });
  if (!graph.nodes.length) return html`<${Empty} icon="mesh" title="The mesh is empty">Agents appear here when they join.<//>`;
  if (!layout) return html`<${Loading} label="Laying out the graph" />`;
  const related = [...graph.hosts, ...graph.rooms].find((each) => each.id === selected)?.members ?? [];
  const isHost = graph.hosts.some((host) => host.id === selected);
  /** @param {string} id */
  const isChosen = (id) => id === selected || (isHost && related.includes(id));
  /** @param {Edge} edge */
  const touches = (edge) => isChosen(edge.from) || isChosen(edge.to);
  return html`<${GraphCanvas} width=${layout.width} height=${layout.height} label="Graph of the mesh. The tab Calls has the same as a table.">
    ${frames.map(({ id }) => {
      const box = layout.groups[id];
      const node = graph.nodes.find((each) => each.id === id);
      return box && node && html`<${HostArea} key=${`${id} area`} box=${box} tone=${nodeTone(node)} isSelected=${id === selected} />`;
    })}
    ${memberships.map(({ id, from, to }) => {
      const points = layout.edges[id];
      return points && html`<path key=${id} class="member-line ${selected && ![from, to].includes(selected) ? "dim" : ""}" d=${edgePath(points)} />`;
    })}
    ${graph.edges.map((edge) => {
      const points = layout.edges[edgeId(edge)];
      if (!points) return null;
      const tone = edgeTone(edge);
      const isDim = selected && !touches(edge);
      return html`<g key=${edgeId(edge)} class="edge ${tone} ${edge.kind} ${isDim ? "dim" : ""}">
        <path d=${edgePath(points)} stroke-width=${Math.min(4, 1.2 + Math.log10(1 + edge.ratePerS))} />
        <${EdgeEnd} points=${points} />
      </g>`;
    })}
    ${graph.edges.map((edge) => {
      // Labels come after all edges, so that no line is painted over a label.
      const points = layout.edges[edgeId(edge)];
      const at = layout.labels[edgeId(edge)] ?? points?.[Math.floor(points.length / 2)];
      if (!at || !(withLabels || touches(edge))) return null;
      return html`<g key=${`${edgeId(edge)} label`} class="edge ${selected && !touches(edge) ? "dim" : ""}"><${EdgeLabel} edge=${edge} at=${at} /></g>`;
    })}
    ${graph.nodes.map((node) => {
      const box = layout.groups[node.id];
      const at = layout.nodes[node.id];
      const choice = { isSelected: node.id === selected, isRelated: related.includes(node.id), onSelect };
      if (box) return html`<${HostTitle} key=${node.id} node=${node} box=${box} most=${layout.width} choice=${choice} />`;
      return at && html`<${Node} key=${node.id} node=${node} at=${at} choice=${choice} />`;
    })}
  <//>`;
}

/**
 * Returns the name of a node for screen readers: the text that is seen, then a long label in full.
 * @param {MeshNode} node
 */
function nodeName(node) {
  const state = nodeTone(node) === "ok" ? "" : node.problem || `breaker ${node.breaker}`;
  const label = cut(node.label);
  return [label, node.kind, state, label === node.label ? "" : node.label].filter(Boolean).join(", ");
}

/**
 * Returns the properties of an element that chooses a node.
 * @param {MeshNode} node
 * @param {Choice} choice
 */
function nodeButton(node, { isSelected, isRelated, onSelect }) {
  return {
    class: `node ${node.group} ${nodeTone(node)} ${isSelected ? "selected" : ""} ${isRelated ? "related" : ""}`,
    role: "button",
    tabindex: "0",
    "aria-pressed": String(isSelected),
    "aria-label": nodeName(node),
    onClick: () => onSelect(node.id),
    onKeyDown: (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      event.stopPropagation();
      onSelect(node.id);
    },
  };
}

/** @param {string} text */
const cut = (text) => (text.length > MOST_CHARACTERS ? `${text.slice(0, MOST_CHARACTERS - 1)}…` : text);

/** @param {{node: MeshNode, at: Point, choice: Choice}} props */
function Node({ node, at, choice }) {
  const width = nodeWidth(node);
  return html`<g ...${nodeButton(node, choice)} transform=${`translate(${at.x - width / 2} ${at.y - NODE_HEIGHT / 2})`}>
    <rect width=${width} height=${NODE_HEIGHT} rx="8" />
    <circle cx="14" cy="16" r="3.5" />
    <text class="node-label" x="24" y="20">${cut(node.label)}</text>${" "}
    <text class="node-kind" x="24" y="35">${node.kind}</text>
  </g>`;
}

/**
 * The frame of a host around its agents.
 * @param {{box: Box, tone: string, isSelected: boolean}} props
 */
function HostArea({ box, tone, isSelected }) {
  return html`<rect class="host-area ${tone} ${isSelected ? "selected" : ""}" x=${box.x - box.width / 2} y=${box.y - box.height / 2} width=${box.width} height=${box.height} rx="10" />`;
}

/**
 * The title of a host's frame. It chooses the host.
 * @param {{node: MeshNode, box: Box, most: number, choice: Choice}} props most: the right end of the graph.
 */
function HostTitle({ node, box, most, choice }) {
  const title = [cut(node.label), node.kind, node.problem].filter(Boolean).join(", ");
  const width = title.length * KIND_WIDTH + 30;
  // It may be wider than the frame.
  const left = Math.max(0, Math.min(box.x - box.width / 2 + 10, most - width));
  return html`<g ...${nodeButton(node, choice)} transform=${`translate(${left} ${box.y - box.height / 2 - TITLE_HEIGHT / 2 - 2})`}>
    <rect width=${width} height=${TITLE_HEIGHT} rx="8" />
    <circle cx="12" cy=${TITLE_HEIGHT / 2} r="3.5" />
    <text class="node-kind" x="22" y="14">${title}</text>
  </g>`;
}

/** @param {{points: Point[]}} props */
function EdgeEnd({ points }) {
  const end = points.at(-1);
  const before = points.at(-2);
  if (!end || !before) return null;
  const angle = (Math.atan2(end.y - before.y, end.x - before.x) * 180) / Math.PI;
  return html`<path class="arrow" d="M0,0 L-7,-3.5 L-7,3.5 Z" transform=${`translate(${end.x} ${end.y}) rotate(${angle})`} />`;
}

/** @param {{edge: Edge, at: Point}} props */
function EdgeLabel({ edge, at }) {
  const latency = ` · ${duration(edge.p95Ms)}`;
  const errors = edge.errorRatio >= 0.001 ? ` · ${percent(edge.errorRatio)}` : "";
  const frequency = rate(edge.ratePerS);
  const width = `${frequency}${latency}${errors}`.length * LABEL_CHARACTER_WIDTH + 6;
  return html`<rect class="edge-label-box" x=${at.x - width / 2} y=${at.y - LABEL_HEIGHT / 2} width=${width} height=${LABEL_HEIGHT} rx="4" />
    <text class="edge-label" x=${at.x} y=${at.y + 4} text-anchor="middle">${frequency}${latency}${errors && html`<tspan class="errors">${errors}</tspan>`}
      <title>${`${edge.from} to ${edge.to}: ${rate(edge.ratePerS)}, p50 ${duration(edge.p50Ms)}, p95 ${duration(edge.p95Ms)}, ${percent(edge.errorRatio)} errors`}</title>
    </text>`;
}
