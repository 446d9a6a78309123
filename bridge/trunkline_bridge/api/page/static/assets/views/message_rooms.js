/** Rooms, their members, and the messages of one of them as they come. */

import { postJson } from "../api.js";
import { Button, Empty, ErrorState, Loading, Panel, Time } from "../components/basics.js";
import { toast } from "../components/toasts.js";
import { changeQuery, href } from "../router.js";
import { asApiError } from "../store/hooks.js";
import { meshStatus, useMesh } from "../store/mesh.js";
import { MESSAGES, payloadText, useMessages } from "../store/messages.js";
import { mayCall, session } from "../store/session.js";
import { html, useState } from "../vendor/preact.js";
import { Deliveries } from "./message_parts.js";
import { SendDialog } from "./message_send.js";

/** @typedef {{name: string, members?: string[]}} Room */

/** @param {{selected: string}} props */
export function Rooms({ selected }) {
  const mesh = useMesh();
  const { error } = meshStatus.value;
  if (!mesh && error) return html`<${ErrorState} error=${error} title="The rooms could not be loaded" />`;
  if (!mesh) return html`<${Loading} label="Loading rooms" />`;
  if (!mesh.rooms) return html`<${Empty} icon="messages" title="No rooms to see">Your credentials do not permit listing rooms.<//>`;
  /** @type {Room[]} */
  const rooms = mesh.rooms;
  const room = rooms.find((each) => each.name === selected) ?? (selected ? { name: selected } : rooms[0]);
  return html`<div class="room-split">
    <div class="stack">
      <${Panel} title="Rooms" flush>
        ${rooms.length
          ? html`<ul class="room-list">${rooms.map(
              (each) => html`<li key=${each.name}><a class="row" href=${href(["messages"], { tab: "rooms", room: each.name })} aria-current=${each.name === room?.name ? "true" : undefined}><span class="grow truncate">${each.name}</span><span class="count">${(each.members ?? []).length}</span></a></li>`,
            )}</ul>`
          : html`<${Empty} title="No rooms yet">A room exists from its first member on.<//>`}
      <//>
      ${mayCall("JoinRoom") && html`<${NewRoom} />`}
    </div>
    ${room && html`<${RoomPanel} key=${room.name} room=${room} />`}
  </div>`;
}

/**
 * @param {string} room
 * @param {"join" | "leave"} action
 * @param {string} member Empty: the caller.
 */
async function changeMember(room, action, member) {
  try {
    await postJson(`${MESSAGES}/rooms/${encodeURIComponent(room)}:${action}`, member ? { member } : {});
    return true;
  } catch (error) {
    toast(asApiError(error).message, "error");
    return false;
  }
}

function NewRoom() {
  const [name, setName] = useState("");
  const join = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (!name.trim() || !(await changeMember(name.trim(), "join", ""))) return;
    changeQuery({ room: name.trim() });
    setName("");
  };
  return html`<form class="row" onSubmit=${join}>
    <input class="input grow" aria-label="Name of a room to join" placeholder="Name of a room" autocomplete="off" value=${name} onInput=${(/** @type {any} */ event) => setName(event.target.value)} />
    <${Button} type="submit" disabled=${!name.trim()}>Join<//>
  </form>`;
}

/** @param {{room: Room}} props */
function RoomPanel({ room }) {
  const messages = useMessages(mayCall("ListEnvelopes") ? { room: room.name } : null);
  const [sending, setSending] = useState(false);
  const [member, setMember] = useState("");
  const members = room.members ?? [];
  const self = `user:${session.value?.user}`;
  const change = (/** @type {"join" | "leave"} */ action, /** @type {string} */ who) => changeMember(room.name, action, who);
  const add = async (/** @type {Event} */ event) => {
    event.preventDefault();
    await change("join", member.trim());
    setMember("");
  };
  return html`<${Panel} title=${`Room ${room.name}`} actions=${mayCall("SendEnvelopes") && html`<${Button} icon="messages" onClick=${() => setSending(true)}>Send to the room<//>`}>
    <div class="stack">
      <section><h3>Members</h3>
        <ul class="row wrap">${members.map(
          (each) => html`<li class="member row" key=${each}><span class="truncate">${each}</span>${mayCall("LeaveRoom") && (!each.startsWith("user:") || each === self) && html`<${Button} kind="quiet" icon="close" label=${`Remove ${each}`} onClick=${() => change("leave", each === self ? "" : each)} />`}</li>`,
        )}${!members.length && html`<li class="muted">Nobody.</li>`}</ul>
        ${mayCall("JoinRoom") && html`<form class="row member-form" onSubmit=${add}>
          <input class="input" aria-label="Agent to add" placeholder="Agent" autocomplete="off" value=${member} onInput=${(/** @type {any} */ event) => setMember(event.target.value)} />
          <${Button} type="submit" disabled=${!member.trim()}>Add<//>
        </form>`}
      </section>
      <section><h3>Messages</h3>
        ${messages.error && html`<${ErrorState} error=${messages.error} onRetry=${messages.reload} />`}
        ${messages.rows.length
          ? html`<ol class="room-messages" aria-label=${`Messages of ${room.name}, the newest first`}>${messages.rows.map(
              (stored) => html`<li key=${stored.position}>
                <div class="row wrap small"><strong>${stored.envelope.sender}</strong><span class="tag" title=${stored.envelope.type}>${stored.envelope.type}</span><span class="muted"><${Time} value=${stored.envelope.createTime} /></span><span class="grow"></span><${Deliveries} stored=${stored} /></div>
                <a class="row-link clamp" href=${href(["messages", stored.envelope.correlationId])}>${payloadText(stored.envelope) || "No content"}</a>
              </li>`,
            )}</ol>`
          : messages.loading
            ? html`<${Loading} label="Loading messages" />`
            : html`<p class="muted">No messages yet.</p>`}
        ${messages.next && html`<${Button} busy=${messages.loading} onClick=${messages.loadMore}>Older messages<//>`}
      </section>
    </div>
    ${sending && html`<${SendDialog} recipient=${`room:${room.name}`} onClose=${() => setSending(false)} onSent=${() => {}} />`}
  <//>`;
}
