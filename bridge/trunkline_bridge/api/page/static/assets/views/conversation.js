/** One conversation: its messages as a sequence diagram, and as a table. */

import { Badge, Button, Empty, ErrorState, Id, LiveStatus, Loading, PageHeader, Time } from "../components/basics.js";
import { Select } from "../components/fields.js";
import { SequenceDiagram } from "../components/sequence_diagram.js";
import { Table } from "../components/table.js";
import { Tabs } from "../components/tabs.js";
import { clockTime, timeMs } from "../format.js";
import { changeQuery, href } from "../router.js";
import { deliveryState, payloadText, useMessages, useParticipant } from "../store/messages.js";
import { mayCall } from "../store/session.js";
import { html, useMemo, useState } from "../vendor/preact.js";
import { Deliveries, MessageDetails } from "./message_parts.js";
import { SendDialog } from "./message_send.js";

/**
 * @typedef {import("../store/messages.js").StoredEnvelope} StoredEnvelope
 * @typedef {import("../components/sequence_diagram.js").SequenceMessage} SequenceMessage
 */

/** @type {Record<string, import("../format.js").Tone>} */
const TONES = { pending: "neutral", running: "info", handled: "ok", dead: "error", expired: "warn", canceled: "warn" };

/** @param {import("../views.js").ViewProps} props */
export default function Conversation({ params, query }) {
  const id = params.id ?? "";
  const mayRead = mayCall("ListEnvelopes") && mayCall("WatchEnvelopes");
  const { agents, isRequired, participant } = useParticipant(query.get("participant") ?? "");
  const filter = isRequired ? { correlationId: id, participant } : { correlationId: id };
  const { rows, next, loading, error, status, loadMore, reload } = useMessages(mayRead && (participant || !isRequired) ? filter : null);
  const [sending, setSending] = useState(false);
  const tab = query.get("tab") === "table" ? "table" : "diagram";
  const selected = query.get("message") ?? "";
  const stored = rows.find((row) => row.envelope.envelopeId === selected);
  const sorted = useMemo(() => [...rows].reverse(), [rows]);
  const { participants, messages } = useMemo(() => drawConversation(sorted), [sorted]);
  const select = (/** @type {string} */ message) => changeQuery({ message: message === selected ? "" : message });
  const tabs = [
    { id: "diagram", label: "Diagram" },
    { id: "table", label: "Table", count: rows.length },
  ];
  return html`<div class="view conversation">
    <${PageHeader} title="Conversation" back=${{ href: href(["messages"]), label: "Messages" }} after=${mayRead && html`<${LiveStatus} status=${status} />`}>
      ${mayCall("SendEnvelopes") && html`<${Button} icon="messages" onClick=${() => setSending(true)}>Send into it<//>`}
    <//>
    <p class="muted small"><${Id} value=${id} full /></p>
    ${isRequired && mayRead &&
    html`<div class="toolbar"><${Select} label="From or to" visibleLabel value=${participant} options=${agents} onChange=${(/** @type {string} */ agent) => changeQuery({ participant: agent })} />
      <span class="muted small">Your credentials are for some agents: the messages of one are shown.</span></div>`}
    ${error && html`<${ErrorState} error=${error} onRetry=${reload} title="The conversation could not be loaded" />`}
    ${!mayRead
      ? html`<${Empty} icon="messages" title="No messages to see">Your credentials do not permit reading messages.<//>`
      : rows.length
        ? html`<${Tabs} label="Conversation" tabs=${tabs} selected=${tab} onSelect=${(/** @type {string} */ chosen) => changeQuery({ tab: chosen === "diagram" ? "" : chosen })}>
            ${next && html`<p class="row small muted">Older messages are not shown. <${Button} busy=${loading} onClick=${loadMore}>Load them<//></p>`}
            <div class="message-split ${stored ? "with-details" : ""}">
              ${tab === "diagram"
                ? html`<${SequenceDiagram} participants=${participants} messages=${messages} selected=${selected} onSelect=${select} label="Sequence diagram. The tab Table says the same." />`
                : html`<${ConversationTable} id=${id} rows=${sorted} selected=${selected} />`}
              ${stored && html`<${MessageDetails} stored=${stored} inConversation onClose=${() => changeQuery({ message: "" })} onChanged=${reload} />`}
            </div>
          <//>`
        : loading
          ? html`<${Loading} label="Loading the conversation" />`
          : !error && html`<${Empty} icon="messages" title="No messages">This conversation has none, or they were deleted.<//>`}
    ${sending && html`<${SendDialog} correlationId=${id} onClose=${() => setSending(false)} onSent=${() => {}} />`}
  </div>`;
}

/**
 * Returns what the diagram shows: a message to a room has an arrow to each member that gets it.
 * @param {StoredEnvelope[]} rows The oldest first.
 */
function drawConversation(rows) {
  /** @type {Set<string>} */
  const participants = new Set();
  /** @type {SequenceMessage[]} */
  const messages = rows.map(({ envelope, deliveries = [] }) => {
    const isShared = envelope.recipient === "all" || envelope.recipient === "broadcast" || envelope.recipient.startsWith("room:");
    const arrows = deliveries.length
      ? deliveries.map((delivery) => ({ to: delivery.recipient, state: deliveryState(delivery), tone: TONES[deliveryState(delivery)] ?? "neutral" }))
      : [{ to: envelope.recipient, state: "stored", tone: /** @type {const} */ ("neutral") }];
    participants.add(envelope.sender);
    for (const { to } of arrows) participants.add(to);
    const target = isShared && deliveries.length ? ` · ${envelope.recipient === "broadcast" ? `room:${envelope.room}` : envelope.recipient}` : "";
    return {
      ...{ id: envelope.envelopeId, from: envelope.sender, time: clockTime(timeMs(envelope.createTime)).slice(0, 12) },
      ...{ label: `${envelope.replayOf ? "replay of " : ""}${envelope.type}${target}`, isReply: Boolean(envelope.isReply), arrows },
    };
  });
  return { participants: [...participants], messages };
}

/** @param {{id: string, rows: StoredEnvelope[], selected: string}} props */
function ConversationTable({ id, rows, selected }) {
  /** @type {import("../components/table.js").Column<StoredEnvelope>[]} */
  const columns = [
    { key: "type", title: "Type", width: "minmax(90px, 1fr)", cell: ({ envelope }) => html`<a class="row-link" href=${href(["messages", id], { tab: "table", message: envelope.envelopeId })}>${envelope.type}</a>${envelope.isReply && html` <span class="tag">reply</span>`}${envelope.replayOf && html` <${Badge}>replay<//>`}` },
    { key: "from", title: "From", width: "minmax(70px, 1fr)", cell: ({ envelope }) => envelope.sender },
    { key: "to", title: "To", width: "minmax(70px, 1fr)", from: 360, cell: ({ envelope }) => envelope.recipient },
    { key: "content", title: "Content", width: "minmax(100px, 3fr)", from: 640, cell: ({ envelope }) => html`<span class="muted">${payloadText(envelope)}</span>` },
    { key: "state", title: "State", width: "110px", from: 420, cell: (stored) => html`<${Deliveries} stored=${stored} />` },
    { key: "sent", title: "Sent", width: "70px", from: 560, align: "end", cell: ({ envelope }) => html`<${Time} value=${envelope.createTime} />` },
  ];
  return html`<${Table} label="Messages of the conversation" columns=${columns} rows=${rows} rowKey=${(/** @type {StoredEnvelope} */ row) => row.envelope.envelopeId} selected=${selected} />`;
}
