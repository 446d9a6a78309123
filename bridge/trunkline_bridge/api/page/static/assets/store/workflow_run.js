/** A run of a workflow: its path through the nodes, from the events of its task as they are written. */

import { hasEnded, stateName } from "../format.js";
import { useEffect, useRef, useState } from "../vendor/preact.js";
import { useStream } from "./hooks.js";

/**
 * @typedef {"visited" | "current" | "waiting" | "failed"} NodeState
 *
 * @typedef {object} Step
 * @property {number} sequence Of its begin.
 * @property {string} node
 * @property {string} startedAt
 * @property {string} endedAt Empty: it runs.
 * @property {string} label The way on that it chose.
 * @property {boolean} isError
 * @property {string} summary
 *
 * @typedef {object} Run
 * @property {Step[]} steps In the order in which they began.
 * @property {string} state Of the task; empty: not known yet.
 * @property {boolean} isPaused
 * @property {number} version Of the workflow; 0: not known yet.
 * @property {number} last The sequence of the last event.
 */

const PAUSED = "trunkline/paused";
// A step that waits for a person or a message ends with this label, and runs again with the answer.
const WAITING = "waiting";

/** @returns {Run} */
export const emptyRun = () => ({ steps: [], state: "", isPaused: false, version: 0, last: 0 });

/**
 * Adds events of a task to its run, and returns the run with them.
 * @param {Run} run
 * @param {import("./task_events.js").JournalEvent[]} events
 * @returns {Run}
 */
export function addToRun(run, events) {
  const next = { ...run, steps: [...run.steps] };
  for (const { sequence, time, origin, event } of events) {
    // A reconnected stream may repeat events; forwarded ones are of the tasks that a node called.
    if (Number(sequence) <= next.last) continue;
    next.last = Number(sequence);
    if (origin?.taskId) continue;
    if (event.status) {
      if (event.status.status?.state) next.state = stateName(event.status.status.state);
      const paused = event.status.metadata?.[PAUSED];
      if (paused !== undefined) next.isPaused = Boolean(paused);
    }
    // The plan of a run is its workflow, as `NAME@VERSION`.
    if (event.plan) next.version = Number(event.plan.planId.split("@").at(-1)) || 0;
    if (event.stepStarted) {
      next.steps.push({ sequence: next.last, node: event.stepStarted.stepId, startedAt: time, endedAt: "", label: "", isError: false, summary: "" });
    }
    if (event.stepFinished) {
      const { stepId, label = "", isError = false, summary = "" } = event.stepFinished;
      const index = next.steps.findLastIndex((step) => step.node === stepId && !step.endedAt);
      const begun = next.steps[index] ?? { sequence: next.last, node: stepId, startedAt: time };
      const step = { ...begun, endedAt: time, label, isError, summary };
      if (index < 0) next.steps.push(step);
      else next.steps[index] = step;
    }
  }
  return next;
}

/**
 * Returns the states of the nodes that a run has reached.
 * @param {Run} run
 * @returns {Map<string, NodeState>}
 */
export function nodeStates(run) {
  /** @type {Map<string, NodeState>} */
  const states = new Map();
  for (const step of run.steps) states.set(step.node, stepState(step, run));
  return states;
}

/**
 * Returns the state of a step.
 * @param {Step} step
 * @param {Run} run
 * @returns {NodeState}
 */
export function stepState(step, run) {
  if (step.isError) return "failed";
  if (step.endedAt && step.label !== WAITING) return "visited";
  // A run that was canceled or failed leaves its last steps open.
  if (hasEnded(run.state)) return run.state === "failed" ? "failed" : "visited";
  return step.endedAt ? "waiting" : "current";
}

/**
 * Returns the edges that a run followed, as `from→to`.
 * @param {Run} run
 * @param {{from: string, to: string, condition?: string | null}[]} edges
 * @returns {Set<string>}
 */
export function followedEdges(run, edges) {
  const followed = edges.filter((edge) =>
    run.steps.some((before, index) => leaves(edge, before) && run.steps.slice(index + 1).some((step) => step.node === edge.to)),
  );
  return new Set(followed.map((edge) => `${edge.from}→${edge.to}`));
}

/**
 * Returns true if a step ended with the label of an edge.
 * @param {{from: string, condition?: string | null}} edge
 * @param {Step} step
 */
function leaves(edge, step) {
  if (step.node !== edge.from || !step.endedAt || step.label === WAITING) return false;
  return edge.condition ? edge.condition === step.label : !step.isError;
}

/**
 * Follows the run of a task while the component is shown.
 * @param {string | null} taskId null: no run.
 */
export function useRun(taskId) {
  const [run, setRun] = useState(emptyRun);
  const shown = useRef(taskId);
  useEffect(() => {
    if (shown.current !== taskId) setRun(emptyRun());
    shown.current = taskId;
  }, [taskId]);
  const status = useStream(taskId && `tasks/${encodeURIComponent(taskId)}/events`, (events) => {
    const written = events.filter((event) => event.type === "event").map((event) => event.data);
    if (written.length) setRun((now) => addToRun(now, written));
  });
  return { run, status };
}

/**
 * Returns the input of a run in a line.
 * @param {any} message The first of its task.
 */
export function inputText(message) {
  return (message?.parts ?? [])
    .map((/** @type {any} */ part) => part.text ?? (part.data === undefined ? part.filename : Object.entries(part.data).map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`).join(", ")))
    .filter(Boolean)
    .join(" ");
}
