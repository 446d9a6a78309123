/** The graph of a mesh: its nodes and the edges between them. */

/**
 * @typedef {import("./mesh.js").Mesh} Mesh
 * @typedef {import("./mesh.js").Edge} Edge
 *
 * @typedef {object} MeshNode
 * @property {string} id As edges name it.
 * @property {string} label
 * @property {"client" | "agent" | "tool" | "model" | "room" | "other"} group
 * @property {string} kind
 * @property {string} description
 * @property {string} host
 * @property {string} breaker
 * @property {string} problem
 * @property {string[]} tags
 *
 * @typedef {{nodes: MeshNode[], edges: Edge[]}} MeshGraphData
 */

/**
 * @param {Pick<MeshNode, "id" | "group" | "kind"> & Partial<MeshNode>} about
 * @returns {MeshNode}
 */
function makeNode(about) {
  return { label: about.id, description: "", host: "", breaker: "", problem: "", tags: [], ...about };
}

/**
 * Builds the graph. Nodes that only edges name, such as models, are added.
 * @param {Mesh} mesh
 * @returns {MeshGraphData}
 */
export function buildGraph(mesh) {
  /** @type {Map<string, MeshNode>} */
  const nodes = new Map();
  const edges = mesh.edges ?? [];
  const named = new Set(edges.flatMap((edge) => [edge.from, edge.to]));
  for (const agent of mesh.agents ?? []) {
    const tags = [...new Set((agent.skills ?? []).flatMap((skill) => skill.tags ?? []))];
    nodes.set(
      agent.name,
      makeNode({
        ...{ id: agent.name, group: "agent", kind: agent.kind, description: agent.description ?? "", tags },
        ...{ host: agent.host ?? "", breaker: agent.breaker ?? "" },
      }),
    );
  }
  for (const server of mesh.toolServers ?? []) {
    // An agent and a tool server may share a name; an edge says which it means.
    const id = toolNodeId(server.name, nodes, named);
    const description = `Tools: ${(server.tools ?? []).map((tool) => tool.name).join(", ") || "none"}`;
    nodes.set(
      id,
      makeNode({
        ...{ id, label: server.name, group: "tool", kind: "tool server", description },
        ...{ breaker: server.breaker ?? "", problem: server.error ?? "" },
      }),
    );
  }
  for (const room of mesh.rooms ?? []) {
    if (!nodes.has(room.name)) nodes.set(room.name, makeNode({ id: room.name, group: "room", kind: "room", description: `Members: ${(room.members ?? []).join(", ")}` }));
  }
  for (const edge of edges) {
    if (!nodes.has(edge.from)) nodes.set(edge.from, unknownNode(edge.from, edge));
    if (!nodes.has(edge.to)) nodes.set(edge.to, unknownNode(edge.to, edge));
  }
  return { nodes: [...nodes.values()], edges };
}

/**
 * @param {string} name
 * @param {Map<string, MeshNode>} nodes
 * @param {Set<string>} named
 */
function toolNodeId(name, nodes, named) {
  const candidates = [`tools/${name}`, `tool:${name}`, `${name}/`];
  const byEdge = candidates.find((each) => named.has(each));
  return byEdge ?? (nodes.has(name) ? `tools/${name}` : name);
}

/**
 * @param {string} id
 * @param {Edge} edge
 */
function unknownNode(id, edge) {
  if (id === "client") return makeNode({ id, group: "client", kind: "callers outside" });
  if (edge.to === id && edge.kind === "model") return makeNode({ id, group: "model", kind: "model" });
  if (edge.to === id && edge.kind === "tool") return makeNode({ id, group: "tool", kind: "tool server" });
  return makeNode({ id, group: "other", kind: edge.kind });
}
