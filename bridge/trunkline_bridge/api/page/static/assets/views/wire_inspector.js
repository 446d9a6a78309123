/** The inspector: checks the card of any A2A agent, and sends it a message, by the bridge's own client. */

import { Badge, Button, CopyButton, ErrorState } from "../components/basics.js";
import { Field, Select } from "../components/fields.js";
import { Icon } from "../components/icons.js";
import { JsonView } from "../components/json_view.js";
import { useInspection } from "../store/inspection.js";
import { html, useState } from "../vendor/preact.js";

const ACTIONS = [
  { value: "card", label: "Check the card" },
  { value: "send", label: "Send a message" },
  { value: "stream", label: "Stream a message" },
];
const BINDINGS = ["JSONRPC", "HTTP+JSON", "GRPC"];
const VERSIONS = ["1.0", "0.3"];

/**
 * Returns headers from lines such as `Authorization: Bearer …`.
 * @param {string} text
 * @returns {{headers: Record<string, string>, problem: string}}
 */
export function readHeaders(text) {
  /** @type {Record<string, string>} */
  const headers = {};
  for (const line of text.split("\n")) {
    if (!line.trim()) continue;
    const colon = line.indexOf(":");
    if (colon < 1) return { headers, problem: `“${line}” is no header; write “Name: value”.` };
    headers[line.slice(0, colon).trim()] = line.slice(colon + 1).trim();
  }
  return { headers, problem: "" };
}

export function Inspector() {
  const { state, run, stop } = useInspection();
  const [form, setForm] = useState({ url: "", action: "card", text: "Hello", binding: "", version: "", headers: "" });
  const { headers, problem } = readHeaders(form.headers);
  const isRunning = state.phase === "running";
  /** @param {string} name */
  const change = (name) => (/** @type {any} */ event) => setForm((now) => ({ ...now, [name]: event.target?.value ?? event }));
  /** @param {Event} event */
  const submit = (event) => {
    event.preventDefault();
    if (problem || isRunning || !form.url.trim()) return;
    const { action, binding, version, text } = form;
    void run({ url: form.url.trim(), action, headers, ...(binding ? { binding } : {}), ...(version ? { version } : {}), ...(action === "card" ? {} : { text }) });
  };
  return html`<div class="inspector">
    <form class="stack" aria-label="Inspector" onSubmit=${submit}>
      <${Field} label="URL of the agent or of its card" hint="Public hosts over https, and those of inspect_allow in [page].">
        ${(/** @type {string} */ id) => html`<input id=${id} class="input mono" type="url" required value=${form.url} placeholder="https://agent.example.com" onInput=${change("url")} />`}
      <//>
      <div class="row wrap">
        <${Select} label="Do" visibleLabel value=${form.action} options=${ACTIONS} onChange=${change("action")} />
        <${Select} label="Binding" visibleLabel all="Any" value=${form.binding} options=${BINDINGS} onChange=${change("binding")} />
        <${Select} label="Version" visibleLabel all="Any" value=${form.version} options=${VERSIONS} onChange=${change("version")} />
      </div>
      ${form.action !== "card" && html`<${Field} label="Message">${(/** @type {string} */ id) => html`<textarea id=${id} rows="2" value=${form.text} onInput=${change("text")}></textarea>`}<//>`}
      <${Field} label="Headers (optional)" hint="One a line, such as Authorization: Bearer … They are sent to this agent only, and not kept.">
        ${(/** @type {string} */ id) => html`<textarea id=${id} class="mono" rows="2" spellcheck=${false} value=${form.headers} onInput=${change("headers")}></textarea>`}
      <//>
      ${problem && html`<p class="error-text small" role="alert">${problem}</p>`}
      <div class="row"><button type="submit" class="button primary" disabled=${isRunning || Boolean(problem) || !form.url.trim()}>Inspect</button>
        ${isRunning && html`<${Button} icon="stop" onClick=${stop}>Stop<//>`}</div>
    </form>
    <${Result} state=${state} />
  </div>`;
}

/** @param {{state: import("../store/inspection.js").InspectionState}} props */
function Result({ state }) {
  const { phase, steps, frames, ok, error } = state;
  if (phase === "idle") return null;
  return html`<div class="stack">
    <div class="row" role="status"><h2>Result</h2>
      ${phase === "running" ? html`<${Badge} tone="info" live>running<//>` : html`<${Badge} tone=${ok ? "ok" : "error"}>${ok ? "no problems" : error ? "not done" : "problems found"}<//>`}</div>
    ${error && html`<${ErrorState} error=${error} title="The inspection could not run" />`}
    <ol class="stack" aria-label="Steps">
      ${steps.map((step, index) => html`<li class="row inspect-step" key=${index}>
        <span class=${step.ok ? "ok-text" : "error-text"}><${Icon} name=${step.ok ? "check" : "alert"} /></span><span class="visually-hidden">${step.ok ? "right" : "wrong"}: </span>
        <div class="grow"><strong class="small">${step.name}</strong> <span class="step-detail">${step.detail}</span></div></li>`)}
    </ol>
    ${frames.length > 0 && html`<h2>Frames</h2><ol class="stack" aria-label="Frames">${frames.map((frame, index) => html`<${FrameItem} key=${index} frame=${frame} />`)}</ol>`}
  </div>`;
}

/** @param {{frame: any}} props */
function FrameItem({ frame }) {
  const { direction, target, status, ...content } = frame;
  const [value] = Object.values(content);
  return html`<li class="frame-json">
    <div class="row"><${Badge} tone=${direction === "sent" ? "info" : "neutral"}>${direction}<//><span class="muted small mono grow truncate" title=${target ?? status}>${target ?? status ?? ""}</span>
      ${value !== undefined && html`<${CopyButton} text=${() => (typeof value === "string" ? value : JSON.stringify(value, null, 2))} what="the frame" />`}</div>
    ${value !== undefined && html`<${JsonView} value=${value} open=${2} />`}
  </li>`;
}
