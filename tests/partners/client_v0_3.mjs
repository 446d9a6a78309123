// Runs the client of @a2a-js/sdk 0.3: URL, API key.
import { randomUUID } from "node:crypto";
import { drive, requireSdk, cached, options, url } from "./driving.mjs";

const sdk = requireSdk("@a2a-js/sdk/client");
const { GrpcTransportFactory } = requireSdk("@a2a-js/sdk/client/grpc");

const client = cached((binding) => {
  const transports = [new sdk.JsonRpcTransportFactory(), new sdk.RestTransportFactory(), new GrpcTransportFactory()];
  const factory = new sdk.ClientFactory({ transports, preferredTransports: [binding] });
  return factory.createFromUrl(`${url}/`);
});

const text = (parts) => (parts ?? []).map((part) => (part.kind === "text" ? part.text : "")).join("");
const status = (one) => ({ state: one.state, said: text(one.message?.parts) });
const files = (artifact) =>
  artifact.parts.filter((part) => part.kind === "file").map((part) => [...Buffer.from(part.file.bytes, "base64")]);

function task(one) {
  const artifacts = one.artifacts ?? [];
  return {
    kind: "task",
    task: one.id,
    context: one.contextId,
    ...status(one.status),
    text: artifacts.map((artifact) => text(artifact.parts)).join(""),
    files: artifacts.flatMap(files),
    history: (one.history ?? []).map((message) => text(message.parts)),
  };
}

function toJson(event) {
  if (event.kind === "task") return task(event);
  if (event.kind === "message") return { kind: "message", text: text(event.parts) };
  if (event.kind === "status-update") {
    return { kind: "status", task: event.taskId, ...status(event.status), final: event.final };
  }
  return { kind: "artifact", task: event.taskId, text: text(event.artifact.parts) };
}

function params({ text, task, context, message_id = randomUUID(), now = false, file }) {
  const parts = [{ kind: "text", text }];
  if (file) {
    const bytes = Buffer.from(file).toString("base64");
    parts.push({ kind: "file", file: { bytes, name: "dot.png", mimeType: "image/png" } });
  }
  const message = { kind: "message", messageId: message_id, role: "user", parts };
  return {
    message: { ...message, ...(task && { taskId: task }), ...(context && { contextId: context }) },
    configuration: { blocking: !now },
  };
}

async function* streamLater(start) {
  for await (const event of await start()) yield toJson(event);
}

const config = ({ pushNotificationConfig: { id, url } }) => ({ id, url });

await drive({
  async card() {
    const card = await new sdk.DefaultAgentCardResolver().resolve(`${url}/`);
    return { name: card.name, pushes: card.capabilities.pushNotifications };
  },
  async send({ binding, ...message }) {
    return toJson(await (await client(binding)).sendMessage(params(message), options));
  },
  stream: ({ binding, ...message }) =>
    streamLater(async () => (await client(binding)).sendMessageStream(params(message), options)),
  async get({ binding, task: id, history }) {
    return task(await (await client(binding)).getTask({ id, ...(history != null && { historyLength: history }) }, options));
  },
  async cancel({ binding, task: id }) {
    return task(await (await client(binding)).cancelTask({ id }, options));
  },
  subscribe: ({ binding, task: id }) => streamLater(async () => (await client(binding)).resubscribeTask({ id }, options)),
  async set_push({ binding, task: taskId, config: id, url }) {
    const body = { taskId, pushNotificationConfig: { id, url } };
    return config(await (await client(binding)).setTaskPushNotificationConfig(body, options));
  },
  async get_push({ binding, task: id, config: pushNotificationConfigId }) {
    const body = { id, pushNotificationConfigId };
    return config(await (await client(binding)).getTaskPushNotificationConfig(body, options));
  },
  async list_push({ binding, task: id }) {
    const result = await (await client(binding)).listTaskPushNotificationConfig({ id }, options);
    return result.map((one) => config(one).id);
  },
  async delete_push({ binding, task: id, config: pushNotificationConfigId }) {
    await (await client(binding)).deleteTaskPushNotificationConfig({ id, pushNotificationConfigId }, options);
  },
  async extended_card({ binding }) {
    return (await (await client(binding)).getAgentCard(options)).skills.map((skill) => skill.id);
  },
});
