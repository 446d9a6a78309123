/** Lays graphs out in a worker, so that a big one does not stop the page. See store/graph_layout.js. */

import { Graph, layout } from "./vendor/dagre.js";

/** @typedef {Required<import("./store/graph_layout.js").LayoutRequest>} LayoutRequest */

const GAP = 18;
const LEAST_GRID_WIDTH = 640;
const GROUP_ROW = 4;
// Before the id of a group: a node may have the same one.
const GROUP = "group ";
// The name of edges that are not drawn.
const HIDDEN = "hidden";

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

/**
 * Adds the groups of nodes. Nodes without edges would be one long column: those of a group form rows by edges that are not drawn.
 * @param {Graph} graph
 * @param {LayoutRequest["groups"]} groups
 * @param {Set<string>} connected
 */
function addGroups(graph, groups, connected) {
  for (const { id, members } of groups) {
    graph.setNode(GROUP + id, {});
    for (const member of members) graph.setParent(member, GROUP + id);
    const lone = members.filter((member) => !connected.has(member));
    lone.forEach((member, index) => {
      // The first one of a further row is below the first one of all.
      if (index % GROUP_ROW) graph.setEdge(/** @type {string} */ (lone[index - 1]), member, {}, HIDDEN);
      else if (index) graph.setEdge(member, /** @type {string} */ (lone[1]), {}, HIDDEN);
    });
  }
}

/** @param {MessageEvent<{id: number, request: LayoutRequest}>} message */
onmessage = ({ data: { id, request } }) => {
  const graph = new Graph({ multigraph: true, compound: true });
  graph.setGraph({ rankdir: request.direction, nodesep: 18, ranksep: request.rankGap, edgesep: 12, marginx: 12, marginy: 12 });
  graph.setDefaultEdgeLabel(() => ({}));
  // Nodes without edges and groups would be one long column: they are placed as a grid below.
  const connected = new Set(request.edges.flatMap((edge) => [edge.from, edge.to]));
  const placed = new Set([...connected, ...request.groups.flatMap((group) => group.members)]);
  for (const node of request.nodes) if (placed.has(node.id)) graph.setNode(node.id, { width: node.width, height: node.height });
  for (const edge of request.edges) graph.setEdge(edge.from, edge.to, edge.width ? { width: edge.width, height: edge.height, labelpos: "c" } : {}, edge.id);
  addGroups(graph, request.groups, connected);
  if (placed.size) layout(graph);
  const nodes = Object.fromEntries([...placed].map((name) => [name, { x: graph.node(name).x, y: graph.node(name).y }]));
  const groups = Object.fromEntries(request.groups.map((group) => {
    const { x, y, width, height } = graph.node(GROUP + group.id);
    return [group.id, { x, y, width, height }];
  }));
  const drawn = graph.edges().filter((edge) => edge.name !== HIDDEN);
  const edges = Object.fromEntries(drawn.map((edge) => [edge.name, graph.edge(edge).points]));
  const labels = Object.fromEntries(
    drawn.flatMap((edge) => {
      const { x, y } = graph.edge(edge);
      return x === undefined || y === undefined ? [] : [[edge.name, { x, y }]];
    }),
  );
  const { width = 0, height = 0 } = placed.size ? graph.graph() : {};
  const lone = request.nodes.filter((node) => !placed.has(node.id));
  const grid = placeInGrid(lone, Math.max(width, LEAST_GRID_WIDTH), height);
  Object.assign(nodes, grid.nodes);
  postMessage({ id, result: { nodes, edges, labels, groups, width: Math.max(width, grid.width), height: grid.height } });
};
