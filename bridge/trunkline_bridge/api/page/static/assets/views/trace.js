/** One trace, or the traces of a task: a waterfall with the critical path, and what its operations took. */

import { Badge, Button, CopyButton, Empty, ErrorState, Facts, Id, LiveStatus, Loading, PageHeader, Time } from "../components/basics.js";
import { Search } from "../components/fields.js";
import { Tabs } from "../components/tabs.js";
import { cost, count, duration, hasEnded, plural } from "../format.js";
import { changeQuery, href } from "../router.js";
import { useJson, useStream } from "../store/hooks.js";
import { buildTrace, isComplete, isLost, taskOf } from "../store/trace.js";
import { html, useEffect, useMemo, useRef } from "../vendor/preact.js";
import { OperationTable } from "./trace_operations.js";
import { TaskLinks } from "./task_links.js";
import { SpanDetails } from "./trace_span.js";
import { Waterfall } from "./trace_waterfall.js";

/**
 * Reads a trace again when more of its spans have arrived.
 * @param {import("../store/trace.js").Trace | null} trace
 * @param {string} id Of the trace, or of a task in it.
 * @param {boolean} loading
 * @param {() => void} reload
 */
function useTraceChanges(trace, id, loading, reload) {
  const changed = useRef(false);
  const status = useStream("traces:watch", (events) => {
    const known = new Set(trace?.order.map((node) => node.span.traceId));
    const isMine = (/** @type {any} */ row) => row.traceId === id || known.has(row.traceId) || (row.taskIds ?? []).includes(id);
    changed.current ||= events.some((event) => event.type === "ready" || event.type === "reset" || (event.type === "trace" && isMine(event.data)));
    if (changed.current && !loading) {
      changed.current = false;
      reload();
    }
  });
  useEffect(() => {
    if (loading || !changed.current) return;
    changed.current = false;
    reload();
  }, [loading]);
  return status;
}

/** @param {import("../store/trace.js").Trace} trace */
function missingSpans(trace) {
  const lost = trace.order.filter((node) => isLost(node.span)).length;
  return lost
    ? `${plural(lost, "span")} of this trace ${lost === 1 ? "was" : "were"} lost: the process that worked on ${lost === 1 ? "it" : "them"} was killed before it could report. What is below a lost span is in its place.`
    : `This trace has ${count(trace.order.length)} spans. The mesh keeps no more of one trace and has dropped the others.`;
}

/** @param {import("../views.js").ViewProps} props */
export default function TraceView({ params, query }) {
  const taskId = params.task ?? "";
  const path = taskId ? `tasks/${encodeURIComponent(taskId)}/trace` : `traces/${encodeURIComponent(params.id ?? "")}`;
  const { data, error, loading, reload } = useJson(path);
  const trace = useMemo(() => (data ? buildTrace(data) : null), [data]);
  const status = useTraceChanges(trace, taskId || (params.id ?? ""), loading, reload);
  const rootTask = taskId || trace?.taskIds[0] || "";
  const isWhole = trace !== null && !data.isIncomplete && isComplete(trace);
  // Models that an agent calls by a client of its own have no spans; their price is that of the task.
  const { data: task, reload: reloadTask } = useJson(trace && rootTask ? `tasks/${encodeURIComponent(rootTask)}` : null);
  const taskEnded = hasEnded(task?.task?.task?.status?.state);
  useEffect(() => {
    if (isWhole && task && !taskEnded) reloadTask();
  }, [isWhole]);
  const hasAll = isWhole && (taskEnded || !rootTask);
  const back = taskId ? { href: href(["tasks", taskId]), label: "Task" } : { href: href(["traces"]), label: "Traces" };

  if (!trace) {
    return html`<div class="view">
      <${PageHeader} title="Trace" back=${back} />
      ${error ? html`<${ErrorState} error=${error} onRetry=${reload} title="The trace could not be loaded" />` : html`<${Loading} label="Loading the trace" />`}
    </div>`;
  }
  const root = trace.roots[0];
  const text = query.get("text") ?? "";
  const onlyErrors = query.get("errors") === "1";
  const onlyCritical = query.get("critical") === "1";
  const tab = query.get("tab") ?? "waterfall";
  const selected = trace.byId.get(query.get("span") ?? "");
  const { input, output, calls } = trace.tokens;
  const costMicros = trace.costMicros || Number(task?.task?.usage?.costMicros ?? 0);
  const traceIds = [...new Set(trace.order.map((node) => node.span.traceId))];
  const tabs = [
    { id: "waterfall", label: "Waterfall", count: trace.order.length },
    { id: "operations", label: "Operations" },
  ];
  return html`<div class="view full trace">
    <${PageHeader}
      title=${root?.span.name ?? "Trace"}
      back=${back}
      after=${html`${trace.errors > 0 && html`<${Badge} tone="error">${plural(trace.errors, "error")}<//>`}${data.isIncomplete && html`<${Badge} tone="warn">incomplete<//>`}<${LiveStatus} status=${hasAll && status.state === "live" ? { state: "ended", error: null } : status} />`}
    >
      ${rootTask && html`<${TaskLinks} id=${rootTask} without="trace" />`}
      <${CopyButton} text=${() => JSON.stringify(data, null, 2)} what="the spans as JSON">JSON<//>
    <//>
    <${Facts}
      items=${[
        ["Duration", duration(trace.length)],
        ["Started", html`<${Time} value=${trace.startTime} />`],
        ["Spans", count(trace.order.length)],
        ["Services", html`<div class="truncate" title=${trace.services.join(", ")}>${trace.services.length > 2 ? `${count(trace.services.length)}: ` : ""}${trace.services.join(", ")}</div>`],
        calls > 0 && ["Model calls", count(calls)],
        input + output > 0 && ["Tokens in, out", `${count(input)}, ${count(output)}`],
        costMicros > 0 && [trace.costMicros ? "Cost" : "Cost of the task", cost(costMicros)],
        [traceIds.length === 1 ? "Trace" : "Traces", html`${traceIds.map((id) => html`<${Id} key=${id} value=${id} />`)}`],
      ]}
    />
    ${data.isIncomplete && html`<p class="notice warn">${missingSpans(trace)}</p>`}
    ${trace.roots.some((node) => node.span.isOrphan) &&
    html`<p class="notice warn">Some spans have parents that were not received: they may still arrive, or belong to a caller with a tracing backend of its own.</p>`}
    <${Tabs} label="Views of the trace" tabs=${tabs} selected=${tab} onSelect=${(/** @type {string} */ id) => changeQuery({ tab: id === "waterfall" ? "" : id })}>
      ${tab === "operations"
        ? html`<${OperationTable} trace=${trace} />`
        : html`<div class="toolbar">
              <${Search} label="Find a span" value=${text} onChange=${(/** @type {string} */ next) => changeQuery({ text: next })} />
              <${Button} pressed=${onlyCritical} onClick=${() => changeQuery({ critical: onlyCritical ? "" : 1 })}>Critical path<//>
              ${trace.errors > 0 && html`<${Button} pressed=${onlyErrors} onClick=${() => changeQuery({ errors: onlyErrors ? "" : 1 })}>Errors<//>`}
              <span class="grow"></span>
              <span class="legend muted small"><span class="legend-line"></span>critical path</span>
            </div>
            ${trace.order.length
              ? html`<div class="trace-split ${selected ? "with-details" : ""}">
                  <${Waterfall} trace=${trace} text=${text} onlyErrors=${onlyErrors} onlyCritical=${onlyCritical} selected=${selected?.span.spanId ?? ""} />
                  ${selected && html`<${SpanDetails} node=${selected} trace=${trace} taskId=${taskOf(selected.span)} />`}
                </div>`
              : html`<${Empty} icon="traces" title="No spans">They may still be on their way.<//>`}`}
    <//>
  </div>`;
}
