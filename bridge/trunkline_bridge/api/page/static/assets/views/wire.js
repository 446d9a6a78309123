/** The wire: a task as typed events and as each version of A2A says it, its requests as curl, and an inspector. */

import { Button, CopyButton, Empty, ErrorState, LiveStatus, Loading, PageHeader } from "../components/basics.js";
import { Select } from "../components/fields.js";
import { JsonView } from "../components/json_view.js";
import { Tabs } from "../components/tabs.js";
import { plural } from "../format.js";
import { changeQuery, href } from "../router.js";
import { mayCall, session } from "../store/session.js";
import { useTaskRows } from "../store/task_rows.js";
import { VERSIONS, useWire } from "../store/wire.js";
import { html, useId, useMemo, useState } from "../vendor/preact.js";
import { TaskLinks } from "./task_links.js";
import { Inspector } from "./wire_inspector.js";

/**
 * @typedef {import("../store/wire.js").WireRow} WireRow
 * @typedef {ReturnType<typeof useWire>} Wire
 */

const COLUMNS = [{ id: "events", label: "Typed events" }, ...VERSIONS];
const ROWS_AT_ONCE = 100;
const ANY_TASK = { agent: "", state: "", text: "", contextId: "", since: "" };
const SHOWN_TASKS = 20;

/** @param {import("../views.js").ViewProps} props */
export default function WireView({ query }) {
  const taskId = query.get("task") ?? "";
  const tabs = [
    { id: "frames", label: "Frames" },
    { id: "requests", label: "Requests" },
    ...(session.value?.features.inspector ? [{ id: "inspector", label: "Inspector" }] : []),
  ];
  const asked = query.get("tab") ?? "";
  const selected = tabs.some((tab) => tab.id === asked) ? asked : "frames";
  const isInspector = selected === "inspector";
  const wire = useWire(isInspector ? "" : taskId);
  return html`<div class="view">
    <${PageHeader} title="Wire" after=${taskId && !isInspector && html`<${LiveStatus} status=${wire.status} />`}>
      ${!isInspector && html`<${TaskField} key=${taskId} taskId=${taskId} />`}
      ${!isInspector && taskId && html`<${TaskLinks} id=${taskId} without="wire" />`}
    <//>
    <${Tabs} label="Wire" tabs=${tabs} selected=${selected} onSelect=${(/** @type {string} */ tab) => changeQuery({ tab: tab === "frames" ? "" : tab })}>
      ${isInspector && html`<${Inspector} />`}
      ${!isInspector && !taskId && html`<${ChooseTask} />`}
      ${!isInspector && taskId && (selected === "requests" ? html`<${Requests} wire=${wire} />` : html`<${Frames} wire=${wire} hidden=${query.get("hide") ?? ""} />`)}
    <//>
  </div>`;
}

/** @param {{taskId: string}} props */
function TaskField({ taskId }) {
  const id = useId();
  const [text, setText] = useState(taskId);
  return html`<form
    class="row task-field"
    onSubmit=${(/** @type {Event} */ event) => {
      event.preventDefault();
      changeQuery({ task: text.trim() });
    }}
  >
    <label class="muted small" for=${id}>Task</label>
    <input id=${id} class="input mono" value=${text} spellcheck=${false} autocomplete="off" placeholder="Id of a task" onInput=${(/** @type {any} */ event) => setText(event.target.value)} />
    <${Button} type="submit">Show<//>
  </form>`;
}

function ChooseTask() {
  const mayList = mayCall("ListTasks");
  const { rows, loading, error, retry } = useTaskRows(mayList ? ANY_TASK : null);
  if (!mayList) return html`<p class="notice">Your credentials do not allow listing tasks. It needs ListTasks.</p>`;
  if (error) return html`<${ErrorState} error=${error} onRetry=${retry} />`;
  if (loading && !rows.length) return html`<${Loading} label="Loading tasks" />`;
  if (!rows.length) return html`<${Empty} icon="wire" title="No tasks yet">Ask an agent, then see here what went over the wire.<//>`;
  return html`<section class="stack" aria-label="Newest tasks"><h2>Choose a task</h2>
    <ul class="stack">${rows.slice(0, SHOWN_TASKS).map((row) => html`<li class="row" key=${row.id}>
      <a class="row-link truncate" href=${href(["wire"], { task: row.id })}>${row.text || row.id}</a><span class="tag">${row.agent}</span></li>`)}</ul>
  </section>`;
}

/** @param {{wire: Wire, hidden: string}} props hidden: columns, separated by commas. */
function Frames({ wire, hidden }) {
  const { rows, byVersion, hasMore, loadMore } = wire;
  const [limit, setLimit] = useState(ROWS_AT_ONCE);
  const isHidden = new Set(hidden.split(",").filter(Boolean));
  const columns = COLUMNS.filter(({ id }) => !isHidden.has(id));
  /** @param {string} id */
  const toggle = (id) => {
    const next = new Set(isHidden);
    if (!next.delete(id) && columns.length > 1) next.add(id);
    changeQuery({ hide: [...next].join(",") });
  };
  const errors = VERSIONS.filter(({ id }) => byVersion[id]?.error);
  return html`<div class="stack">
    <div class="row wrap" role="group" aria-label="Columns">
      ${COLUMNS.map(({ id, label }) => html`<${Button} key=${id} pressed=${!isHidden.has(id)} onClick=${() => toggle(id)}>${label}<//>`)}
      <span class="grow"></span><span class="muted small" role="status">${rows.length ? plural(rows.length, "event") : ""}</span>
    </div>
    ${errors.map(({ id, label }) => html`<${ErrorState} key=${id} title=${`${label} could not be loaded`} error=${byVersion[id]?.error} onRetry=${loadMore} />`)}
    ${!rows.length && !errors.length && html`<${Loading} label="Loading the frames" />`}
    ${rows.length > 0 &&
    html`<div class="wire-grid" role="table" aria-label="Frames" style=${{ "--columns": String(columns.length) }}>
      <div class="wire-row wire-head" role="row">${columns.map(({ id, label }) => html`<div role="columnheader" key=${id}>${label}</div>`)}</div>
      ${rows.slice(0, limit).map((row) => html`<${Row} key=${row.sequence} row=${row} columns=${columns} />`)}
    </div>`}
    ${rows.length > limit && html`<div class="row"><${Button} onClick=${() => setLimit(limit + ROWS_AT_ONCE)}>Show ${plural(Math.min(ROWS_AT_ONCE, rows.length - limit), "more event")}<//></div>`}
    ${hasMore && rows.length <= limit && html`<div class="row"><${Button} onClick=${loadMore}>Load more frames<//></div>`}
  </div>`;
}

/** @param {{row: WireRow, columns: typeof COLUMNS}} props */
function Row({ row, columns }) {
  return html`<div class="wire-row" role="row">
    ${columns.map(({ id, label }) => html`<div class="wire-cell" role="cell" key=${id}><span class="wire-label muted small">${label}</span>
      ${id === "events" ? row.event && html`<${TypedEvent} event=${row.event} first=${row.sequence} />` : (row.frames[id] ?? []).map((frame) => html`<${FrameJson} key=${frame.id} title=${describe(frame.json)} position=${frame.id} value=${frame.json} />`)}
      ${id !== "events" && !row.frames[id] && html`<span class="muted small">No frame</span>`}
    </div>`)}
  </div>`;
}

/** @param {{event: import("../store/task_events.js").JournalEvent, first: number}} props */
function TypedEvent({ event, first }) {
  const [kind, content] = Object.entries(event.event)[0] ?? ["unknown", {}];
  const last = Number(event.sequence);
  return html`<${FrameJson} title=${kind} position=${first === last ? String(last) : `${first}–${last}`} value=${content} copied=${event} />`;
}

/**
 * Returns what a frame says: `artifactUpdate`, `status-update`, `status`.
 * @param {any} json
 */
function describe(json) {
  const result = json?.result ?? {};
  if (json?.error) return "error";
  if (result.kind) return result.kind;
  if (result.artifact) return "artifact";
  if (result.status && result.id) return "status";
  return Object.keys(result)[0] ?? "frame";
}

/** @param {{title: string, position: string, value: any, copied?: any}} props */
function FrameJson({ title, position, value, copied }) {
  const text = useMemo(() => () => JSON.stringify(copied ?? value, null, 2), [copied, value]);
  return html`<div class="frame-json">
    <div class="row"><strong class="small truncate">${title}</strong><span class="muted small mono grow">${position}</span><${CopyButton} text=${text} what=${`JSON of ${title} ${position}`} /></div>
    <${JsonView} value=${value?.result?.[title] ?? value?.result ?? value} open=${1} />
  </div>`;
}

/** @param {{wire: Wire}} props */
function Requests({ wire }) {
  const [version, setVersion] = useState("1.0");
  const found = wire.byVersion[version];
  return html`<div class="stack">
    <div class="row wrap"><${Select} label="Version" visibleLabel value=${version} options=${VERSIONS.map(({ id, label }) => ({ value: id, label }))} onChange=${setVersion} />
      <span class="muted small">The commands have no credentials. Add a header with yours if the bridge needs them.</span></div>
    ${found?.error && html`<${ErrorState} error=${found.error} />`}
    ${(!found || found.loading) && html`<${Loading} label="Loading the requests" />`}
    ${found && !found.loading && !found.error && !found.requests.length && html`<${Empty} title="No requests" />`}
    ${(found?.requests ?? []).map(({ title, curl }) => html`<article key=${title}>
      <div class="row"><h2 class="grow">${title}</h2><${CopyButton} text=${curl} what=${`as curl: ${title}`}>Copy as curl<//></div>
      <pre class="curl mono" tabindex="0" role="region" aria-label=${title}>${curl}</pre>
    </article>`)}
    ${!mayCall("SendMessage") && html`<p class="muted small">Your credentials do not allow sending messages: those commands will be refused.</p>`}
  </div>`;
}
