/** The graph of the mesh as SVG: nodes that can be chosen, and edges with their rates. */

import { GraphCanvas } from "../components/graph_canvas.js";
import { Empty, Loading } from "../components/basics.js";
import { duration, percent, rate } from "../format.js";
import { edgePath, useGraphLayout } from "../store/graph_layout.js";
import { html } from "../vendor/preact.js";

/**
 * @typedef {import("../store/mesh_graph.js").MeshNode} MeshNode
 * @typedef {import("../store/mesh.js").Edge} Edge
 */

const NODE_HEIGHT = 44;
const LEAST_WIDTH = 104;
const CHARACTER_WIDTH = 7.6;
const KIND_WIDTH = 6.4;
const MOST_CHARACTERS = 22;
const ERROR_RATIO = 0.05;
const MOST_LABELS = 60;
const RANK_GAP = 36;
const RANK_GAP_WITHOUT_LABELS = 130;
const LABEL_HEIGHT = 16;
const LABEL_CHARACTER_WIDTH = 6.2;
// The layout has room for the longest usual numbers, so that it stays the same while they change.
const LABEL_CHARACTERS = 24;
const MESSAGE_LABEL_CHARACTERS = 14;

/** @param {MeshNode} node */
const nodeWidth = (node) => Math.min(220, Math.max(LEAST_WIDTH, node.label.length * CHARACTER_WIDTH + 40, node.kind.length * KIND_WIDTH + 36));
/** @param {Edge} edge */
const labelWidth = (edge) => (edge.kind === "message" ? MESSAGE_LABEL_CHARACTERS : LABEL_CHARACTERS) * LABEL_CHARACTER_WIDTH;
/** @param {Edge} edge */
const edgeId = (edge) => `${edge.from}→${edge.to}→${edge.kind}`;

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
  const withLabels = graph.edges.length <= MOST_LABELS;
  const layout = useGraphLayout({
    nodes: graph.nodes.map((node) => ({ id: node.id, width: nodeWidth(node), height: NODE_HEIGHT })),
    edges: graph.edges.map((edge) => ({ id: edgeId(edge), from: edge.from, to: edge.to, ...(withLabels && { width: labelWidth(edge), height: LABEL_HEIGHT }) })),
    direction: "LR",
    rankGap: withLabels ? RANK_GAP : RANK_GAP_WITHOUT_LABELS,
  });
  if (!graph.nodes.length) return html`<${Empty} icon="mesh" title="The mesh is empty">Agents appear here when they join.<//>`;
  if (!layout) return html`<${Loading} label="Laying out the graph" />`;
  /** @param {Edge} edge */
  const touches = (edge) => edge.from === selected || edge.to === selected;
  return html`<${GraphCanvas} width=${layout.width} height=${layout.height} label="Graph of the mesh. The tab Calls has the same as a table.">
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
      const at = layout.nodes[node.id];
      if (!at) return null;
      const width = nodeWidth(node);
      const tone = nodeTone(node);
      const state = tone === "ok" ? "" : `, ${node.problem || `breaker ${node.breaker}`}`;
      return html`<g
        key=${node.id}
        class="node ${node.group} ${tone} ${node.id === selected ? "selected" : ""}"
        transform=${`translate(${at.x - width / 2} ${at.y - NODE_HEIGHT / 2})`}
        role="button"
        tabindex="0"
        aria-pressed=${String(node.id === selected)}
        aria-label=${`${node.label}, ${node.kind}${state}`}
        onClick=${() => onSelect(node.id)}
        onKeyDown=${(/** @type {KeyboardEvent} */ event) => {
          if (event.key !== "Enter" && event.key !== " ") return;
          event.preventDefault();
          event.stopPropagation();
          onSelect(node.id);
        }}
      >
        <rect width=${width} height=${NODE_HEIGHT} rx="8" />
        <circle cx="14" cy="16" r="3.5" />
        <text class="node-label" x="24" y="20">${node.label.length > MOST_CHARACTERS ? `${node.label.slice(0, MOST_CHARACTERS - 1)}…` : node.label}</text>${" "}
        <text class="node-kind" x="24" y="35">${node.kind}</text>
      </g>`;
    })}
  <//>`;
}

/** @param {{points: import("../store/graph_layout.js").Point[]}} props */
function EdgeEnd({ points }) {
  const end = points.at(-1);
  const before = points.at(-2);
  if (!end || !before) return null;
  const angle = (Math.atan2(end.y - before.y, end.x - before.x) * 180) / Math.PI;
  return html`<path class="arrow" d="M0,0 L-7,-3.5 L-7,3.5 Z" transform=${`translate(${end.x} ${end.y}) rotate(${angle})`} />`;
}

/** @param {{edge: Edge, at: import("../store/graph_layout.js").Point}} props */
function EdgeLabel({ edge, at }) {
  const latency = edge.kind === "message" ? "" : ` · ${duration(edge.p95Ms)}`;
  const errors = edge.errorRatio >= 0.001 ? ` · ${percent(edge.errorRatio)}` : "";
  const frequency = rate(edge.ratePerS);
  const width = `${frequency}${latency}${errors}`.length * LABEL_CHARACTER_WIDTH + 6;
  return html`<rect class="edge-label-box" x=${at.x - width / 2} y=${at.y - LABEL_HEIGHT / 2} width=${width} height=${LABEL_HEIGHT} rx="4" />
    <text class="edge-label" x=${at.x} y=${at.y + 4} text-anchor="middle">${frequency}${latency}${errors && html`<tspan class="errors">${errors}</tspan>`}
      <title>${`${edge.from} to ${edge.to}: ${rate(edge.ratePerS)}, p50 ${duration(edge.p50Ms)}, p95 ${duration(edge.p95Ms)}, ${percent(edge.errorRatio)} errors`}</title>
    </text>`;
}
