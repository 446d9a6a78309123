/** One trace, or the traces of a task: a waterfall with the critical path, and what its operations took. */

import { Badge, Button, CopyButton, Empty, ErrorState, Facts, Id, Loading, PageHeader, Time } from "../components/basics.js";
import { Search } from "../components/fields.js";
import { Tabs } from "../components/tabs.js";
import { cost, count, duration, plural } from "../format.js";
import { changeQuery, href } from "../router.js";
import { useJson } from "../store/hooks.js";
import { buildTrace, taskOf } from "../store/trace.js";
import { html, useMemo } from "../vendor/preact.js";
import { OperationTable } from "./trace_operations.js";
import { SpanDetails } from "./trace_span.js";
import { Waterfall } from "./trace_waterfall.js";

/** @param {import("../views.js").ViewProps} props */
export default function TraceView({ params, query }) {
  const taskId = params.task ?? "";
  const path = taskId ? `tasks/${encodeURIComponent(taskId)}/trace` : `traces/${encodeURIComponent(params.id ?? "")}`;
  const { data, error, loading, reload } = useJson(path);
  const trace = useMemo(() => (data ? buildTrace(data.spans ?? []) : null), [data]);
  const rootTask = taskId || trace?.taskIds[0] || "";
  // Prices are known to the task, not to its spans.
  const { data: task } = useJson(trace && rootTask && !trace.costMicros ? `tasks/${encodeURIComponent(rootTask)}` : null);
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
      after=${trace.errors > 0 && html`<${Badge} tone="error">${plural(trace.errors, "error")}<//>`}
    >
      ${!taskId && rootTask && html`<a class="button plain" href=${href(["tasks", rootTask])}>Task</a>`}
      <${CopyButton} text=${() => JSON.stringify(data, null, 2)} what="the spans as JSON">JSON<//>
      <${Button} icon="refresh" busy=${loading} onClick=${reload}>Reload<//>
    <//>
    <${Facts}
      items=${[
        ["Duration", duration(trace.length)],
        ["Started", html`<${Time} value=${trace.startTime} />`],
        ["Spans", count(trace.order.length)],
        ["Services", html`<div class="truncate" title=${trace.services.join(", ")}>${trace.services.length > 2 ? `${count(trace.services.length)}: ` : ""}${trace.services.join(", ")}</div>`],
        calls > 0 && ["Model calls", count(calls)],
        input + output > 0 && ["Tokens in, out", `${count(input)}, ${count(output)}`],
        costMicros > 0 && ["Cost", cost(costMicros)],
        [traceIds.length === 1 ? "Trace" : "Traces", html`${traceIds.map((id) => html`<${Id} key=${id} value=${id} />`)}`],
      ]}
    />
    ${trace.roots.some((node) => node.isOrphan) &&
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
