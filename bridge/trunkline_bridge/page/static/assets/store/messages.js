/** Messages between agents, from the bridge's public routes: pages of the list, and what changes as it changes. */

import { getJson } from "../api.js";
import { enumName } from "../format.js";
import { useCallback, useEffect, useRef, useState } from "../vendor/preact.js";
import { asApiError, useStream } from "./hooks.js";

/** The path of the routes, as seen from the page's API. */
export const MESSAGES = "../../messages";

/**
 * @typedef {object} Delivery
 * @property {string} recipient
 * @property {string} state
 * @property {{taskId?: string, startTime?: string, endTime?: string, problem?: string}[]} [attempts]
 * @property {number} [attemptCount]
 * @property {string} [nextAttemptTime]
 * @property {string} [updateTime]
 *
 * @typedef {object} Envelope
 * @property {string} envelopeId
 * @property {string} correlationId
 * @property {string} [causationId]
 * @property {string} sender
 * @property {string} recipient
 * @property {string} [room]
 * @property {string} type
 * @property {string} [text]
 * @property {Record<string, any>} [data]
 * @property {string} createTime
 * @property {string} [replayOf]
 * @property {boolean} [isReply]
 * @property {string} [priority]
 *
 * @typedef {{envelope: Envelope, deliveries?: Delivery[], position: string}} StoredEnvelope
 */

const PAGE_SIZE = 100;

/** @param {Delivery} delivery */
export function deliveryState(delivery) {
  return enumName(delivery.state, "DELIVERY_STATE_") || "pending";
}

/** @param {StoredEnvelope} stored */
export function isDead(stored) {
  return (stored.deliveries ?? []).some((delivery) => deliveryState(delivery) === "dead");
}

/**
 * Returns the payload in a line.
 * @param {Envelope} envelope
 */
export function payloadText(envelope) {
  return envelope.text ?? (envelope.data ? JSON.stringify(envelope.data) : "");
}

/**
 * Puts messages into a list, newest first, each once.
 * @param {StoredEnvelope[]} rows
 * @param {StoredEnvelope[]} changes
 */
function mergeMessages(rows, changes) {
  if (!changes.length) return rows;
  const merged = new Map(rows.map((row) => [row.position, row]));
  for (const change of changes) merged.set(change.position, change);
  return [...merged.values()].sort((a, b) => Number(b.position) - Number(a.position));
}

/**
 * Loads the messages that match a filter page by page, newest first, and keeps them current.
 * @param {import("../api.js").Query | null} filter Conditions of the routes; null: nothing is loaded.
 * @param {{deadOnly?: boolean}} [options] deadOnly: with a delivery that is a dead letter.
 */
export function useMessages(filter, { deadOnly = false } = {}) {
  const key = JSON.stringify(filter);
  const [state, setState] = useState({
    rows: /** @type {StoredEnvelope[]} */ ([]),
    next: "",
    loading: filter !== null,
    error: /** @type {import("../api.js").ApiError | null} */ (null),
  });
  const abort = useRef(new AbortController());
  const busy = useRef(false);
  const mustList = useRef(true);

  const load = useCallback(
    async (/** @type {string} */ pageToken) => {
      const { signal } = abort.current;
      busy.current = true;
      setState((now) => ({ ...now, loading: true, error: null }));
      try {
        const query = { ...JSON.parse(key), ...(deadOnly ? { states: "dead" } : {}), pageSize: PAGE_SIZE, pageToken };
        const page = await getJson(MESSAGES, { query, signal });
        /** @type {StoredEnvelope[]} */
        const found = page.envelopes ?? [];
        setState((now) => {
          // What the first page no longer has within its range was redriven or deleted.
          const oldest = Number(found.at(-1)?.position ?? 0);
          const kept = pageToken ? now.rows : now.rows.filter((row) => page.nextPageToken && Number(row.position) < oldest);
          const next = pageToken || !kept.length ? (page.nextPageToken ?? "") : now.next;
          return { rows: mergeMessages(kept, found), next, loading: false, error: null };
        });
      } catch (error) {
        if (!signal.aborted) setState((now) => ({ ...now, loading: false, error: asApiError(error) }));
      } finally {
        if (!signal.aborted) busy.current = false;
      }
    },
    [key, deadOnly],
  );

  useEffect(() => {
    if (filter === null) return undefined;
    abort.current = new AbortController();
    const { current } = abort;
    setState({ rows: [], next: "", loading: true, error: null });
    void load("");
    return () => current.abort();
  }, [load]);

  const status = useStream(
    filter && `${MESSAGES}:watch`,
    (events) => {
      // A watch that begins again reports new messages since, but not the deliveries that ended meanwhile.
      if (mustList.current) {
        mustList.current = false;
        void load("");
      }
      /** @type {StoredEnvelope[]} */
      const changes = events.filter((event) => event.type === "message").map((event) => event.data);
      setState((now) => {
        const rows = mergeMessages(now.rows, changes);
        return { ...now, rows: deadOnly ? rows.filter(isDead) : rows };
      });
    },
    { query: { ...filter, withDeliveries: true } },
  );
  useEffect(() => {
    if (status.state !== "live") mustList.current = true;
  }, [status.state]);

  const { next, error } = state;
  const loadMore = useCallback(() => {
    if (next && !error && !busy.current) void load(next);
  }, [next, error, load]);
  return { ...state, status, loadMore, reload: () => load("") };
}
