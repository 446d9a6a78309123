/** Messages between agents: all of them, rooms, and dead letters. */

import { Button, Empty, ErrorState, LiveStatus, Loading, PageHeader, Time } from "../components/basics.js";
import { Dialog } from "../components/dialog.js";
import { Search, Select } from "../components/fields.js";
import { Table } from "../components/table.js";
import { Tabs } from "../components/tabs.js";
import { plural } from "../format.js";
import { changeQuery, href } from "../router.js";
import { deliveryState, payloadText, useMessages, useParticipant } from "../store/messages.js";
import { mayCall } from "../store/session.js";
import { html, useState } from "../vendor/preact.js";
import { Deliveries, MessageDetails, redriveMessages } from "./message_parts.js";
import { Rooms } from "./message_rooms.js";
import { SendDialog } from "./message_send.js";

/** @typedef {import("../store/messages.js").StoredEnvelope} StoredEnvelope */

/** @type {import("../components/table.js").Column<StoredEnvelope>[]} */
const COLUMNS = [
  { key: "type", title: "Type", width: "minmax(90px, 1fr)", cell: ({ envelope }) => html`<a class="row-link" href=${href(["messages", envelope.correlationId], { message: envelope.envelopeId })}>${envelope.type}</a>` },
  { key: "from", title: "From", width: "minmax(70px, 1fr)", from: 420, cell: ({ envelope }) => envelope.sender },
  { key: "to", title: "To", width: "minmax(70px, 1fr)", from: 320, cell: ({ envelope }) => envelope.recipient },
  { key: "content", title: "Content", width: "minmax(100px, 3fr)", from: 700, cell: ({ envelope }) => html`<span class="muted" title=${payloadText(envelope).slice(0, 500)}>${payloadText(envelope)}</span>` },
  { key: "state", title: "State", width: "110px", cell: (stored) => html`<${Deliveries} stored=${stored} />` },
  { key: "sent", title: "Sent", width: "70px", from: 520, align: "end", cell: ({ envelope }) => html`<${Time} value=${envelope.createTime} />` },
];

/** @param {import("../views.js").ViewProps} props */
export default function Messages({ query }) {
  const tab = query.get("tab") ?? "all";
  const [sending, setSending] = useState(false);
  const mayRead = mayCall("ListEnvelopes") && mayCall("WatchEnvelopes");
  const tabs = [
    { id: "all", label: "All" },
    { id: "rooms", label: "Rooms" },
    { id: "dead", label: "Dead letters" },
  ];
  const refused = () => html`<${Empty} icon="messages" title="No messages to see">Your credentials do not permit reading messages.<//>`;
  const panels = {
    all: () => (mayRead ? html`<${All} query=${query} />` : refused()),
    rooms: () => html`<${Rooms} selected=${query.get("room") ?? ""} />`,
    dead: () => (mayRead ? html`<${DeadLetters} query=${query} />` : refused()),
  };
  const shown = /** @type {keyof typeof panels} */ (tab in panels ? tab : "all");
  return html`<div class="view full messages">
    <${PageHeader} title="Messages">
      ${mayCall("SendEnvelopes") ? html`<${Button} kind="primary" icon="messages" onClick=${() => setSending(true)}>Send a message<//>` : html`<span class="muted small">Your credentials do not permit sending.</span>`}
    <//>
    <${Tabs} label="Messages" tabs=${tabs} selected=${shown} onSelect=${(/** @type {string} */ id) => changeQuery({ tab: id === "all" ? "" : id, message: "" })}>${panels[shown]()}<//>
    ${sending && html`<${SendDialog} onClose=${() => setSending(false)} onSent=${() => {}} />`}
  </div>`;
}

/** @param {{query: URLSearchParams}} props */
function All({ query }) {
  const chosen = query.get("participant") ?? "";
  const { agents, isRequired, participant } = useParticipant(chosen);
  const filter = { participant, type: query.get("type") ?? "", correlationId: query.get("conversation") ?? "" };
  // Without its agent, a list that must have one would be refused.
  const { rows, next, loading, error, status, loadMore, reload } = useMessages(isRequired && !participant ? null : filter);
  const isFiltered = Boolean(chosen || filter.type || filter.correlationId);
  return html`<div class="toolbar" role="search" aria-label="Messages">
      <${Search} label="Type" value=${filter.type} onChange=${(/** @type {string} */ type) => changeQuery({ type })} />
      <${Select} label="From or to" all=${isRequired ? undefined : "Anybody"} value=${participant} options=${agents} onChange=${(/** @type {string} */ agent) => changeQuery({ participant: agent })} />
      ${isFiltered && html`<${Button} kind="quiet" icon="close" onClick=${() => changeQuery({ type: "", participant: "", conversation: "" })}>Clear<//>`}
      <span class="grow"></span>
      <span class="muted small" role="status">${rows.length ? `${plural(rows.length, "message")}${next ? " loaded" : ""}` : ""}</span>
      <${LiveStatus} status=${status} />
    </div>
    ${error && html`<${ErrorState} error=${error} onRetry=${reload} title="The messages could not be loaded" />`}
    ${rows.length
      ? html`<${Table} label="Messages" columns=${COLUMNS} rows=${rows} rowKey=${(/** @type {StoredEnvelope} */ row) => row.position} onEnd=${loadMore} footer=${loading && next && html`<${Loading} label="Loading more" />`} />`
      : loading
        ? html`<${Loading} label="Loading messages" />`
        : !error && html`<${Empty} icon="messages" title=${isFiltered ? "No message matches" : "No messages yet"}>Messages that agents and users send each other appear here.<//>`}`;
}

/** @param {StoredEnvelope} stored */
function deadDelivery(stored) {
  return (stored.deliveries ?? []).find((delivery) => deliveryState(delivery) === "dead");
}

/** @type {import("../components/table.js").Column<StoredEnvelope>[]} */
const DEAD_COLUMNS = [
  { key: "type", title: "Type", width: "minmax(90px, 1fr)", cell: ({ envelope }) => html`<a class="row-link" href=${href(["messages"], { tab: "dead", message: envelope.envelopeId })}>${envelope.type}</a>` },
  { key: "to", title: "Recipient", width: "minmax(80px, 1fr)", cell: (stored) => deadDelivery(stored)?.recipient },
  { key: "reason", title: "Reason", width: "minmax(120px, 3fr)", from: 560, cell: (stored) => html`<span class="muted" title=${deadDelivery(stored)?.attempts?.at(-1)?.problem}>${deadDelivery(stored)?.attempts?.at(-1)?.problem ?? ""}</span>` },
  { key: "attempts", title: "Attempts", width: "70px", align: "end", from: 320, cell: (stored) => deadDelivery(stored)?.attemptCount ?? 0 },
  { key: "since", title: "Since", width: "80px", align: "end", from: 480, cell: (stored) => html`<${Time} value=${deadDelivery(stored)?.updateTime} />` },
];

/** @param {{query: URLSearchParams}} props */
function DeadLetters({ query }) {
  const { agents, isRequired, participant } = useParticipant(query.get("participant") ?? "");
  const { rows, next, loading, error, status, loadMore, reload } = useMessages(isRequired && !participant ? null : { participant }, { deadOnly: true });
  const [asking, setAsking] = useState(false);
  const [busy, setBusy] = useState(false);
  const selected = rows.find((row) => row.envelope.envelopeId === query.get("message"));
  const redriveAll = async () => {
    setAsking(false);
    setBusy(true);
    await redriveMessages({ ...(participant ? { participant } : {}), states: ["dead"] }, reload);
    setBusy(false);
  };
  return html`<div class="toolbar" role="search" aria-label="Dead letters">
      <${Select} label="From or to" all=${isRequired ? undefined : "Anybody"} value=${participant} options=${agents} onChange=${(/** @type {string} */ chosen) => changeQuery({ participant: chosen })} />
      ${rows.length > 0 && mayCall("RedriveEnvelopes") && html`<${Button} icon="refresh" busy=${busy} onClick=${() => setAsking(true)}>Redrive all<//>`}
      <span class="grow"></span>
      <span class="muted small" role="status">${rows.length ? `${plural(rows.length, "dead letter")}${next ? " loaded" : ""}` : ""}</span>
      <${LiveStatus} status=${status} />
    </div>
    ${asking &&
    html`<${Dialog}
      title="Redrive all dead letters?"
      onClose=${() => setAsking(false)}
      actions=${html`<${Button} onClick=${() => setAsking(false)}>Leave them<//><${Button} kind="primary" onClick=${redriveAll}>Redrive all<//>`}
    >
      All dead letters ${participant && html`from or to ${participant} `}are delivered again, from the first attempt on, also those that are not loaded here.
    <//>`}
    ${error && html`<${ErrorState} error=${error} onRetry=${reload} title="The dead letters could not be loaded" />`}
    ${rows.length
      ? html`<div class="message-split ${selected ? "with-details" : ""}">
          <${Table} label="Dead letters" columns=${DEAD_COLUMNS} rows=${rows} rowKey=${(/** @type {StoredEnvelope} */ row) => row.envelope.envelopeId} selected=${selected?.envelope.envelopeId} onEnd=${loadMore} />
          ${selected && html`<${MessageDetails} stored=${selected} onClose=${() => changeQuery({ message: "" })} onChanged=${reload} />`}
        </div>`
      : loading
        ? html`<${Loading} label="Loading dead letters" />`
        : !error && html`<${Empty} icon="check" title="No dead letters">A message that its recipient refused, or did not handle in all attempts, appears here.<//>`}`;
}
