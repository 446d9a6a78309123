/** The dialog that sends a message to an agent, a room, all agents or a user. */

import { postJson } from "../api.js";
import { Button } from "../components/basics.js";
import { Dialog } from "../components/dialog.js";
import { Field, Select } from "../components/fields.js";
import { toast } from "../components/toasts.js";
import { parseJson } from "../json.js";
import { asApiError } from "../store/hooks.js";
import { useAgents, useMesh } from "../store/mesh.js";
import { MESSAGES } from "../store/messages.js";
import { html, useId, useRef, useState } from "../vendor/preact.js";

const PRIORITIES = ["low", "normal", "high"];

/**
 * @param {{recipient?: string, correlationId?: string, onClose: () => void, onSent: () => void}} props
 *   correlationId: of the conversation that it belongs to; without it, it begins one.
 */
export function SendDialog({ recipient = "", correlationId = "", onClose, onSent }) {
  const [to, setTo] = useState(recipient);
  const [type, setType] = useState("user_message");
  const [content, setContent] = useState("");
  const [isData, setData] = useState(false);
  const [priority, setPriority] = useState("normal");
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const names = useId();
  const agents = useAgents();
  const rooms = useMesh()?.rooms ?? [];
  // A click that is repeated after a lost answer sends one message.
  const envelopeId = useRef(newId());

  const send = async () => {
    setError("");
    /** @type {Record<string, any>} */
    const envelope = { envelopeId: envelopeId.current, recipient: to.trim(), type: type.trim(), priority: `ENVELOPE_PRIORITY_${priority.toUpperCase()}` };
    if (correlationId) envelope.correlationId = correlationId;
    if (envelope.recipient.startsWith("room:")) envelope.room = envelope.recipient.slice("room:".length);
    if (!envelope.recipient) return setError("Name a recipient.");
    if (!isData) envelope.text = content;
    else {
      try {
        envelope.data = parseJson(content);
      } catch (problem) {
        return setError(`The fields must be a JSON object: ${/** @type {Error} */ (problem).message}`);
      }
    }
    setBusy(true);
    try {
      await postJson(MESSAGES, envelope);
      toast("The message is sent.", "ok");
      onSent();
      onClose();
    } catch (problem) {
      const refusal = asApiError(problem);
      if (refusal.status) envelopeId.current = newId();
      setError(refusal.message);
      setBusy(false);
    }
    return undefined;
  };
  return html`<${Dialog}
    title=${correlationId ? "Send into this conversation" : "Send a message"}
    onClose=${onClose}
    actions=${html`<${Button} onClick=${onClose}>Close<//><${Button} kind="primary" busy=${busy} onClick=${send}>Send<//>`}
  >
    <div class="stack">
      <${Field} label="Recipient" hint="An agent, all, room:NAME or user:NAME">
        ${(/** @type {string} */ id) => html`<input id=${id} class="input" list=${names} autocomplete="off" value=${to} onInput=${(/** @type {any} */ event) => setTo(event.target.value)} />
          <datalist id=${names}>${[...agents, "all", ...rooms.map((room) => `room:${room.name}`)].map((name) => html`<option key=${name} value=${name} />`)}</datalist>`}
      <//>
      <${Field} label="Type">
        ${(/** @type {string} */ id) => html`<input id=${id} class="input mono" autocomplete="off" value=${type} onInput=${(/** @type {any} */ event) => setType(event.target.value)} />`}
      <//>
      <div class="row wrap">
        <div class="segments" role="group" aria-label="Content">
          <button type="button" aria-pressed=${String(!isData)} onClick=${() => setData(false)}>Text</button>
          <button type="button" aria-pressed=${String(isData)} onClick=${() => setData(true)}>Fields</button>
        </div>
        <${Select} label="Priority" visibleLabel value=${priority} options=${PRIORITIES} onChange=${setPriority} />
      </div>
      <${Field} label=${isData ? "Fields of the type, as JSON" : "Text"}>
        ${(/** @type {string} */ id) => html`<textarea id=${id} rows="5" class=${isData ? "mono" : ""} spellcheck=${!isData} value=${content} onInput=${(/** @type {any} */ event) => setContent(event.target.value)}></textarea>`}
      <//>
      ${error && html`<p class="error-text" role="alert">${error}</p>`}
    </div>
  <//>`;
}

function newId() {
  return crypto.randomUUID?.() ?? `page-${Date.now()}-${Math.random().toString(36).slice(2)}`;
}
