/** Rows of webhooks: pages of the list, with the changes that the stream reports. */

import { useRef } from "../vendor/preact.js";
import { useStream } from "./hooks.js";
import { usePages } from "./pages.js";

/**
 * @typedef {object} Webhook
 * @property {string} id
 * @property {string} taskId
 * @property {string} configId
 * @property {string} url
 * @property {string} agent
 * @property {string} account
 * @property {string} version
 * @property {string} state
 * @property {string} sentEventId
 * @property {number} attempts
 * @property {string} lastError
 * @property {string | null} createdAt
 * @property {string | null} failingSince
 * @property {string | null} nextAttemptAt
 *
 * @typedef {{state: string, taskId: string}} WebhookFilter
 */

/**
 * @param {Webhook} row
 * @param {WebhookFilter} filter
 */
const matches = (row, filter) => (!filter.state || row.state === filter.state) && (!filter.taskId || row.taskId === filter.taskId);

/** @param {Webhook} row */
const created = (row) => row.createdAt ?? "";

/**
 * Puts changed webhooks into a list, newest first. Those that were deleted or no longer match are removed.
 * @param {Webhook[]} rows
 * @param {Map<string, Webhook | null>} changes null: deleted.
 * @param {WebhookFilter} filter
 * @param {boolean} hasMore There are further pages of the list.
 */
export function mergeWebhooks(rows, changes, filter, hasMore) {
  const others = rows.filter((row) => !changes.has(row.id));
  const oldest = rows.at(-1);
  const known = new Set(rows.map((row) => row.id));
  /** @param {Webhook} row */
  const isInRange = (row) => known.has(row.id) || !hasMore || !oldest || created(row) >= created(oldest);
  /** @type {Webhook[]} */
  const changed = [];
  for (const row of changes.values()) if (row && matches(row, filter) && isInRange(row)) changed.push(row);
  return [...others, ...changed].sort((a, b) => (created(a) < created(b) ? 1 : created(a) > created(b) ? -1 : 0));
}

/**
 * Loads webhooks page by page, and keeps them current.
 * @param {WebhookFilter} filter
 * @param {string} chosenId The webhook whose details are shown, also when it no longer matches the filter.
 */
export function useWebhooks(filter, chosenId) {
  const list = usePages("webhooks", filter, { member: "webhooks", abortsOlder: true });
  /** @type {Webhook[]} */
  const rows = list.rows;
  const { next, first, loading, error, loadMore, reload, changeRows } = list;
  const chosen = useRef(/** @type {Webhook | null} */ (null));
  const status = useStream("webhooks:watch", (events) => {
    // Changes were missed before the watch began, or by it.
    if (events.some((event) => event.type === "ready" || event.type === "reset")) void reload();
    /** @type {Map<string, Webhook | null>} */
    const changes = new Map();
    for (const { type, data } of events) {
      if (type === "webhook") changes.set(data.id, data);
      else if (type === "deleted") changes.set(data.id, null);
    }
    if (changes.has(chosenId)) chosen.current = changes.get(chosenId) ?? null;
    if (changes.size) changeRows((now) => mergeWebhooks(now, changes, filter, Boolean(next)));
  });
  const listed = rows.find((row) => row.id === chosenId);
  if (listed || chosen.current?.id !== chosenId) chosen.current = listed ?? null;
  return { rows, next, first, loading, error, status, chosen: chosen.current, loadMore, reload };
}
