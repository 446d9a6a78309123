/** A trace: its tree, its critical path, its tokens, and what its operations took. */

import { timeNs } from "../format.js";

/**
 * @typedef {object} Span As the API sends it.
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
 *
 * @typedef {object} SpanNode
 * @property {Span} span
 * @property {number} start Milliseconds after the first span.
 * @property {number} end
 * @property {number} depth
 * @property {SpanNode[]} children By start.
 * @property {SpanNode | null} parent
 * @property {boolean} isOrphan Its parent is not in the trace.
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

const MODEL_OPERATIONS = new Set(["chat", "generate_content", "text_completion", "embeddings"]);
const TASK_KEYS = ["trunkline.task.id", "a2a.task.id"];

/** @param {Span} span */
export function taskOf(span) {
  for (const key of TASK_KEYS) if (span.attributes?.[key]) return String(span.attributes[key]);
  return "";
}

/** @param {Span} span */
export function tokensOf(span) {
  const attributes = span.attributes ?? {};
  // Spans of agents repeat what the calls of their models used.
  if (!MODEL_OPERATIONS.has(attributes["gen_ai.operation.name"])) return null;
  const input = Number(attributes["gen_ai.usage.input_tokens"] ?? 0);
  const output = Number(attributes["gen_ai.usage.output_tokens"] ?? 0);
  return { input, output };
}

/** @param {Span} span The price of a model's reply, in millionths. */
export function costOf(span) {
  return Number(span.attributes?.["trunkline.cost_micros"] ?? 0);
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
 * Builds a trace from its spans.
 * @param {Span[]} spans
 * @returns {Trace}
 */
export function buildTrace(spans) {
  const starts = spans.map((span) => timeNs(span.startTime));
  const first = starts.reduce((least, start) => (start < least ? start : least), starts[0] ?? 0n);
  const firstSpan = spans[starts.indexOf(first)];
  /** @param {bigint} time */
  const offset = (time) => Number(time - first) / 1_000_000;
  /** @type {Map<string, SpanNode>} */
  const byId = new Map();
  spans.forEach((span, index) => {
    const start = offset(/** @type {bigint} */ (starts[index]));
    const end = Math.max(start, offset(timeNs(span.endTime)));
    byId.set(span.spanId, { span, start, end, depth: 0, children: [], parent: null, isOrphan: false, below: 0, critical: [] });
  });
  /** @type {SpanNode[]} */
  const roots = [];
  for (const node of byId.values()) {
    const parentId = node.span.parentSpanId;
    const parent = parentId ? byId.get(parentId) : undefined;
    if (parent && !isAbove(node, parent)) {
      node.parent = parent;
      parent.children.push(node);
    } else {
      node.isOrphan = Boolean(parentId);
      roots.push(node);
    }
  }
  const order = arrange(roots);
  const length = order.reduce((most, node) => Math.max(most, node.end), 0);
  for (const root of roots) markCriticalPath(root);
  const tokens = { input: 0, output: 0, calls: 0 };
  let costMicros = 0;
  const taskIds = new Set();
  for (const { span } of order) {
    const used = tokensOf(span);
    if (used) {
      tokens.input += used.input;
      tokens.output += used.output;
      tokens.calls += 1;
    }
    costMicros += costOf(span);
    if (taskOf(span)) taskIds.add(taskOf(span));
  }
  return {
    ...{ roots, order, byId, length, tokens, costMicros },
    startTime: firstSpan?.startTime ?? "",
    errors: order.filter((node) => node.span.isError).length,
    services: [...new Set(order.map((node) => node.span.service ?? ""))].filter(Boolean),
    taskIds: [...taskIds],
  };
}

/**
 * Returns true if a node is above another one, as in a broken trace with a cycle.
 * @param {SpanNode} node
 * @param {SpanNode} other
 */
function isAbove(node, other) {
  for (let each = /** @type {SpanNode | null} */ (other); each; each = each.parent) if (each === node) return true;
  return false;
}

/**
 * Sorts the children and returns all nodes with their depths. Without recursion: a trace may be very deep.
 * @param {SpanNode[]} roots
 */
function arrange(roots) {
  /** @param {SpanNode} a @param {SpanNode} b */
  const byStart = (a, b) => a.start - b.start || b.end - a.end;
  // Orphans come after the root.
  roots.sort((a, b) => Number(a.isOrphan) - Number(b.isOrphan) || byStart(a, b));
  /** @type {SpanNode[]} */
  const order = [];
  const pending = [...roots].reverse();
  while (pending.length) {
    const node = /** @type {SpanNode} */ (pending.pop());
    node.depth = node.parent ? node.parent.depth + 1 : 0;
    order.push(node);
    node.children.sort(byStart);
    for (let index = node.children.length - 1; index >= 0; index -= 1) pending.push(/** @type {SpanNode} */ (node.children[index]));
  }
  for (let index = order.length - 1; index >= 0; index -= 1) {
    const { parent, below } = /** @type {SpanNode} */ (order[index]);
    if (parent) parent.below += below + 1;
  }
  return order;
}

/**
 * Marks the critical path: from the end backwards, always the child that ended last before. A child that outlives its
 * parent counts until the parent's end.
 * @param {SpanNode} root
 */
function markCriticalPath(root) {
  const pending = [{ node: root, until: root.end }];
  while (pending.length) {
    const { node, until } = /** @type {{node: SpanNode, until: number}} */ (pending.pop());
    let cursor = until;
    const byEnd = node.children.filter((child) => child.start < cursor).sort((a, b) => b.end - a.end);
    for (const child of byEnd) {
      if (child.start >= cursor || cursor <= node.start) continue;
      const end = Math.min(child.end, cursor);
      if (end <= node.start || end <= child.start) continue;
      if (end < cursor) node.critical.push({ from: end, to: cursor });
      pending.push({ node: child, until: end });
      cursor = Math.max(child.start, node.start);
    }
    if (cursor > node.start) node.critical.push({ from: node.start, to: cursor });
  }
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
    const tokens = tokensOf(node.span);
    operation.count += 1;
    operation.errors += node.span.isError ? 1 : 0;
    operation.totalMs += node.end - node.start;
    operation.criticalMs += criticalMs(node);
    operation.tokens += tokens ? tokens.input + tokens.output : 0;
    operation.costMicros += costOf(node.span);
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
