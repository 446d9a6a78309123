/** Lays graphs out in a worker, so that a big one does not stop the page. See store/graph_layout.js. */

import { Graph, layout } from "./vendor/dagre.js";

/** @typedef {import("./store/graph_layout.js").LayoutRequest} LayoutRequest */

/** @param {MessageEvent<{id: number, request: LayoutRequest}>} message */
onmessage = ({ data: { id, request } }) => {
  const graph = new Graph({ multigraph: true });
  graph.setGraph({ rankdir: request.direction, nodesep: 18, ranksep: request.rankGap, edgesep: 12, marginx: 12, marginy: 12 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const node of request.nodes) graph.setNode(node.id, { width: node.width, height: node.height });
  for (const edge of request.edges) graph.setEdge(edge.from, edge.to, {}, edge.id);
  layout(graph);
  const nodes = Object.fromEntries(graph.nodes().map((name) => [name, { x: graph.node(name).x, y: graph.node(name).y }]));
  const edges = Object.fromEntries(graph.edges().map((edge) => [edge.name, graph.edge(edge).points]));
  const { width = 0, height = 0 } = graph.graph();
  postMessage({ id, result: { nodes, edges, width, height } });
};
