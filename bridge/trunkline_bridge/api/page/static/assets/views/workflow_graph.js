/** The graph of a workflow as SVG: types of nodes by icon and shape, labels on edges, and the path of a run. */

import { Loading } from "../components/basics.js";
import { GraphCanvas } from "../components/graph_canvas.js";
import { Icon } from "../components/icons.js";
import { edgePath, useGraphLayout } from "../store/graph_layout.js";
import { html } from "../vendor/preact.js";

/**
 * @typedef {object} WorkflowNode
 * @property {string} id
 * @property {string} type
 * @property {string} [description]
 * @property {string} [agent]
 * @property {string} [tool]
 * @property {string} [workflow]
 * @property {string} [handler]
 *
 * @typedef {{from: string, to: string, condition?: string | null}} WorkflowEdge
 *
 * @typedef {{nodes: WorkflowNode[], edges: WorkflowEdge[]}} Definition
 *
 * @typedef {"added" | "removed" | "changed"} Change
 */

const NODE_HEIGHT = 48;
const LEAST_WIDTH = 112;
const MOST_WIDTH = 230;
const CHARACTER_WIDTH = 7.8;
const DETAIL_WIDTH = 6.5;
const TEXT_X = 38;
const MOST_CHARACTERS = 24;
const LABEL_WIDTH = 6.4;
// Below the graph is the place of its controls.
const FRAME_SPACE = 90;
// Here a graph runs downwards.
const NARROW = "(max-width: 640px)";

/** @type {Record<string, string>} */
const TYPE_ICONS = {
  start: "play",
  end: "stop",
  agent: "agent",
  tool: "tool",
  condition: "route",
  action: "flow",
  approval: "approvals",
  parallel: "compare",
  wait: "pause",
  workflow: "workflows",
};

/**
 * Returns what a node does, in few words: its type, and whom it calls.
 * @param {WorkflowNode} node
 */
export function nodeDetail(node) {
  const target = node.agent ?? node.tool ?? node.workflow ?? node.handler;
  return target ? `${node.type} · ${target}` : node.type;
}

/** @param {string} type */
export function typeIcon(type) {
  return TYPE_ICONS[type] ?? "flow";
}

/** @param {string} text */
const cut = (text, most = MOST_CHARACTERS) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** @param {WorkflowNode} node */
function nodeWidth(node) {
  const text = Math.max(cut(node.id).length * CHARACTER_WIDTH, cut(nodeDetail(node), 30).length * DETAIL_WIDTH);
  return Math.min(MOST_WIDTH, Math.max(LEAST_WIDTH, text + TEXT_X + 14));
}

/** @param {WorkflowEdge} edge */
export const edgeId = (edge) => `${edge.from}→${edge.to}→${edge.condition ?? ""}`;

/**
 * @param {{
 *   definition: Definition, label: string, states?: Map<string, import("../store/workflow_run.js").NodeState>,
 *   followed?: Set<string>, changes?: Map<string, Change>, selected?: string, onSelect?: (id: string) => void,
 * }} props
 *   states, followed: nodes and edges that a run has reached; changes: of nodes by id and of edges by `edgeId`, between versions.
 */
export function WorkflowGraph({ definition, label, states, followed, changes, selected, onSelect }) {
  const { nodes, edges } = definition;
  const isNarrow = matchMedia(NARROW).matches;
  const longest = Math.max(0, ...edges.map((edge) => (edge.condition ?? "").length));
  const layout = useGraphLayout({
    nodes: nodes.map((node) => ({ id: node.id, width: nodeWidth(node), height: NODE_HEIGHT })),
    edges: edges.map((edge) => ({ id: edgeId(edge), from: edge.from, to: edge.to })),
    direction: isNarrow ? "TB" : "LR",
    rankGap: isNarrow ? 44 : Math.min(150, Math.max(48, longest * LABEL_WIDTH + 34)),
  });
  if (!layout) return html`<${Loading} label="Laying out the graph" />`;
  return html`<div class="flow-frame" style=${{ "--graph-height": `${layout.height + FRAME_SPACE}px` }}><${GraphCanvas} width=${layout.width} height=${layout.height} label=${label}>
    ${edges.map((edge) => {
      const points = layout.edges[edgeId(edge)];
      if (!points) return null;
      const isFollowed = followed?.has(`${edge.from}→${edge.to}`);
      const end = points.at(-1);
      const before = points.at(-2);
      const middle = points[Math.floor(points.length / 2)];
      const angle = end && before ? (Math.atan2(end.y - before.y, end.x - before.x) * 180) / Math.PI : 0;
      return html`<g key=${edgeId(edge)} class="edge flow-edge ${isFollowed ? "followed" : ""} ${changes?.get(edgeId(edge)) ?? ""}">
        <path d=${edgePath(points)} stroke-width=${isFollowed ? 2.2 : 1.3} />
        ${end && html`<path class="arrow" d="M0,0 L-8,-4 L-8,4 Z" transform=${`translate(${end.x} ${end.y}) rotate(${angle})`} />`}
        ${edge.condition && middle && html`<text class="edge-label" x=${middle.x} y=${middle.y - 5} text-anchor="middle">${edge.condition}</text>`}
      </g>`;
    })}
    ${nodes.map((node) => {
      const at = layout.nodes[node.id];
      if (!at) return null;
      return html`<${Node} key=${node.id} node=${node} x=${at.x} y=${at.y} state=${states?.get(node.id) ?? ""} change=${changes?.get(node.id) ?? ""} isSelected=${node.id === selected} onSelect=${onSelect} />`;
    })}
  <//></div>`;
}

/**
 * @param {{
 *   node: WorkflowNode, x: number, y: number, state: string, change: string, isSelected: boolean, onSelect?: (id: string) => void,
 * }} props
 */
function Node({ node, x, y, state, change, isSelected, onSelect }) {
  const width = nodeWidth(node);
  const name = [node.id, nodeDetail(node), state, change].filter(Boolean).join(", ");
  const round = node.type === "start" || node.type === "end" ? NODE_HEIGHT / 2 : 8;
  const cornered = node.type === "condition";
  const button = onSelect
    ? {
        role: "button",
        tabindex: "0",
        "aria-pressed": String(isSelected),
        onClick: () => onSelect(node.id),
        onKeyDown: (/** @type {KeyboardEvent} */ event) => {
          if (event.key !== "Enter" && event.key !== " ") return;
          event.preventDefault();
          event.stopPropagation();
          onSelect(node.id);
        },
      }
    : { role: "img" };
  const cornerX = 14;
  const half = NODE_HEIGHT / 2;
  return html`<g class="node flow-node ${node.type} ${state} ${change} ${isSelected ? "selected" : ""}" transform=${`translate(${x - width / 2} ${y - half})`} aria-label=${name} ...${button}>
    ${cornered
      ? html`<path class="shape" d=${`M${cornerX},0 H${width - cornerX} L${width},${half} L${width - cornerX},${NODE_HEIGHT} H${cornerX} L0,${half} Z`} />`
      : html`<rect class="shape" width=${width} height=${NODE_HEIGHT} rx=${round} />`}
    ${(node.type === "parallel" || node.type === "workflow") && html`<rect class="shape inner" x="3" y="3" width=${width - 6} height=${NODE_HEIGHT - 6} rx="5" />`}
    <g class="type-icon" transform="translate(15 16)"><${Icon} name=${typeIcon(node.type)} /></g>
    <text class="node-label" x=${TEXT_X} y="21">${cut(node.id)}</text>${" "}
    <text class="node-kind" x=${TEXT_X} y="37">${cut(nodeDetail(node), 30)}</text>
    ${state && html`<${Mark} state=${state} x=${width - 4} />`}
    ${change && html`<text class="change-mark" x=${width - 12} y="17">${{ added: "+", removed: "−", changed: "~" }[change]}</text>`}
  </g>`;
}

/**
 * A mark of the state, so that it is not told by colour alone.
 * @param {{state: string, x: number}} props
 */
function Mark({ state, x }) {
  /** @type {Record<string, string>} */
  const paths = { visited: "M-3.5,0 L-1,2.6 L3.6,-2.6", failed: "M-3,-3 L3,3 M3,-3 L-3,3", waiting: "M-2,-3 V3 M2,-3 V3", current: "M-2,-3.2 L3.2,0 L-2,3.2 Z" };
  return html`<g class="mark ${state}" transform=${`translate(${x} 4)`}><circle r="8" /><path d=${paths[state] ?? ""} /></g>`;
}
