/** Clients of the agents behind this bridge, on the official A2A SDK. */

import { BRIDGE, request, untracedHeaders } from "../api.js";
import { ClientFactory, ClientFactoryOptions, DefaultAgentCardResolver, JsonRpcTransportFactory } from "../vendor/a2a.js";
import "./a2a_bytes.js";

/** @type {typeof fetch} */
const fetchImpl = (url, init = {}) =>
  request(/** @type {string | URL} */ (url), { ...init, headers: Object.fromEntries(new Headers(init.headers)) });

/** @type {typeof fetch} */
const fetchCard = (url, init = {}) => {
  const headers = new Headers(init.headers);
  for (const [name, value] of Object.entries(untracedHeaders())) headers.set(name, value);
  return fetchImpl(url, { ...init, headers });
};

const cards = new DefaultAgentCardResolver({ fetchImpl: fetchCard });
const factory = new ClientFactory(
  ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
    transports: [new JsonRpcTransportFactory({ fetchImpl })],
    cardResolver: cards,
  }),
);

/**
 * Returns a client of an agent.
 * @param {string} agent
 */
export async function openClient(agent) {
  const url = new URL(`agents/${encodeURIComponent(agent)}/`, BRIDGE).href;
  const card = await cards.resolve(url);
  // The card has the public address, which the page's policy may not let it reach. Its own is the same bridge.
  const supportedInterfaces = [{ url, protocolBinding: "JSONRPC", protocolVersion: "1.0", tenant: "" }];
  return factory.createFromAgentCard({ ...card, supportedInterfaces });
}
