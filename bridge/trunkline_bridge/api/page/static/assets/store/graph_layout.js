/** Positions of the nodes and edges of a graph, laid out in layers by a worker. */

import { useEffect, useState } from "../vendor/preact.js";

/**
 * @typedef {{x: number, y: number}} Point
 *
 * @typedef {object} LayoutRequest
 * @property {{id: string, width: number, height: number}[]} nodes
 * @property {{id: string, from: string, to: string, width?: number, height?: number}[]} edges The size is that of the label.
 * @property {{id: string, members: string[]}[]} [groups] Sets of nodes that are framed. A node is in one of them at most.
 * @property {"LR" | "TB"} direction
 * @property {number} rankGap The space between layers, beside that for labels with a size.
 *
 * @typedef {object} GraphLayout
 * @property {Record<string, Point>} nodes Their centres.
 * @property {Record<string, Point[]>} edges By id.
 * @property {Record<string, Point & {width: number, height: number}>} groups The frames of groups, by their centres.
 * @property {Record<string, Point>} labels The centres of the labels that have a size, by edge id.
 * @property {number} width
 * @property {number} height
 */

/** @type {Worker | null} */
let worker = null;
let lastId = 0;
/** @type {Map<number, (layout: GraphLayout) => void>} */
const waiting = new Map();

/**
 * Lays a graph out. Edges to unknown nodes are left out.
 * @param {LayoutRequest} request
 * @returns {Promise<GraphLayout>}
 */
export function layoutGraph(request) {
  if (!worker) {
    worker = new Worker(new URL("../layout_worker.js", import.meta.url), { type: "module" });
    worker.onmessage = ({ data: { id, result } }) => {
      waiting.get(id)?.(result);
      waiting.delete(id);
    };
  }
  const id = (lastId += 1);
  const known = new Set(request.nodes.map((node) => node.id));
  const edges = request.edges.filter((edge) => known.has(edge.from) && known.has(edge.to));
  const groups = (request.groups ?? []).map((group) => ({ ...group, members: group.members.filter((member) => known.has(member)) })).filter((group) => group.members.length);
  worker.postMessage({ id, request: { ...request, edges, groups } });
  return new Promise((resolve) => waiting.set(id, resolve));
}

/**
 * Returns the layout of a graph, the last one until it is ready. Numbers on the edges may change without a new layout:
 * only the structure counts.
 * @param {LayoutRequest} request
 * @returns {GraphLayout | null}
 */
export function useGraphLayout(request) {
  const [current, setCurrent] = useState(/** @type {GraphLayout | null} */ (null));
  const key = JSON.stringify(request);
  useEffect(() => {
    let isCurrent = true;
    void layoutGraph(JSON.parse(key)).then((next) => isCurrent && setCurrent(next));
    return () => {
      isCurrent = false;
    };
  }, [key]);
  return current;
}

/**
 * Returns the path of an edge through its points, with round corners.
 * @param {Point[]} points
 */
export function edgePath(points) {
  const [first, ...rest] = points;
  if (!first || !rest.length) return "";
  const curves = rest.map((point, index) => {
    const next = rest[index + 1];
    return next ? `Q${point.x},${point.y} ${(point.x + next.x) / 2},${(point.y + next.y) / 2}` : `L${point.x},${point.y}`;
  });
  return `M${first.x},${first.y}${curves.join("")}`;
}
