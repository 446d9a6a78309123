/** The mesh as a live graph, and the same as tables. */

import { Badge, Empty, ErrorState, Facts, LiveStatus, Loading, PageHeader, Panel, Time } from "../components/basics.js";
import { DetailsPanel } from "../components/details_panel.js";
import { Icon } from "../components/icons.js";
import { Sparkline } from "../components/sparkline.js";
import { Table } from "../components/table.js";
import { Tabs } from "../components/tabs.js";
import { duration, percent, plural, rate } from "../format.js";
import { changeQuery, href } from "../router.js";
import { mesh as meshState, meshStatus, useMesh } from "../store/mesh.js";
import { buildGraph } from "../store/mesh_graph.js";
import { startToolSignIn } from "../tool_sign_in.js";
import { html, useMemo, useRef, useState } from "../vendor/preact.js";
import { MeshGraph } from "./mesh_graph.js";

/**
 * @typedef {import("../store/mesh_graph.js").MeshNode} MeshNode
 * @typedef {import("../store/mesh.js").Agent} Agent
 * @typedef {import("../store/mesh.js").Edge} Edge
 * @typedef {import("../store/mesh.js").Host} Host
 * @typedef {import("../format.js").Tone} Tone
 */

const HISTORY = 60;
const MOST_TAGS = 12;

/** @param {Host} host */
const isReady = (host) => !host.state || host.state === "ready" || host.state === "draining";

/**
 * @param {string | undefined} breaker
 * @returns {Tone}
 */
export function breakerTone(breaker) {
  if (!breaker || breaker === "closed") return "ok";
  return breaker === "open" ? "error" : "warn";
}

/** @param {import("../views.js").ViewProps} props */
export default function Mesh({ query }) {
  const mesh = useMesh();
  const status = meshStatus.value;
  const graph = useMemo(() => (mesh ? buildGraph(mesh) : null), [mesh]);
  const history = useRateHistory(graph?.edges ?? []);
  const tab = query.get("tab") ?? "graph";
  const selected = query.get("node") ?? "";
  const node = graph?.nodes.find((each) => each.id === selected);

  if (!mesh || !graph) {
    return html`<div class="view">
      <${PageHeader} title="Mesh" after=${html`<${LiveStatus} status=${status} />`} />
      ${status.error && !mesh ? html`<${ErrorState} error=${status.error} title="The mesh could not be loaded" />` : html`<${Loading} label="Loading the mesh" />`}
    </div>`;
  }
  const agents = mesh.agents ?? [];
  const servers = mesh.toolServers ?? [];
  const hosts = mesh.hosts ?? [];
  const { edges } = graph;
  const tabs = [
    { id: "graph", label: "Graph" },
    { id: "agents", label: "Agents", count: agents.length },
    { id: "calls", label: "Calls", count: edges.length },
    { id: "tools", label: "Tool servers", count: servers.length },
    { id: "hosts", label: "Hosts", count: hosts.length },
  ];
  const select = (/** @type {string} */ id) => changeQuery({ node: id === selected ? "" : id });
  const panels = {
    graph: () => html`<div class="mesh-split ${node ? "with-details" : ""}">
      <${MeshGraph} graph=${graph} selected=${selected} onSelect=${select} />
      ${node && html`<${NodeDetails} node=${node} edges=${edges} history=${history} onClose=${() => select(selected)} />`}
    </div>`,
    agents: () => html`<${AgentTable} agents=${agents} />`,
    calls: () => html`<${EdgeTable} edges=${edges} history=${history} />`,
    tools: () => html`<${ToolServers} servers=${servers} />`,
    hosts: () => html`<${HostTable} hosts=${hosts} />`,
  };
  const shown = /** @type {keyof typeof panels} */ (tab in panels ? tab : "graph");
  return html`<div class="view full mesh">
    <${PageHeader} title="Mesh" after=${html`<${LiveStatus} status=${status} />`}><${Health} graph=${graph} hosts=${hosts} /><//>
    <${Tabs} label="Parts of the mesh" tabs=${tabs} selected=${shown} onSelect=${(/** @type {string} */ id) => changeQuery({ tab: id === "graph" ? "" : id })}>${panels[shown]()}<//>
  </div>`;
}

/**
 * The problems of the mesh, in words.
 * @param {{graph: import("../store/mesh_graph.js").MeshGraphData, hosts: Host[]}} props
 */
function Health({ graph, hosts }) {
  const open = graph.nodes.filter((node) => node.breaker && node.breaker !== "closed");
  const broken = graph.nodes.filter((node) => node.group === "tool" && node.problem);
  const lost = hosts.filter((host) => host.state === "lost");
  const unreachable = hosts.filter((host) => !isReady(host) && host.state !== "lost");
  const total = graph.edges.filter((edge) => edge.from === "client").reduce((sum, edge) => sum + edge.ratePerS, 0);
  return html`
    <span class="muted">${rate(total)} from clients</span>
    ${open.length > 0 && html`<${Badge} tone="error">Breakers not closed: ${[...new Set(open.map((node) => node.label))].join(", ")}<//>`}
    ${broken.length > 0 && html`<${Badge} tone="error">${plural(broken.length, "tool server")} failed<//>`}
    ${unreachable.length > 0 && html`<${Badge} tone="error">${plural(unreachable.length, "host")} unreachable<//>`}
    ${lost.length > 0 && html`<${Badge} tone="error">${plural(lost.length, "host")} lost<//>`}
    ${!open.length && !broken.length && !unreachable.length && !lost.length && html`<${Badge} tone="ok">Healthy<//>`}
  `;
}

/**
 * Keeps the rates of the last states, by edge.
 * @param {Edge[]} edges
 * @returns {Map<string, number[]>}
 */
function useRateHistory(edges) {
  const history = useRef(/** @type {Map<string, number[]>} */ (new Map()));
  const seen = useRef(/** @type {unknown} */ (null));
  if (seen.current !== meshState.value) {
    seen.current = meshState.value;
    const next = new Map();
    for (const edge of edges) {
      const key = `${edge.from}→${edge.to}`;
      next.set(key, [...(history.current.get(key) ?? []), edge.ratePerS].slice(-HISTORY));
    }
    history.current = next;
  }
  return history.current;
}

/** @param {{node: MeshNode, edges: Edge[], history: Map<string, number[]>, onClose: () => void}} props */
function NodeDetails({ node, edges, history, onClose }) {
  const inward = edges.filter((edge) => edge.to === node.id);
  const outward = edges.filter((edge) => edge.from === node.id);
  return html`<${DetailsPanel} title=${node.label} class="node-details" onClose=${onClose}>
    <div class="stack">
      ${node.description && html`<p>${node.description}</p>`}
      <${Facts}
        items=${[
          ["Kind", node.kind],
          node.host && [node.group === "host" ? "Address" : node.replicas.length > 1 ? "Replicas" : "Host", html`<span class="mono">${node.replicas.join(", ") || node.host}</span>`],
          node.breaker && ["Breaker", html`<${Badge} tone=${breakerTone(node.breaker)}>${node.breaker}<//>`],
          node.problem && ["Problem", node.problem],
        ]}
      />
      ${node.tags.length > 0 && html`<div class="row wrap">${node.tags.slice(0, MOST_TAGS).map((tag) => html`<span class="tag" key=${tag}>${tag}</span>`)}${node.tags.length > MOST_TAGS && html`<span class="muted small">and ${node.tags.length - MOST_TAGS} more</span>`}</div>`}
      <${EdgeList} title="Called by" edges=${inward} end="from" history=${history} />
      <${EdgeList} title="Calls" edges=${outward} end="to" history=${history} />
      ${node.group === "room" && html`<div class="row wrap"><a href=${href(["messages"], { tab: "rooms", room: node.label })}>Its messages</a></div>`}
      ${node.group === "agent" && html`<div class="row wrap"><a href=${href(["tasks"], { agent: node.label })}>Its tasks</a></div>`}
    </div>
  <//>`;
}

/** @param {{title: string, edges: Edge[], end: "from" | "to", history: Map<string, number[]>}} props */
function EdgeList({ title, edges, end, history }) {
  if (!edges.length) return null;
  return html`<section><h3>${title}</h3>
    <ul class="edge-list">
      ${edges.map((edge) => {
        const values = history.get(`${edge.from}→${edge.to}`) ?? [];
        return html`<li key=${edge[end]}>
          <div class="row"><span class="grow truncate">${edge[end]}</span>${edge.breaker && edge.breaker !== "closed" && html`<${Badge} tone=${breakerTone(edge.breaker)}>${edge.breaker}<//>`}</div>
          <div class="row small muted"><span class="grow">${edgeFacts(edge)}</span>
            <${Sparkline} values=${values} width=${90} label=${`Rate of the last ${values.length} states, now ${rate(edge.ratePerS)}`} />
          </div>
        </li>`;
      })}
    </ul>
  </section>`;
}

/** @param {Edge} edge */
function edgeFacts(edge) {
  const facts = [rate(edge.ratePerS), `p50 ${duration(edge.p50Ms)}`, `p95 ${duration(edge.p95Ms)}`];
  if (edge.errorRatio) facts.push(`${percent(edge.errorRatio)} errors`);
  return facts.join(" · ");
}

/** @type {import("../components/table.js").Column<Agent>[]} */
const AGENT_COLUMNS = [
  { key: "name", title: "Agent", width: "minmax(110px, 1fr)", cell: (agent) => html`<a class="row-link" href=${href(["mesh"], { node: agent.name })}>${agent.name}</a>` },
  { key: "kind", title: "Kind", width: "90px", from: 500, cell: (agent) => agent.kind },
  { key: "breaker", title: "Breaker", width: "100px", cell: (agent) => html`<${Badge} tone=${breakerTone(agent.breaker)}>${agent.breaker || "closed"}<//>` },
  { key: "description", title: "Description", width: "minmax(140px, 3fr)", from: 900, cell: (agent) => html`<span class="muted" title=${agent.description}>${agent.description}</span>` },
  { key: "host", title: "Host", width: "minmax(90px, 1fr)", from: 700, cell: (agent) => html`<span class="mono">${agent.host || "–"}</span>` },
];

/** @param {{agents: Agent[]}} props One row for each replica. */
function AgentTable({ agents }) {
  if (!agents.length) return html`<${Empty} icon="agent" title="No agents">An agent appears here when its host joins the mesh.<//>`;
  return html`<${Table} label="Agents" columns=${AGENT_COLUMNS} rows=${agents} rowKey=${(/** @type {Agent} */ agent) => `${agent.name} ${agent.host}`} />`;
}

// Stands before a node's name in the graph if an agent has the same name. The kind of the call says it here.
const NODE_GROUP = /^(tools|models)\//;

/** @param {{edges: Edge[], history: Map<string, number[]>}} props */
function EdgeTable({ edges, history }) {
  /** @type {import("../components/table.js").Column<Edge>[]} */
  const columns = [
    { key: "from", title: "From", width: "minmax(64px, 1fr)", cell: (edge) => html`<a class="row-link" href=${href(["mesh"], { node: edge.from })}>${edge.from}</a>` },
    { key: "to", title: "To", width: "minmax(64px, 1fr)", cell: (edge) => edge.to.replace(NODE_GROUP, "") },
    { key: "kind", title: "Kind", width: "80px", from: 900, cell: (edge) => edge.kind },
    { key: "breaker", title: "Breaker", width: "100px", from: 700, cell: (edge) => html`<${Badge} tone=${breakerTone(edge.breaker)}>${edge.breaker || "closed"}<//>` },
    { key: "trend", title: "Last minutes", width: "100px", from: 1000, cell: (edge) => html`<${Sparkline} width=${90} values=${history.get(`${edge.from}→${edge.to}`) ?? []} label="Rate" />` },
    { key: "rate", title: "Rate", width: "58px", align: "end", cell: (edge) => rate(edge.ratePerS) },
    { key: "errors", title: "Errors", width: "52px", align: "end", cell: (edge) => html`<span class=${edge.errorRatio ? "error-text" : "muted"}>${percent(edge.errorRatio)}</span>` },
    { key: "p50", title: "p50", width: "70px", align: "end", from: 600, cell: (edge) => duration(edge.p50Ms) },
    { key: "p95", title: "p95", width: "70px", align: "end", from: 520, cell: (edge) => duration(edge.p95Ms) },
  ];
  if (!edges.length) return html`<${Empty} icon="mesh" title="No calls in the last minute">Calls between agents, tools and models appear here with their rates.<//>`;
  const sorted = [...edges].sort((a, b) => b.ratePerS - a.ratePerS);
  return html`<${Table} label="Calls of the last minute" columns=${columns} rows=${sorted} rowKey=${(/** @type {Edge} */ edge) => `${edge.from}→${edge.to}→${edge.kind}`} />`;
}

/** @param {import("../store/mesh.js").ToolServer} server */
function serverTone(server) {
  if (server.error) return "error";
  return !server.state || server.state === "ready" ? "ok" : "neutral";
}

/** @param {{servers: import("../store/mesh.js").ToolServer[]}} props */
function ToolServers({ servers }) {
  if (!servers.length) return html`<${Empty} icon="tool" title="No tool servers">MCP servers of the settings appear here with their tools.<//>`;
  return html`<div class="cards" role="region" aria-label="Tool servers" tabindex="0">
    ${servers.map(
      (server) => html`<${Panel} key=${server.name} title=${server.name} actions=${html`<${Badge} tone=${serverTone(server)}>${server.state || "ready"}<//>`}>
        <div class="stack">
          ${server.state === "needs_sign_in" ? html`<${SignIn} server=${server.name} />` : server.error && html`<p class="error-text">${server.error}</p>`}
          ${server.listingProblems?.map((problem) => html`<p key=${problem} class="small warn-text">${problem}</p>`)}
          ${server.tools?.length
            ? html`<ul class="tool-list">${server.tools.map(
                (tool) => html`<li key=${tool.name}><div class="row"><${Icon} name="tool" size=${13} /><span class="mono grow truncate">${tool.name}</span>${!tool.readOnly && html`<span class="tag">changes things</span>`}</div>
                  ${tool.description && html`<p class="muted small clamp">${tool.description}</p>`}</li>`,
              )}</ul>`
            : html`<p class="muted">No tools.</p>`}
        </div>
      <//>`,
    )}
  </div>`;
}

/** @param {{server: string}} props */
function SignIn({ server }) {
  const [isStarting, setStarting] = useState(false);
  const [problem, setProblem] = useState("");
  const start = async () => {
    setStarting(true);
    setProblem("");
    try {
      await startToolSignIn(server);
    } catch (error) {
      setStarting(false);
      setProblem(error instanceof Error ? error.message : String(error));
    }
  };
  return html`<p>It works once a person has signed in.</p>
    <button type="button" class="button" aria-label=${`Sign in to ${server}`} disabled=${isStarting} onClick=${start}>Sign in</button>
    ${problem && html`<p class="error-text" role="alert">${problem}</p>`}`;
}

/** @type {import("../components/table.js").Column<Host>[]} */
const HOST_COLUMNS = [
  { key: "id", title: "Host", width: "minmax(110px, 1fr)", cell: (host) => html`<span class="mono">${host.id}</span>` },
  { key: "state", title: "State", width: "130px", cell: (host) => html`<${Badge} tone=${isReady(host) ? (host.state === "draining" ? "warn" : "ok") : "error"}>${host.state || "ready"}<//>${host.state === "lost" && html` <${Time} value=${host.leaseUntil} />`}` },
  { key: "turns", title: "Turns", width: "60px", align: "end", from: 620, cell: (host) => host.openTurns ?? 0 },
  { key: "address", title: "Address", width: "minmax(110px, 1fr)", from: 560, cell: (host) => html`<span class="mono">${host.address}</span>` },
  { key: "agents", title: "Agents", width: "minmax(110px, 2fr)", from: 760, cell: (host) => (host.agents ?? []).join(", ") || html`<span class="muted">–</span>` },
  { key: "services", title: "Services", width: "minmax(110px, 2fr)", from: 1000, cell: (host) => (host.services ?? []).map((service) => service.split(".").at(-1)).join(", ") || html`<span class="muted">–</span>` },
];

/** @param {{hosts: Host[]}} props */
function HostTable({ hosts }) {
  if (!hosts.length) return html`<${Empty} icon="mesh" title="No hosts to see">Operators see the hosts of the mesh here.<//>`;
  return html`<${Table} label="Hosts" columns=${HOST_COLUMNS} rows=${hosts} rowKey=${(/** @type {Host} */ host) => host.id} />`;
}
