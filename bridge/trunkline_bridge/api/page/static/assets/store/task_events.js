/** Events of a task's journal as lines of a timeline. */

import { bytes, enumName, percent, plural, shortCount } from "../format.js";
import { eventWord } from "./event_words.js";

/**
 * @typedef {object} JournalEvent
 * @property {number | string} sequence That it ends at: each text of a run has one.
 * @property {number | string} [epoch]
 * @property {string} time
 * @property {{agent?: string, taskId?: string, path?: string[]}} [origin] The agent and task that wrote a forwarded event.
 * @property {Record<string, any>} event
 *
 * @typedef {object} TimelineEntry
 * @property {number} first Its first sequence.
 * @property {number} last Its last sequence.
 * @property {string} time
 * @property {string} kind The event's name in the contract.
 * @property {string} title
 * @property {string} detail
 * @property {string} icon
 * @property {import("../format.js").Tone} tone
 * @property {string} agent The agent that wrote a forwarded event.
 * @property {any} event The first event.
 * @property {string} [run] The key that all events of a run share.
 * @property {number} [characters] Of a run of texts.
 * @property {{last: number, time: string}[]} pieces Its events: their last sequences and times.
 */

/**
 * A line; its title is what follows the word for the kind of event.
 * @typedef {{title: string, detail?: string, icon: string, tone?: import("../format.js").Tone, run?: string, characters?: number}} Line
 */

/**
 * The texts of a message and the names of its files; its data only if it has no text.
 * @param {any} message
 */
export function messageText(message) {
  /** @type {any[]} */
  const parts = message?.parts ?? message?.content ?? [];
  const hasText = parts.some((part) => part.text !== undefined);
  const shown = parts.filter((part) => !hasText || part.data === undefined);
  return shown.map((part) => part.text ?? (part.filename || (part.data !== undefined ? JSON.stringify(part.data) : part.mediaType || ""))).join(" ");
}

/** @param {any} value */
function compactJson(value) {
  const text = JSON.stringify(value ?? {});
  return text === "{}" ? "" : text;
}

/** @param {string[] | undefined} texts */
const textLength = (texts) => (texts ?? []).reduce((sum, text) => sum + text.length, 0);

/** @type {Record<string, (event: any, name: string) => Line>} */
const LINES = {
  created: (event) => ({ title: `for ${event.agent ?? ""}`, detail: messageText(event.message), icon: "agent" }),
  status: (event) => {
    const state = enumName(event.status?.state, "TASK_STATE_");
    /** @type {Record<string, import("../format.js").Tone>} */
    const tones = { completed: "ok", failed: "error", rejected: "error", "input-required": "warn", "auth-required": "warn", working: "info" };
    return { title: state, detail: messageText(event.status?.message), icon: "flow", tone: tones[state] };
  },
  delta: (event, name) => {
    const run = `delta ${event.artifactId}`;
    if (event.part) return { title: `${name}${event.last ? " complete" : ""}: ${event.part.filename || event.part.mediaType || "a part"}`, detail: messageText({ parts: [event.part] }), icon: "file" };
    if (event.texts?.length) return { title: event.last ? `${name} complete` : name, detail: event.texts.join(""), icon: "file", run, characters: textLength(event.texts) };
    return { title: event.last ? `${name} complete` : name, icon: "file", run, characters: 0 };
  },
  rewound: (_event, name) => ({ title: name, detail: "Its turn runs again from a checkpoint.", icon: "back", tone: "warn" }),
  plan: (event) => {
    if (event.steps?.length) return { title: `of ${plural(event.steps.length, "step")}`, detail: event.steps.map((/** @type {any} */ step) => `${step.agent || "no agent"}: ${step.text ?? ""}`).join(" · "), icon: "plan" };
    return { title: "", detail: (event.texts ?? []).join(""), icon: "plan", run: `plan ${event.planId}`, characters: textLength(event.texts) };
  },
  toolStarted: (event) => ({ title: event.tool, detail: compactJson(event.arguments), icon: "tool", tone: "info" }),
  toolFinished: (event) => ({ title: event.tool, detail: event.summary, icon: "tool", tone: event.isError ? "error" : "ok" }),
  toolTaskStarted: (event) => ({ title: event.handle || event.callId, icon: "tool" }),
  approvalRequested: (event) => ({ title: `for ${event.tool ?? ""}`, detail: compactJson(event.arguments), icon: "approvals", tone: "warn" }),
  approvalAnswered: (event) => {
    const decision = enumName(event.decision, "APPROVAL_DECISION_");
    return { title: decision, detail: [event.user, event.reason].filter(Boolean).join(": "), icon: "approvals", tone: decision === "rejected" ? "error" : "ok" };
  },
  childStarted: (event) => ({ title: event.agent, detail: event.taskId, icon: "link", tone: "info" }),
  childFinished: (event) => {
    const state = enumName(event.state, "TASK_STATE_");
    return { title: `${event.agent ?? ""} ${state}`, detail: event.text, icon: "link", tone: state === "completed" ? "ok" : state === "failed" || state === "rejected" ? "error" : "neutral" };
  },
  routeDecided: (event) => ({ title: `to ${event.agent || "no agent"}${event.confidence > 0 ? `, ${percent(event.confidence)}` : ""}`, detail: [event.text, ...(event.reasons ?? [])].join(" · "), icon: "route", tone: event.agent ? "neutral" : "warn" }),
  turnStarted: (event) => ({ title: String(event.turn ?? 0), detail: messageText(event.message), icon: "chat" }),
  stepStarted: (event) => ({ title: event.stepId, icon: "workflows", tone: "info" }),
  stepFinished: (event) => ({ title: event.isError ? event.stepId : [event.stepId, event.label].filter(Boolean).join(" "), detail: event.summary, icon: "workflows", tone: event.isError ? "error" : "ok" }),
};

/**
 * The names of the artifacts of a timeline: only the first delta of each has it.
 * @type {WeakMap<TimelineEntry[], Map<string, string>>}
 */
const ARTIFACT_NAMES = new WeakMap();

/**
 * Returns what to call the artifact of an event; "" for events of no artifact.
 * @param {Map<string, string>} names
 * @param {string} taskId
 * @param {any} event
 */
function artifactName(names, taskId, event) {
  const id = event.artifactId ?? event.remains?.artifactId ?? "";
  if (event.start) names.set(`${taskId} ${id}`, event.start.name || enumName(event.start.kind, "ARTIFACT_KIND_").replace("unspecified", "") || id);
  return names.get(`${taskId} ${id}`) ?? id;
}

/**
 * Adds events to a timeline, in place. Texts that follow each other in one artifact or plan become one entry.
 * @param {TimelineEntry[]} entries
 * @param {JournalEvent[]} events
 */
export function appendEvents(entries, events) {
  const names = ARTIFACT_NAMES.get(entries) ?? new Map();
  ARTIFACT_NAMES.set(entries, names);
  for (const { sequence, time, origin, event } of events) {
    const last = Number(sequence);
    const newest = entries.at(-1);
    // A reconnected stream may repeat the event it ended with.
    if (newest && last <= newest.last) continue;
    const [kind, content] = Object.entries(event)[0] ?? ["unknown", {}];
    const first = last - Math.max(1, content.texts?.length ?? 1) + 1;
    const line = LINES[kind]?.(content, artifactName(names, origin?.taskId ?? "", content)) ?? { title: "", icon: "flow" };
    const title = [eventWord(kind, content), line.title].filter(Boolean).join(" ");
    const agent = origin?.agent ?? "";
    if (newest?.run && newest.run === line.run && newest.agent === agent) {
      newest.last = last;
      newest.pieces.push({ last, time });
      if (content.last) newest.title = title;
      newest.characters = (newest.characters ?? 0) + (line.characters ?? 0);
      if (newest.detail.length < 400) newest.detail += line.detail ?? "";
      continue;
    }
    entries.push({
      ...{ first, last, time, kind, title, detail: line.detail ?? "", icon: line.icon, tone: line.tone ?? "neutral" },
      ...{ agent, event: content, run: line.run ?? "", characters: line.characters ?? 0, pieces: [{ last, time }] },
    });
  }
}

/**
 * Returns the time of the event at a sequence; empty: it is not known yet.
 * @param {TimelineEntry[]} entries
 * @param {number} sequence
 */
export function timeAt(entries, sequence) {
  const entry = entries.find((each) => each.last >= sequence);
  return entry?.pieces.find((piece) => piece.last >= sequence)?.time ?? "";
}

/**
 * Returns how much a run of texts holds: `12 pieces, 840 characters`.
 * @param {TimelineEntry} entry
 */
export function runSize(entry) {
  const pieces = entry.last - entry.first + 1;
  return pieces > 1 ? `${shortCount(pieces)} pieces, ${bytes(entry.characters ?? 0)}` : "";
}
