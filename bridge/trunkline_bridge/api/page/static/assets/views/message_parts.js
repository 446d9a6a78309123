/** Parts of the views of messages: states of deliveries, one message with its attempts, and what can be done with it. */

import { postJson } from "../api.js";
import { Badge, Button, Facts, Id, Time } from "../components/basics.js";
import { DetailsPanel } from "../components/details_panel.js";
import { Field } from "../components/fields.js";
import { Dialog } from "../components/dialog.js";
import { JsonView } from "../components/json_view.js";
import { toast } from "../components/toasts.js";
import { plural } from "../format.js";
import { href } from "../router.js";
import { asApiError } from "../store/hooks.js";
import { MESSAGES, deliveryState, isDead } from "../store/messages.js";
import { mayCall } from "../store/session.js";
import { html, useState } from "../vendor/preact.js";

/**
 * @typedef {import("../store/messages.js").StoredEnvelope} StoredEnvelope
 * @typedef {import("../store/messages.js").Delivery} Delivery
 */

/** @type {Record<string, import("../format.js").Tone>} */
const DELIVERY_TONES = { pending: "neutral", running: "info", handled: "ok", dead: "error", expired: "warn", canceled: "neutral" };

/** @param {{delivery: Delivery}} props */
export function DeliveryBadge({ delivery }) {
  const state = deliveryState(delivery);
  return html`<${Badge} tone=${DELIVERY_TONES[state] ?? "neutral"} live=${state === "running"}>${state}<//>`;
}

/**
 * The states of all deliveries, in words.
 * @param {{stored: StoredEnvelope}} props
 */
export function Deliveries({ stored }) {
  const deliveries = stored.deliveries ?? [];
  if (!deliveries.length) return html`<span class="muted">stored</span>`;
  /** @type {Map<string, Delivery[]>} */
  const byState = new Map();
  for (const delivery of deliveries) byState.set(deliveryState(delivery), [...(byState.get(deliveryState(delivery)) ?? []), delivery]);
  return html`<span class="row">${[...byState].map(([state, some]) => html`<${Badge} key=${state} tone=${DELIVERY_TONES[state] ?? "neutral"} live=${state === "running"} title=${some.map((each) => each.recipient).join(", ")}>${state}${deliveries.length > 1 && ` ${some.length}`}<//>`)}</span>`;
}

/**
 * One message.
 * @param {{stored: StoredEnvelope, onClose: () => void, onChanged: () => void, inConversation?: boolean}} props
 */
export function MessageDetails({ stored, onClose, onChanged, inConversation }) {
  const { envelope, deliveries = [] } = stored;
  return html`<${DetailsPanel} title=${envelope.type || "Message"} class="message-details" onClose=${onClose}>
    <div class="stack">
      <${Facts}
        items=${[
          ["From", envelope.sender],
          ["To", envelope.recipient],
          envelope.room && ["Room", envelope.room],
          ["Sent", html`<${Time} value=${envelope.createTime} />`],
          ["Message", html`<${Id} value=${envelope.envelopeId} />`],
          !inConversation && ["Conversation", html`<${Id} value=${envelope.correlationId} link=${href(["messages", envelope.correlationId])} />`],
          envelope.causationId && [envelope.isReply ? "Answers" : "Sent for", html`<${Id} value=${envelope.causationId} />`],
          envelope.replayOf && ["Replay of", html`<${Id} value=${envelope.replayOf} />`],
        ]}
      />
      ${envelope.text !== undefined ? html`<p class="message-text">${envelope.text}</p>` : envelope.data && html`<${JsonView} value=${envelope.data} open=${2} />`}
      <section><h3>Deliveries</h3>
        ${deliveries.length ? html`<ul class="deliveries">${deliveries.map((delivery) => html`<${DeliveryItem} key=${delivery.recipient} delivery=${delivery} />`)}</ul>` : html`<p class="muted">No agent gets it: users read it here.</p>`}
      </section>
      <${MessageActions} stored=${stored} onChanged=${onChanged} />
    </div>
  <//>`;
}

/** @param {{delivery: Delivery}} props */
function DeliveryItem({ delivery }) {
  const attempts = delivery.attempts ?? [];
  return html`<li>
    <div class="row"><span class="grow truncate">${delivery.recipient}</span><span class="muted small nowrap">${plural(delivery.attemptCount ?? attempts.length, "attempt")}</span><${DeliveryBadge} delivery=${delivery} /></div>
    ${attempts.length > 0 &&
    html`<ol class="attempts small">${attempts.map(
      (attempt, index) => html`<li key=${index}>
        <span class="row"><${Time} value=${attempt.startTime} />${attempt.taskId && html`<${Id} value=${attempt.taskId} link=${href(["tasks", attempt.taskId])} />`}</span>
        ${attempt.problem && html`<p class="error-text">${attempt.problem}</p>`}
      </li>`,
    )}</ol>`}
  </li>`;
}

/** @param {{stored: StoredEnvelope, onChanged: () => void}} props */
export function MessageActions({ stored, onChanged }) {
  const [replaying, setReplaying] = useState(false);
  const [busy, setBusy] = useState(false);
  const { envelopeId } = stored.envelope;
  const redrive = async () => {
    setBusy(true);
    await redriveMessages({ envelopeId }, onChanged);
    setBusy(false);
  };
  return html`<div class="row wrap">
    ${isDead(stored) && mayCall("RedriveEnvelopes") && html`<${Button} icon="refresh" busy=${busy} title="Delivers it again, from the first attempt on" onClick=${redrive}>Redrive<//>`}
    ${mayCall("ReplayEnvelopes") && html`<${Button} icon="play" title="Sends it again as a new message" onClick=${() => setReplaying(true)}>Replay<//>`}
    ${!mayCall("ReplayEnvelopes") && !mayCall("RedriveEnvelopes") && html`<span class="muted small">Your credentials do not permit sending messages again.</span>`}
    ${replaying && html`<${ReplayDialog} filter=${{ envelopeId }} recipient=${stored.envelope.recipient} onClose=${() => setReplaying(false)} onDone=${onChanged} />`}
  </div>`;
}

/**
 * Delivers dead letters again.
 * @param {Record<string, any>} filter
 * @param {() => void} onDone
 */
export async function redriveMessages(filter, onDone) {
  try {
    const { deliveries = 0 } = await postJson(`${MESSAGES}:redrive`, { filter });
    toast(`Delivers ${plural(Number(deliveries), "dead letter")} again.`, "ok");
    onDone();
  } catch (error) {
    toast(asApiError(error).message, "error");
  }
}

/**
 * Sends messages again as new ones, if wanted to another recipient.
 * @param {{filter: Record<string, any>, recipient?: string, onClose: () => void, onDone: () => void}} props
 */
export function ReplayDialog({ filter, recipient = "", onClose, onDone }) {
  const [to, setTo] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  const replay = async () => {
    setBusy(true);
    setError("");
    try {
      const { envelopeIds = [] } = await postJson(`${MESSAGES}:replay`, { filter, ...(to.trim() ? { recipient: to.trim() } : {}) });
      toast(`Sent ${plural(envelopeIds.length, "message")} again.`, "ok");
      onDone();
      onClose();
    } catch (problem) {
      setError(asApiError(problem).message);
      setBusy(false);
    }
  };
  return html`<${Dialog}
    title="Replay"
    onClose=${onClose}
    actions=${html`<${Button} onClick=${onClose}>Close<//><${Button} kind="primary" busy=${busy} onClick=${replay}>Replay<//>`}
  >
    <div class="stack">
      <p>It is sent again as a new message that names the one it repeats.</p>
      <${Field} label="Recipient (optional)" hint=${recipient && `Without one: ${recipient}, as it was sent.`}>
        ${(/** @type {string} */ id) => html`<input id=${id} class="input" autocomplete="off" value=${to} onInput=${(/** @type {any} */ event) => setTo(event.target.value)} />`}
      <//>
      ${error && html`<p class="error-text" role="alert">${error}</p>`}
    </div>
  <//>`;
}
