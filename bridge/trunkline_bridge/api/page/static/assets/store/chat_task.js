/** A task of a conversation, folded from what A2A streams and stores. */

import { hasEnded } from "../format.js";

/**
 * @typedef {import("../components/file_chip.js").ChatFile} ChatFile
 * @typedef {{text: string} | {file: ChatFile} | {data: unknown}} ChatPart
 *
 * @typedef {object} ChatMessage
 * @property {string} id
 * @property {"user" | "agent"} role
 * @property {ChatPart[]} parts
 *
 * @typedef {object} ChatArtifact
 * @property {string} id `answer-2` is the answer of the second turn.
 * @property {ChatPart[]} parts
 *
 * @typedef {object} ChatTask
 * @property {string} id
 * @property {string} contextId
 * @property {string} state
 * @property {string} time The timestamp of its status.
 * @property {ChatMessage | null} notice The message of the status.
 * @property {ChatMessage[]} history
 * @property {ChatArtifact[]} artifacts
 *
 * @typedef {object} ChatTurn
 * @property {ChatMessage | null} request
 * @property {ChatMessage[]} messages Of the agent.
 * @property {ChatArtifact[]} artifacts
 */

const STATES = ["unknown", "submitted", "working", "completed", "failed", "canceled", "input-required", "rejected", "auth-required"];
const USER = 1;
// Approvals have a form of their own.
const APPROVALS_KEY = "trunkline/approvals";

/**
 * @param {any[]} parts Of the SDK.
 * @returns {ChatPart[]}
 */
export function readParts(parts) {
  /** @type {ChatPart[]} */
  const result = [];
  appendParts(result, parts);
  return result;
}

/**
 * Appends parts in place; texts that follow each other become one.
 * @param {ChatPart[]} target
 * @param {any[]} parts Of the SDK.
 */
function appendParts(target, parts) {
  for (const part of parts ?? []) {
    if (part.metadata?.[APPROVALS_KEY]) continue;
    const { $case: kind, value } = part.content ?? {};
    const name = part.filename ?? "";
    const last = target.at(-1);
    if (kind === "text" && !name) {
      if (last && "text" in last) target[target.length - 1] = { text: last.text + value };
      else if (value) target.push({ text: value });
    } else if (kind === "data" && value?.approvalId && value.decision) target.push({ text: describeDecision(value) });
    else if (kind === "data") target.push({ data: value });
    else if (kind === "text") target.push({ file: { name, mediaType: part.mediaType || "text/plain", content: new TextEncoder().encode(value) } });
    else if (kind === "raw") target.push({ file: { name, mediaType: part.mediaType, content: value } });
    else if (kind === "url") target.push({ file: { name, mediaType: part.mediaType, url: value } });
  }
}

/** @param {{decision: string, reason?: string, arguments?: unknown}} answer An answer to an approval, as A2A clients send it. */
function describeDecision({ decision, reason, arguments: changed }) {
  const word = /^reject/.test(decision) ? "Rejected" : /^edit/.test(decision) ? "Approved with changes" : "Approved";
  const detail = reason || (/^edit/.test(decision) ? JSON.stringify(changed) : "");
  return detail ? `${word}: ${detail}` : `${word}.`;
}

/**
 * @param {any} message Of the SDK.
 * @returns {ChatMessage}
 */
export function readMessage(message) {
  return { id: message.messageId, role: message.role === USER ? "user" : "agent", parts: readParts(message.parts) };
}

/**
 * @param {any} task Of the SDK.
 * @returns {ChatTask}
 */
export function readTask(task) {
  return {
    id: task.id,
    contextId: task.contextId,
    ...readStatus(task.status),
    history: (task.history ?? []).map(readMessage),
    artifacts: (task.artifacts ?? []).map((/** @type {any} */ each) => ({ id: each.artifactId, parts: readParts(each.parts) })),
  };
}

/** @param {any} status Of the SDK. */
function readStatus(status) {
  return {
    state: STATES[status?.state] ?? "unknown",
    time: status?.timestamp ?? "",
    notice: status?.message ? readMessage(status.message) : null,
  };
}

/**
 * Returns the task after an event of its stream. A task in the stream replaces what was known, so that nothing is
 * doubled after a reconnect.
 * @param {ChatTask | null} task
 * @param {any} payload Of the SDK.
 * @returns {ChatTask | null}
 */
export function applyEvent(task, payload) {
  if (payload?.$case === "task") return readTask(payload.value);
  if (!task) return task;
  if (payload?.$case === "statusUpdate") return { ...task, ...readStatus(payload.value.status) };
  if (payload?.$case !== "artifactUpdate") return task;
  const { artifact, append } = payload.value;
  const known = task.artifacts.find((each) => each.id === artifact.artifactId);
  const parts = append && known ? [...known.parts] : [];
  appendParts(parts, artifact.parts);
  const changed = { id: artifact.artifactId, parts };
  return { ...task, artifacts: known ? task.artifacts.map((each) => (each === known ? changed : each)) : [...task.artifacts, changed] };
}

/** @param {ChatTask | null} task */
export function isOver(task) {
  return hasEnded(task?.state);
}

/**
 * Returns the turns of a task: each message of the person, and what the agent said to it.
 * @param {ChatTask} task
 * @returns {ChatTurn[]}
 */
export function listTurns(task) {
  /** @type {ChatTurn[]} */
  const turns = [];
  for (const message of task.history) {
    if (message.role === "user") turns.push({ request: message, messages: [], artifacts: [] });
    else {
      if (!turns.length) turns.push({ request: null, messages: [], artifacts: [] });
      turns.at(-1)?.messages.push(message);
    }
  }
  if (!turns.length) turns.push({ request: null, messages: [], artifacts: [] });
  for (const artifact of task.artifacts) {
    const number = Number(/^answer-(\d+)$/.exec(artifact.id)?.[1] ?? turns.length);
    (turns[number - 1] ?? /** @type {ChatTurn} */ (turns.at(-1))).artifacts.push(artifact);
  }
  return turns;
}
