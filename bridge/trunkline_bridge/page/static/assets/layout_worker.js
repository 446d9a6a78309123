/** Lays graphs out in a worker, so that a big one does not stop the page. See store/graph_layout.js. */

import { Graph, layout } from "./vendor/dagre.js";

/** @typedef {import("./store/graph_layout.js").LayoutRequest} LayoutRequest */

const GAP = 18;
const LEAST_GRID_WIDTH = 640;

/**
 * Places nodes in rows.
 * @param {LayoutRequest["nodes"]} nodes
 * @param {number} most The width of a row.
 * @param {number} top
 */
function placeInGrid(nodes, most, top) {
  /** @type {Record<string, {x: number, y: number}>} */
  const places = {};
  if (!nodes.length) return { nodes: places, width: 0, height: top };
  let x = GAP;
  let y = top + GAP;
  let rowHeight = 0;
  let width = 0;
  for (const node of nodes) {
    if (x > GAP && x + node.width > most) {
      x = GAP;
      y += rowHeight + GAP;
      rowHeight = 0;
    }
    places[node.id] = { x: x + node.width / 2, y: y + node.height / 2 };
    x += node.width + GAP;
    width = Math.max(width, x);
    rowHeight = Math.max(rowHeight, node.height);
  }
  return { nodes: places, width, height: y + rowHeight + GAP };
}

/** @param {MessageEvent<{id: number, request: LayoutRequest}>} message */
onmessage = ({ data: { id, request } }) => {
  const graph = new Graph({ multigraph: true });
  graph.setGraph({ rankdir: request.direction, nodesep: 18, ranksep: request.rankGap, edgesep: 12, marginx: 12, marginy: 12 });
  graph.setDefaultEdgeLabel(() => ({}));
  // Nodes without edges would be one long column: they are placed as a grid below.
  const connected = new Set(request.edges.flatMap((edge) => [edge.from, edge.to]));
  for (const node of request.nodes) if (connected.has(node.id)) graph.setNode(node.id, { width: node.width, height: node.height });
  for (const edge of request.edges) graph.setEdge(edge.from, edge.to, edge.width ? { width: edge.width, height: edge.height, labelpos: "c" } : {}, edge.id);
  if (connected.size) layout(graph);
  const nodes = Object.fromEntries(graph.nodes().map((name) => [name, { x: graph.node(name).x, y: graph.node(name).y }]));
  const edges = Object.fromEntries(graph.edges().map((edge) => [edge.name, graph.edge(edge).points]));
  const labels = Object.fromEntries(
    graph.edges().flatMap((edge) => {
      const { x, y } = graph.edge(edge);
      return x === undefined || y === undefined ? [] : [[edge.name, { x, y }]];
    }),
  );
  const { width = 0, height = 0 } = connected.size ? graph.graph() : {};
  const lone = request.nodes.filter((node) => !connected.has(node.id));
  const grid = placeInGrid(lone, Math.max(width, LEAST_GRID_WIDTH), height);
  Object.assign(nodes, grid.nodes);
  postMessage({ id, result: { nodes, edges, labels, width: Math.max(width, grid.width), height: grid.height } });
};
