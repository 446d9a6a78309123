/** The graph of a mesh: its nodes and the edges between them. */

/**
 * @typedef {import("./mesh.js").Mesh} Mesh
 * @typedef {import("./mesh.js").Edge} Edge
 *
 * @typedef {object} MeshNode
 * @property {string} id As edges name it.
 * @property {string} label
 * @property {"client" | "agent" | "tool" | "model" | "room" | "host" | "other"} group
 * @property {string} kind
 * @property {string} description
 * @property {string} host Of an agent, its first replica.
 * @property {string[]} replicas The hosts of an agent.
 * @property {string} breaker
 * @property {string} problem
 * @property {string[]} tags
 *
 * @typedef {object} Members The nodes of the agents of a host, or in a room.
 * @property {string} id That of the host's or the room's node.
 * @property {string[]} members
 *
 * @typedef {{nodes: MeshNode[], edges: Edge[], hosts: Members[], rooms: Members[]}} MeshGraphData
 *   hosts, rooms: those that have agents.
 */

// Before the name of a room, as in addresses of messages: an agent may have the same name.
const ROOM = "room:";

/**
 * @param {Pick<MeshNode, "id" | "group" | "kind"> & Partial<MeshNode>} about
 * @returns {MeshNode}
 */
function makeNode(about) {
  return { label: about.id, description: "", host: "", replicas: [], breaker: "", problem: "", tags: [], ...about };
}

/**
 * Builds the graph. Nodes that only edges name, such as models, are added.
 * @param {Mesh} mesh
 * @returns {MeshGraphData}
 */
export function buildGraph(mesh) {
  /** @type {Map<string, MeshNode>} */
  const nodes = new Map();
  for (const agent of mesh.agents ?? []) {
    const replica = nodes.get(agent.name);
    if (replica) {
      // Edges name agents, so an agent has one node. A call goes to a replica that answers.
      if (agent.host) replica.replicas.push(agent.host);
      if (!agent.breaker || agent.breaker === "closed") replica.breaker = agent.breaker ?? "";
      continue;
    }
    const tags = [...new Set((agent.skills ?? []).flatMap((skill) => skill.tags ?? []))];
    nodes.set(
      agent.name,
      makeNode({
        ...{ id: agent.name, group: "agent", kind: agent.kind, description: agent.description ?? "", tags },
        ...{ host: agent.host ?? "", replicas: agent.host ? [agent.host] : [], breaker: agent.breaker ?? "" },
      }),
    );
  }
  /** @type {Map<string, string>} */
  const toolIds = new Map();
  for (const server of mesh.toolServers ?? []) {
    // An agent and a tool server may share a name.
    const id = nodes.has(server.name) ? `tools/${server.name}` : server.name;
    toolIds.set(server.name, id);
    const description = `Tools: ${(server.tools ?? []).map((tool) => tool.name).join(", ") || "none"}`;
    nodes.set(
      id,
      makeNode({
        ...{ id, label: server.name, group: "tool", kind: "tool server", description },
        ...{ breaker: server.breaker ?? "", problem: server.error ?? "" },
      }),
    );
  }
  const rooms = addRooms(nodes, mesh);
  const hosts = addHosts(nodes, mesh);
  const edges = (mesh.edges ?? []).map((edge) => {
    if (edge.kind === "tool") return { ...edge, to: toolIds.get(edge.to) ?? edge.to };
    if (edge.kind === "model" && nodes.has(edge.to)) return { ...edge, to: `models/${edge.to}` };
    return edge;
  });
  for (const edge of edges) {
    if (!nodes.has(edge.from)) nodes.set(edge.from, unknownNode(edge.from, edge));
    if (!nodes.has(edge.to)) nodes.set(edge.to, unknownNode(edge.to, edge));
  }
  return { nodes: [...nodes.values()], edges, hosts, rooms };
}

/**
 * Adds the nodes of rooms, and returns those that have agents.
 * @param {Map<string, MeshNode>} nodes
 * @param {Mesh} mesh
 * @returns {Members[]}
 */
function addRooms(nodes, mesh) {
  return (mesh.rooms ?? []).flatMap((room) => {
    const id = ROOM + room.name;
    const all = room.members ?? [];
    const members = all.filter((name) => nodes.get(name)?.group === "agent");
    nodes.set(id, makeNode({ id, label: room.name, group: "room", kind: "room", description: `Members: ${all.join(", ") || "none"}` }));
    return members.length ? [{ id, members }] : [];
  });
}

/**
 * Adds the nodes of hosts, and returns those that have agents.
 * @param {Map<string, MeshNode>} nodes
 * @param {Mesh} mesh
 * @returns {Members[]}
 */
function addHosts(nodes, mesh) {
  return (mesh.hosts ?? []).flatMap((host) => {
    // An agent may have the name of a host.
    const id = `hosts/${host.id}`;
    // Of several replicas of an agent, the first one has its node.
    const members = (host.agents ?? []).filter((name) => nodes.get(name)?.host === host.id);
    const state = host.state || "ready";
    const description = members.length ? `Serves ${(host.agents ?? []).join(", ")}` : "Serves no agents";
    nodes.set(
      id,
      makeNode({
        ...{ id, label: host.id, group: "host", kind: "host", host: host.address, description },
        ...{ problem: state === "ready" ? "" : state, tags: (host.services ?? []).map((service) => service.split(".").at(-1) ?? "") },
      }),
    );
    return members.length ? [{ id, members }] : [];
  });
}

/**
 * @param {string} id
 * @param {Edge} edge
 */
function unknownNode(id, edge) {
  if (id.startsWith(ROOM)) return makeNode({ id, label: id.slice(ROOM.length), group: "room", kind: "room" });
  if (id === "client") return makeNode({ id, group: "client", kind: "callers outside" });
  if (edge.to === id && edge.kind === "model") return makeNode({ id, group: "model", kind: "model" });
  if (edge.to === id && edge.kind === "tool") return makeNode({ id, group: "tool", kind: "tool server" });
  return makeNode({ id, group: "other", kind: edge.kind });
}
