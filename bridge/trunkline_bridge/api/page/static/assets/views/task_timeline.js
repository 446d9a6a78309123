/** The timeline of a task's journal. */

import { Empty, Loading, Panel } from "../components/basics.js";
import { Icon } from "../components/icons.js";
import { JsonView } from "../components/json_view.js";
import { Table } from "../components/table.js";
import { duration, elapsedMs, fullTime, plural, timeMs } from "../format.js";
import { changeQuery, href } from "../router.js";
import { runSize } from "../store/task_events.js";
import { html, useMemo, useState } from "../vendor/preact.js";

/** @typedef {import("../store/task_events.js").TimelineEntry} TimelineEntry */

/**
 * @param {{
 *   entries: TimelineEntry[], version: number, at: number | null, taskId: string, createdAt: string,
 *   status: {state: import("../api.js").StreamState},
 * }} props version: changes with the entries, which are changed in place.
 */
export function Timeline({ entries, version, at, taskId, createdAt, status }) {
  const [text, setText] = useState("");
  const start = entries[0]?.time ?? createdAt;
  const rows = useMemo(() => {
    const words = text.trim().toLowerCase();
    if (!words) return [...entries];
    const sequence = /^\d+$/.test(words) ? Number(words) : 0;
    return entries.filter((entry) => (entry.first <= sequence && sequence <= entry.last) || `${entry.title} ${entry.detail} ${entry.agent}`.toLowerCase().includes(words));
  }, [version, text, entries]);
  const chosen = at ? entries.find((entry) => entry.first <= at && at <= entry.last) : undefined;
  const columns = useMemo(() => makeColumns(start, taskId), [start, taskId]);
  return html`<${Panel}
    title="Timeline"
    flush
    class="timeline"
    actions=${html`<input class="input timeline-search" type="search" placeholder="Find text or sequence" aria-label="Find an event by its text or sequence" value=${text} onInput=${(/** @type {any} */ event) => setText(event.target.value)} />`}
  >
    ${rows.length
      ? html`<${Table}
          label="Events of the task"
          columns=${columns}
          rows=${rows}
          rowHeight=${44}
          rowKey=${(/** @type {TimelineEntry} */ entry) => String(entry.first)}
          selected=${chosen && String(chosen.first)}
          rowClass=${(/** @type {TimelineEntry} */ entry) => (at && entry.first > at ? "later" : "")}
        />`
      : status.state === "connecting" || (status.state === "live" && !text && !entries.length)
        ? html`<${Loading} label="Reading the journal" />`
        : html`<${Empty} title=${text ? "No event matches" : "No events"} />`}
    ${chosen && html`<${EventDetails} entry=${chosen} />`}
  <//>`;
}

/**
 * @param {string} start
 * @param {string} taskId
 * @returns {import("../components/table.js").Column<TimelineEntry>[]}
 */
function makeColumns(start, taskId) {
  return [
    { key: "time", title: "After", width: "68px", align: "end", cell: (entry) => html`<span class="muted small mono" title=${fullTime(timeMs(entry.time))}>+${duration(Math.max(0, elapsedMs(start, entry.time)))}</span>` },
    {
      key: "event",
      title: "Event",
      width: "minmax(0, 1fr)",
      cell: (entry) => html`<div class="timeline-event">
        <span class="timeline-icon ${entry.tone}"><${Icon} name=${entry.icon} size=${14} /></span>
        <div class="grow">
          <div class="row"><a class="row-link truncate" href=${linkTo(taskId, entry)}>${entry.title}</a>${entry.agent && html`<span class="tag">${entry.agent}</span>`}<span class="muted small nowrap">${runSize(entry)}</span></div>
          <div class="truncate muted small">${entry.detail}</div>
        </div>
      </div>`,
    },
    { key: "sequence", title: "Sequence", width: "70px", from: 460, align: "end", cell: (entry) => html`<span class="muted small mono">${entry.first}</span>` },
  ];
}

/**
 * @param {string} taskId
 * @param {TimelineEntry} entry
 */
function linkTo(taskId, entry) {
  return href(["tasks", taskId], { at: entry.last });
}

/** @param {{entry: TimelineEntry}} props */
function EventDetails({ entry }) {
  const range = entry.first === entry.last ? `Sequence ${entry.first}` : `Sequences ${entry.first} to ${entry.last}`;
  return html`<div class="event-details">
    <div class="row"><h3 class="grow">${entry.title}</h3><button type="button" class="link small" onClick=${() => changeQuery({ at: "" })}>Close</button></div>
    <p class="muted small">${range}, ${fullTime(timeMs(entry.time))}${entry.last > entry.first && `, ${plural(entry.last - entry.first + 1, "piece")}`}</p>
    <${JsonView} value=${{ [entry.kind]: entry.event }} open=${3} />
  </div>`;
}
