/** Rows of tasks: pages of the list, with the changes that the stream reports. */

import { stateName } from "../format.js";
import { useEffect } from "../vendor/preact.js";
import { useStream } from "./hooks.js";
import { usePages } from "./pages.js";

/**
 * @typedef {object} TaskRow
 * @property {string} id
 * @property {string} contextId
 * @property {string} agent
 * @property {string} state
 * @property {string} createdAt
 * @property {string} updatedAt
 * @property {string} [text]
 * @property {string} [outcome] `partial`: it completed with a part of its answer missing.
 * @property {string} [parentTaskId]
 *
 * @typedef {object} TaskFilter
 * @property {string} agent
 * @property {string} state
 * @property {string} text
 * @property {string} contextId
 * @property {string} since
 */

const PAGE_SIZE = 100;

/**
 * Returns true if a task that changed belongs to a list.
 * @param {TaskRow} row
 * @param {TaskFilter} filter
 */
function matches(row, filter) {
  if (filter.agent && row.agent !== filter.agent) return false;
  if (filter.state && stateName(row.state) !== filter.state) return false;
  if (filter.contextId && row.contextId !== filter.contextId) return false;
  if (filter.since && row.createdAt < filter.since) return false;
  const text = filter.text.toLowerCase();
  return !text || `${row.id} ${row.text ?? ""}`.toLowerCase().includes(text);
}

/**
 * Puts changed rows into a list, newest first. Rows that no longer match are removed.
 * @param {TaskRow[]} rows
 * @param {TaskRow[]} changes
 * @param {TaskFilter} filter
 */
export function mergeRows(rows, changes, filter) {
  const changed = new Map(changes.map((row) => [row.id, row]));
  const merged = rows.flatMap((row) => {
    const change = changed.get(row.id);
    changed.delete(row.id);
    if (!change) return [row];
    return matches(change, filter) ? [{ ...row, ...change }] : [];
  });
  const added = [...changed.values()].filter((row) => matches(row, filter));
  if (!added.length) return merged;
  return [...added, ...merged].sort((a, b) => (a.createdAt < b.createdAt ? 1 : a.createdAt > b.createdAt ? -1 : 0));
}

/**
 * Appends a page without the tasks that the list has. A first page replaces them.
 * @param {import("./pages.js").LoadedRows<TaskRow>} now
 * @param {import("./pages.js").Page<TaskRow>} page
 */
function mergePage(now, page) {
  if (page.isFirst) return { rows: page.rows, next: page.next };
  const known = new Set(now.rows.map((row) => row.id));
  return { rows: [...now.rows, ...page.rows.filter((row) => !known.has(row.id))], next: page.next };
}

/**
 * Loads tasks page by page, and keeps those that are shown current.
 * @param {TaskFilter | null} filter null: nothing is loaded.
 */
export function useTaskRows(filter) {
  const list = usePages(filter && "tasks", { ...filter, pageSize: PAGE_SIZE }, { member: "tasks", merge: mergePage });
  const { rows, next, first, loading, error, loadMore, retry, reload, changeRows } = list;
  const status = useStream(filter && "tasks:watch", (events) => {
    const changes = events.filter((event) => event.type === "task").map((event) => event.data);
    // The watch has missed changes.
    if (events.some((event) => event.type === "reset")) void reload();
    if (filter && changes.length) changeRows((now) => mergeRows(now, changes, filter));
  });
  // A search reads a part of the tasks at a time, which may have no match.
  useEffect(() => {
    if (!rows.length) loadMore();
  }, [rows.length, loadMore]);
  return { rows, next, first, loading, error, status, loadMore, retry };
}
