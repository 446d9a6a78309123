/** The calls that wait for a decision, from one stream that the navigation and the view share. */

import { followStream } from "../api.js";
import { computed, effect, signal } from "../vendor/preact.js";
import { mayCall, phase, session } from "./session.js";

/**
 * @typedef {object} OpenApproval
 * @property {string} taskId
 * @property {string} contextId
 * @property {string} agent
 * @property {string} approvalId
 * @property {string} tool
 * @property {any} arguments
 * @property {string[]} path
 * @property {string} createdAt
 *
 * @typedef {{approvals: OpenApproval[], isIncomplete: boolean}} OpenApprovals
 */

/** The last state of the stream; null: not known yet. */
export const openApprovals = signal(/** @type {OpenApprovals | null} */ (null));
/** The state of the stream. */
export const approvalsStatus = signal(
  /** @type {{state: import("../api.js").StreamState, error: import("../api.js").ApiError | null}} */ ({ state: "connecting", error: null }),
);
// Those that were answered here, until the stream says so.
const answered = signal(/** @type {Set<string>} */ (new Set()));

/** The calls to decide, the longest waiting first. */
export const waitingApprovals = computed(() => (openApprovals.value?.approvals ?? []).filter((each) => !answered.value.has(each.approvalId)));

/** @param {string} approvalId */
export function hideAnswered(approvalId) {
  answered.value = new Set([...answered.value, approvalId]);
}

/** @type {AbortController | null} */
let connection = null;

effect(() => {
  connection?.abort();
  connection = null;
  // The calls that one caller may see are not shown to the next.
  openApprovals.value = null;
  answered.value = new Set();
  if (phase.value !== "ready" || !session.value || !mayCall("GetTask")) return;
  connection = new AbortController();
  void followStream("approvals:watch", {
    signal: connection.signal,
    onEvent: (event) => {
      if (event.type === "approvals") openApprovals.value = event.data;
    },
    onState: (state, error) => {
      approvalsStatus.value = { state, error };
    },
  });
});
