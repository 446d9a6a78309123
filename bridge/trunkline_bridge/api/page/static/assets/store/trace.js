/**
 * A trace as the API describes it, in the order, with the critical path and the totals that `trunkline trace` shows; and
 * what its operations took.
 */

import { timeNs } from "../format.js";

/**
 * @typedef {object} Span As the API sends it, parents before children.
 * @property {string} traceId
 * @property {string} spanId
 * @property {string} [parentSpanId]
 * @property {string} name
 * @property {string} [kind]
 * @property {string} [service]
 * @property {string} startTime
 * @property {string} [endTime] Missing while it is open, and for good if its process was killed.
 * @property {boolean} [isError]
 * @property {string} [statusMessage]
 * @property {Record<string, any>} [attributes]
 * @property {{name: string, time: string, attributes?: Record<string, any>}[]} [events]
 * @property {{traceId: string, spanId: string}[]} [links]
 * @property {number} depth
 * @property {boolean} isOrphan Its parent is not in the trace.
 * @property {number} selfMs
 * @property {boolean} isCritical
 * @property {{fromMs: number, toMs: number}[]} critical Its parts of the critical path, after its start.
 * @property {number} inputTokens 0 of spans other than calls of models.
 * @property {number} outputTokens
 * @property {number} costMicros
 *
 * @typedef {object} Totals
 * @property {string} traceId
 * @property {number} durationMs
 * @property {string[]} services
 * @property {number} errors
 * @property {number} modelCalls
 * @property {number} inputTokens
 * @property {number} outputTokens
 * @property {number} costMicros
 *
 * @typedef {object} SpanNode
 * @property {Span} span
 * @property {number} start Milliseconds after the first span.
 * @property {number} end
 * @property {SpanNode[]} children By start.
 * @property {SpanNode | null} parent
 * @property {number} below The number of spans below it.
 * @property {{from: number, to: number}[]} critical Its parts of the critical path.
 *
 * @typedef {object} Trace
 * @property {SpanNode[]} roots
 * @property {SpanNode[]} order Parents before children, as they are shown.
 * @property {Map<string, SpanNode>} byId
 * @property {number} length Milliseconds from the first start to the last end.
 * @property {string} startTime
 * @property {number} errors
 * @property {string[]} services As they appear.
 * @property {{input: number, output: number, calls: number}} tokens
 * @property {number} costMicros
 * @property {string[]} taskIds
 */

const TASK_KEYS = ["trunkline.task.id", "a2a.task.id"];

/** @param {Span} span */
export function taskOf(span) {
  for (const key of TASK_KEYS) if (span.attributes?.[key]) return String(span.attributes[key]);
  return "";
}

/** @param {Span} span A stand-in for one that was lost with its process. */
export function isLost(span) {
  return span.attributes?.["trunkline.span.lost"] === true;
}

/** @param {Span} span It has begun, and its end is not known. */
export function isOpen(span) {
  return !span.endTime;
}

/**
 * Builds a trace from what the API sends of it. That of a task may be several traces.
 * @param {{spans?: Span[], traces?: Totals[]}} data
 * @returns {Trace}
 */
export function buildTrace({ spans = [], traces = [] }) {
  const starts = spans.map((span) => timeNs(span.startTime));
  const first = starts.reduce((least, start) => (start < least ? start : least), starts[0] ?? 0n);
  /** @param {bigint} time */
  const offset = (time) => Number(time - first) / 1_000_000;
  const ends = spans.map((span, index) => offset(span.endTime ? timeNs(span.endTime) : /** @type {bigint} */ (starts[index])));
  const length = ends.reduce((most, end) => Math.max(most, end), 0);
  /** @type {Map<string, SpanNode>} */
  const byId = new Map();
  /** @type {SpanNode[]} The latest node of each depth. */
  const above = [];
  const order = spans.map((span, index) => {
    const start = offset(/** @type {bigint} */ (starts[index]));
    const end = isOpen(span) ? length : Math.max(start, /** @type {number} */ (ends[index]));
    const parent = above[span.depth - 1] ?? null;
    const critical = span.critical.map(({ fromMs, toMs }) => ({ from: start + fromMs, to: start + toMs }));
    const node = { span, start, end, children: [], parent, below: 0, critical };
    parent?.children.push(node);
    above[span.depth] = node;
    byId.set(span.spanId, node);
    return node;
  });
  for (const { parent, below } of order.toReversed()) if (parent) parent.below += below + 1;
  /** @param {(totals: Totals) => number} read */
  const sum = (read) => traces.reduce((total, totals) => total + read(totals), 0);
  return {
    ...{ order, byId, length },
    roots: order.filter((node) => !node.parent),
    startTime: spans[starts.indexOf(first)]?.startTime ?? "",
    errors: sum((totals) => totals.errors),
    services: [...new Set(traces.flatMap((totals) => totals.services))].filter(Boolean),
    tokens: { input: sum((totals) => totals.inputTokens), output: sum((totals) => totals.outputTokens), calls: sum((totals) => totals.modelCalls) },
    costMicros: sum((totals) => totals.costMicros),
    taskIds: [...new Set(spans.map(taskOf))].filter(Boolean),
  };
}

/**
 * Returns true if all spans of a trace have ended, from its root on. A task in it may still begin others.
 * @param {Trace} trace
 */
export function isComplete({ order, roots }) {
  return order.length > 0 && order.every(({ span }) => !isOpen(span) && !isLost(span)) && roots.every(({ span }) => !span.isOrphan);
}

/** @param {SpanNode} node Milliseconds of it on the critical path. */
export function criticalMs(node) {
  return node.critical.reduce((sum, { from, to }) => sum + to - from, 0);
}

/**
 * @typedef {object} Operation
 * @property {string} key
 * @property {string} name
 * @property {string} service
 * @property {number} count
 * @property {number} errors
 * @property {number} totalMs
 * @property {number} criticalMs
 * @property {number} tokens
 * @property {number} costMicros
 */

/**
 * Returns the operations of a trace: its spans by service and name, the longest on the critical path first.
 * @param {Trace} trace
 * @returns {Operation[]}
 */
export function listOperations(trace) {
  /** @type {Map<string, Operation>} */
  const found = new Map();
  for (const node of trace.order) {
    const { name, service = "" } = node.span;
    const key = `${service} ${name}`;
    const operation = found.get(key) ?? { key, name, service, count: 0, errors: 0, totalMs: 0, criticalMs: 0, tokens: 0, costMicros: 0 };
    operation.count += 1;
    operation.errors += node.span.isError ? 1 : 0;
    operation.totalMs += node.end - node.start;
    operation.criticalMs += criticalMs(node);
    operation.tokens += node.span.inputTokens + node.span.outputTokens;
    operation.costMicros += node.span.costMicros;
    found.set(key, operation);
  }
  return [...found.values()].sort((a, b) => b.criticalMs - a.criticalMs || b.totalMs - a.totalMs);
}

/**
 * @typedef {{key: string, name: string, service: string, left: Operation | null, right: Operation | null}} ComparedOperation
 */

/**
 * Compares two traces by operation, the largest difference on the critical path first.
 * @param {Trace} left
 * @param {Trace} right
 * @returns {ComparedOperation[]}
 */
export function compareTraces(left, right) {
  const ours = new Map(listOperations(left).map((each) => [each.key, each]));
  const theirs = new Map(listOperations(right).map((each) => [each.key, each]));
  const rows = [...new Set([...ours.keys(), ...theirs.keys()])].map((key) => {
    const one = ours.get(key) ?? null;
    const other = theirs.get(key) ?? null;
    const { name, service } = /** @type {Operation} */ (one ?? other);
    return { key, name, service, left: one, right: other };
  });
  /** @param {ComparedOperation} row */
  const difference = (row) => Math.abs((row.right?.criticalMs ?? 0) - (row.left?.criticalMs ?? 0));
  return rows.sort((a, b) => difference(b) - difference(a));
}
