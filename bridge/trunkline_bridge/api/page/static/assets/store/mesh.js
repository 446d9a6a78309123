/** The state of the mesh, from one stream that all views share. */

import { followStream } from "../api.js";
import { computed, effect, signal, useEffect, useRef } from "../vendor/preact.js";
import { phase, session } from "./session.js";

/**
 * @typedef {object} Host
 * @property {string} id
 * @property {string} address
 * @property {string[]} [agents]
 * @property {string[]} [services]
 * @property {string} [leaseUntil]
 * @property {string} [state]
 * @property {number} [openTurns]
 *
 * @typedef {object} Agent One of its replicas: an agent is listed once for each host that runs it.
 * @property {string} name
 * @property {string} [version]
 * @property {string} [description]
 * @property {{name: string, tags?: string[]}[]} [skills]
 * @property {string} [host]
 * @property {"agent" | "supervisor" | "workflow" | "remote" | "participant"} kind
 * @property {string} [breaker]
 *
 * @typedef {object} ToolServer
 * @property {string} name
 * @property {string} [state]
 * @property {string} [error]
 * @property {string[]} [listingProblems]
 * @property {{name: string, description?: string, readOnly?: boolean}[]} [tools]
 * @property {string} [breaker]
 *
 * @typedef {object} Edge
 * @property {string} from
 * @property {string} to
 * @property {"call" | "tool" | "model" | "message"} kind
 * @property {number} ratePerS
 * @property {number} errorRatio
 * @property {number} p50Ms
 * @property {number} p95Ms
 * @property {string} [breaker]
 *
 * @typedef {object} Mesh
 * @property {Host[]} [hosts]
 * @property {Agent[]} [agents]
 * @property {ToolServer[]} [toolServers]
 * @property {{name: string, members?: string[]}[] | null} [rooms] null: the caller may not see them.
 * @property {Edge[]} [edges]
 */

/** The last state; null: not known yet. */
export const mesh = signal(/** @type {Mesh | null} */ (null));
/** The state of its stream. */
export const meshStatus = signal(
  /** @type {{state: import("../api.js").StreamState, error: import("../api.js").ApiError | null}} */ ({
    state: "connecting",
    error: null,
  }),
);

const agentNames = computed(() => [...new Set((mesh.value?.agents ?? []).map((agent) => agent.name))].sort());

let users = 0;
/** @type {AbortController | null} */
let connection = null;

function connect() {
  connection = new AbortController();
  void followStream("mesh:watch", {
    signal: connection.signal,
    onEvent: (event) => {
      if (event.type === "mesh") mesh.value = event.data;
    },
    onState: (state, error) => {
      meshStatus.value = { state, error };
    },
  });
}

function disconnect() {
  connection?.abort();
  connection = null;
}

// The state that one caller may see is not shown to the next.
effect(() => {
  if (phase.value !== "ready" || !session.value) {
    disconnect();
    mesh.value = null;
  }
});

/** Follows the mesh while the component is shown, and returns its last state. */
export function useMesh() {
  useEffect(() => {
    users += 1;
    if (!connection) connect();
    return () => {
      users -= 1;
      // The next view often needs it, too.
      setTimeout(() => {
        if (!users) disconnect();
      });
    };
  }, []);
  return mesh.value;
}

/**
 * Calls a function when another version of a workflow is published or chosen for new tasks: its agent's card says so.
 * @param {() => void} onChange
 * @param {string} [name] Only this workflow.
 */
export function useWorkflowChanges(onChange, name = "") {
  const agents = useMesh()?.agents;
  const versions = JSON.stringify(agents?.filter((agent) => agent.kind === "workflow" && (!name || agent.name === name)).map((agent) => [agent.name, agent.version, agent.description]));
  const last = useRef(versions);
  useEffect(() => {
    // The first state of the mesh is no change.
    if (last.current && versions !== last.current) onChange();
    last.current = versions ?? last.current;
  }, [versions]);
}

/** Returns the names of the agents that the caller sees, sorted. */
export function useAgents() {
  useMesh();
  return agentNames.value;
}
