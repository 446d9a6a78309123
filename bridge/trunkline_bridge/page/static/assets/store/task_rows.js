/** Rows of tasks: pages of the list, with the changes that the stream reports. */

import { getJson } from "../api.js";
import { stateName } from "../format.js";
import { useCallback, useEffect, useRef, useState } from "../vendor/preact.js";
import { asApiError, useStream } from "./hooks.js";

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
 * Loads tasks page by page, and keeps those that are shown current.
 * @param {TaskFilter} filter
 */
export function useTaskRows(filter) {
  const key = JSON.stringify(filter);
  const [state, setState] = useState({
    rows: /** @type {TaskRow[]} */ ([]),
    next: "",
    loading: true,
    error: /** @type {import("../api.js").ApiError | null} */ (null),
  });
  const abort = useRef(new AbortController());
  const loadingPage = useRef(false);

  const load = useCallback(
    async (/** @type {string} */ pageToken) => {
      const { signal } = abort.current;
      loadingPage.current = true;
      setState((now) => ({ ...now, loading: true, error: null }));
      try {
        const query = { ...JSON.parse(key), pageSize: PAGE_SIZE, pageToken };
        const page = await getJson("tasks", { query, signal });
        setState((now) => {
          if (!pageToken) return { rows: page.tasks, next: page.nextPageToken ?? "", loading: false, error: null };
          const known = new Set(now.rows.map((row) => row.id));
          const rows = [...now.rows, ...page.tasks.filter((/** @type {TaskRow} */ row) => !known.has(row.id))];
          return { rows, next: page.nextPageToken ?? "", loading: false, error: null };
        });
      } catch (error) {
        if (!signal.aborted) setState((now) => ({ ...now, loading: false, error: asApiError(error) }));
      } finally {
        if (!signal.aborted) loadingPage.current = false;
      }
    },
    [key],
  );

  useEffect(() => {
    abort.current = new AbortController();
    const { current } = abort;
    void load("");
    return () => current.abort();
  }, [load]);

  const status = useStream("tasks:watch", (events) => {
    const changes = events.filter((event) => event.type === "task").map((event) => event.data);
    // The watch has missed changes.
    if (events.some((event) => event.type === "reset")) void load("");
    if (changes.length) setState((now) => ({ ...now, rows: mergeRows(now.rows, changes, filter) }));
  });

  const { next, error, rows } = state;
  const loadMore = useCallback(() => {
    if (next && !error && !loadingPage.current) void load(next);
  }, [next, error, load]);
  // A search reads a part of the tasks at a time, which may have no match.
  useEffect(() => {
    if (!rows.length) loadMore();
  }, [rows.length, loadMore]);
  const retry = useCallback(() => load(next), [next, load]);
  return { ...state, status, loadMore, retry };
}
