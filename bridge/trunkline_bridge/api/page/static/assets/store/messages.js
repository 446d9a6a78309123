/** Messages between agents: pages of the list, and what changes as it changes. */

import { enumName } from "../format.js";
import { useEffect, useRef } from "../vendor/preact.js";
import { useStream } from "./hooks.js";
import { useAgents } from "./mesh.js";
import { usePages } from "./pages.js";
import { session } from "./session.js";

/** The path of messages in the page's API, which has the bridge's public routes of messages, too. */
export const MESSAGES = "messages";

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
 * @param {import("./pages.js").LoadedRows<StoredEnvelope>} now
 * @param {import("./pages.js").Page<StoredEnvelope>} page
 */
function mergePage(now, page) {
  if (!page.isFirst) return { rows: mergeMessages(now.rows, page.rows), next: page.next };
  // Messages in the range of the first page that it no longer has were redriven or deleted.
  const oldest = Number(page.rows.at(-1)?.position ?? 0);
  const older = now.rows.filter((row) => page.next && Number(row.position) < oldest);
  return { rows: mergeMessages(older, page.rows), next: older.length ? now.next : page.next };
}

/**
 * Returns the agent whose messages are shown, and the agents to choose from. Credentials for some agents read those of
 * one agent at a time: the first one unless another one is chosen.
 * @param {string} chosen Empty: none.
 */
export function useParticipant(chosen) {
  const agents = useAgents();
  const isRequired = !session.value?.features.allMessages;
  return { agents, isRequired, participant: chosen || (isRequired ? (agents[0] ?? "") : "") };
}

/**
 * Loads the messages that match a filter page by page, newest first, and keeps them current.
 * @param {import("../api.js").Query | null} filter Conditions of the routes; null: nothing is loaded.
 * @param {{deadOnly?: boolean}} [options] deadOnly: with a delivery that is a dead letter.
 */
export function useMessages(filter, { deadOnly = false } = {}) {
  const query = { ...filter, ...(deadOnly ? { states: "dead" } : {}), pageSize: PAGE_SIZE };
  const list = usePages(filter && MESSAGES, query, { member: "envelopes", merge: mergePage, clearsRows: true });
  const { rows, next, loading, error, loadMore, reload, changeRows } = list;
  const mustList = useRef(true);
  const status = useStream(
    filter && `${MESSAGES}:watch`,
    (events) => {
      // A watch that begins again reports new messages since, but not the deliveries that ended meanwhile.
      if (mustList.current) {
        mustList.current = false;
        void reload();
      }
      /** @type {StoredEnvelope[]} */
      const changes = events.filter((event) => event.type === "message").map((event) => event.data);
      changeRows((now) => {
        const merged = mergeMessages(now, changes);
        return deadOnly ? merged.filter(isDead) : merged;
      });
    },
    { query: { ...filter, withDeliveries: true } },
  );
  useEffect(() => {
    if (status.state !== "live") mustList.current = true;
  }, [status.state]);
  return { rows, next, loading, error, status, loadMore, reload };
}
