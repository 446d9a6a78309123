/** Calls the page's API: JSON requests, and event streams that resume. Paths are relative to `/ui/api/`. */

import { parseJson } from "./json.js";
import { credentialHeaders } from "./store/credentials.js";

/** @typedef {Record<string, string | number | boolean | null | undefined>} Query */

const API = new URL("api/", document.baseURI);
/** The bridge's root, for its public routes of A2A. */
export const BRIDGE = new URL("../", document.baseURI);

const FIRST_DELAY_MS = 500;
const MAX_DELAY_MS = 15_000;
// Browsers open six connections to a bridge for all tabs together, so hidden tabs give theirs back.
const HIDDEN_MS = 5_000;
// The server sends a heartbeat more often than this; silence means that the connection is lost.
const SILENCE_MS = 60_000;

/** An error of the bridge, or of the network (status 0). */
export class ApiError extends Error {
  /**
   * @param {string} message
   * @param {{status?: number, code?: string, details?: unknown[]}} [about]
   */
  constructor(message, { status = 0, code = "", details = [] } = {}) {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.code = code;
    this.details = details;
  }

  /** True if a later attempt may succeed. */
  get isTransient() {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

/** @type {Set<() => void>} */
const signInListeners = new Set();

/**
 * Calls a function when the bridge refuses the caller's credentials.
 * @param {() => void} listener
 */
export function onSignInNeeded(listener) {
  signInListeners.add(listener);
}

/**
 * Returns the URL of a path of the API.
 * @param {string} path
 * @param {Query} [query] Empty values are left out.
 */
export function apiUrl(path, query = {}) {
  // Without `./`, `tasks:watch` would be a URL of the scheme `tasks`.
  const url = new URL(`./${path}`, API);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, String(value));
  }
  return url;
}

/**
 * Returns the header of a read outside the page's API: an unsampled trace, so that looking at the mesh leaves no spans.
 * @returns {Record<string, string>}
 */
export function untracedHeaders() {
  const [trace, span] = [crypto.randomUUID(), crypto.randomUUID()].map((id) => id.replaceAll("-", ""));
  return { traceparent: `00-${trace}-${span?.slice(0, 16)}-00` };
}

/**
 * Returns the error that a response stands for.
 * @param {Response} response
 */
async function readError(response) {
  const about = { status: response.status };
  try {
    const { error } = await response.json();
    return new ApiError(error.message, { status: response.status, code: error.status, details: error.details });
  } catch {
    return new ApiError(`The bridge answered ${response.status} ${response.statusText}`.trim(), about);
  }
}

/**
 * Fetches with the caller's credentials. Throws an ApiError unless the answer is a success.
 * @param {URL | string} url
 * @param {RequestInit} [init]
 */
export async function request(url, init = {}) {
  let response;
  try {
    response = await fetch(url, {
      ...init,
      cache: "no-store",
      credentials: "omit",
      headers: { ...credentialHeaders(), .../** @type {Record<string, string>} */ (init.headers ?? {}) },
    });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new ApiError("The bridge cannot be reached.");
  }
  if (response.ok) return response;
  if (response.status === 401) for (const listener of signInListeners) listener();
  throw await readError(response);
}

/**
 * Gets JSON from the API.
 * @param {string} path
 * @param {{query?: Query, signal?: AbortSignal}} [options]
 * @returns {Promise<any>}
 */
export async function getJson(path, { query, signal } = {}) {
  const response = await request(apiUrl(path, query), { signal: signal ?? null });
  return parseJson(await response.text());
}

/**
 * Posts JSON to the API and returns the answer.
 * @param {string} path
 * @param {unknown} [body]
 * @param {{query?: Query, signal?: AbortSignal}} [options]
 * @returns {Promise<any>}
 */
export async function postJson(path, body = {}, { query, signal } = {}) {
  const response = await request(apiUrl(path, query), {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal: signal ?? null,
  });
  return parseJson(await response.text());
}

/**
 * @typedef {object} ServerEvent
 * @property {string} id Empty if the event has none.
 * @property {string} type
 * @property {any} data Parsed JSON.
 */

/**
 * Reads the events of a stream of text/event-stream.
 * @param {ReadableStream<Uint8Array>} body
 * @param {() => void} [onBytes] Called for each chunk, heartbeats included.
 * @returns {AsyncGenerator<ServerEvent>}
 */
export async function* readEvents(body, onBytes = () => {}) {
  const reader = body.pipeThrough(/** @type {any} */ (new TextDecoderStream())).getReader();
  let rest = "";
  let id = "";
  let type = "message";
  /** @type {string[]} */
  let data = [];
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      onBytes();
      const lines = (rest + value).split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop() ?? "";
      for (const line of lines) {
        if (line === "") {
          if (data.length) yield { id, type, data: parseJson(data.join("\n")) };
          type = "message";
          data = [];
          continue;
        }
        const colon = line.indexOf(":");
        if (colon === 0) continue;
        const field = colon < 0 ? line : line.slice(0, colon);
        const text = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
        if (field === "data") data.push(text);
        else if (field === "event") type = text;
        else if (field === "id") id = text;
      }
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}

/**
 * @typedef {"connecting" | "live" | "retrying" | "ended" | "failed"} StreamState
 *
 * @typedef {object} StreamOptions
 * @property {(event: ServerEvent) => void} onEvent
 * @property {(state: StreamState, error: ApiError | null) => void} [onState]
 * @property {Query} [query]
 * @property {string} [lastEventId] The event after which the stream resumes.
 * @property {AbortSignal} signal Ends the stream.
 */

/**
 * Follows an event stream until it ends, reconnecting from the last event after a failure.
 *
 * It ends by an event of type `end`, by an error that a retry cannot mend, or by the signal. While the tab is hidden for
 * longer, it is not connected.
 * @param {string} path
 * @param {StreamOptions} options
 */
export async function followStream(path, { onEvent, onState = () => {}, query, lastEventId = "", signal }) {
  let delay = FIRST_DELAY_MS;
  let last = lastEventId;
  onState("connecting", null);
  while (!signal.aborted) {
    // Each connection has a signal of its own, so that a silent one can be given up.
    const connection = new AbortController();
    const stop = () => connection.abort();
    signal.addEventListener("abort", stop, { once: true });
    // Without a network, an open connection is only silent.
    window.addEventListener("offline", stop);
    let hidden = 0;
    const onVisibility = () => {
      clearTimeout(hidden);
      if (document.hidden) hidden = window.setTimeout(stop, HIDDEN_MS);
    };
    document.addEventListener("visibilitychange", onVisibility);
    onVisibility();
    let silence = 0;
    const heard = () => {
      clearTimeout(silence);
      silence = window.setTimeout(stop, SILENCE_MS);
    };
    /** @type {ApiError | null} */
    let problem = null;
    try {
      heard();
      const response = await request(apiUrl(path, query), {
        headers: { Accept: "text/event-stream", ...(last ? { "Last-Event-ID": last } : {}) },
        signal: connection.signal,
      });
      if (!response.body) throw new ApiError("The bridge sent no stream.");
      onState("live", null);
      for await (const event of readEvents(response.body, heard)) {
        delay = FIRST_DELAY_MS;
        if (event.id) last = event.id;
        onEvent(event);
        if (event.type === "end") {
          onState("ended", null);
          return;
        }
      }
    } catch (error) {
      if (signal.aborted) return;
      problem = error instanceof ApiError ? error : new ApiError("The connection to the bridge was lost.");
      if (!problem.isTransient) {
        onState("failed", problem);
        return;
      }
    } finally {
      clearTimeout(silence);
      clearTimeout(hidden);
      document.removeEventListener("visibilitychange", onVisibility);
      signal.removeEventListener("abort", stop);
      window.removeEventListener("offline", stop);
    }
    if (signal.aborted) return;
    if (document.hidden) {
      onState("connecting", null);
      await untilVisible(signal);
      continue;
    }
    onState("retrying", problem);
    await pause(delay * (0.75 + Math.random() / 2), signal);
    delay = Math.min(delay * 2, MAX_DELAY_MS);
  }
}

/**
 * Waits until the tab is shown, at most until the signal.
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */
function untilVisible(signal) {
  return new Promise((resolve) => {
    const done = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener("visibilitychange", done);
      signal.removeEventListener("abort", done);
      resolve();
    };
    document.addEventListener("visibilitychange", done);
    signal.addEventListener("abort", done);
    done();
  });
}

/**
 * Waits, at most until the signal, or until the browser is online again.
 * @param {number} ms
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */
function pause(ms, signal) {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      window.removeEventListener("online", done);
      resolve();
    };
    const timer = window.setTimeout(done, ms);
    signal.addEventListener("abort", done);
    window.addEventListener("online", done);
  });
}
