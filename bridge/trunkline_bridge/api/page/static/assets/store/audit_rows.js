/** Rows of the audit log: pages of the list, with the records that the stream reports. */

import { useStream } from "./hooks.js";
import { usePages } from "./pages.js";

/**
 * @typedef {object} AuditRecord
 * @property {string} id
 * @property {string} time
 * @property {string} process
 * @property {string} action
 * @property {string} outcome
 * @property {{kind?: string, account?: string, name?: string, address?: string}} actor
 * @property {Record<string, string>} object
 * @property {string} [trace_id]
 */

const PAGE_SIZE = 100;

/**
 * Loads records page by page, newest first, and puts new ones before them.
 * @param {import("../api.js").Query} filter
 */
export function useAuditRows(filter) {
  const list = usePages("audit", { ...filter, pageSize: PAGE_SIZE }, { member: "records", abortsOlder: true });
  /** @type {AuditRecord[]} */
  const rows = list.rows;
  const { next, first, loading, error, loadMore, reload, changeRows } = list;
  const status = useStream(
    "audit:watch",
    (events) => {
      // Records were missed before the watch began, or by it.
      if (events.some((event) => event.type === "ready" || event.type === "reset")) void reload();
      /** @type {AuditRecord[]} */
      const added = events.filter((event) => event.type === "record").map((event) => event.data);
      if (!added.length) return;
      changeRows((now) => {
        const known = new Set(now.map((row) => row.id));
        return [...added.filter((row) => !known.has(row.id)).reverse(), ...now];
      });
    },
    { query: filter },
  );
  return { rows, next, first, loading, error, status, loadMore, reload };
}
