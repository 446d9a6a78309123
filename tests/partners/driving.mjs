// Reads calls from stdin, a line of JSON each, and answers on stdout, as driving.py does.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

// The SDK is below the folder that scripts/partners made, not beside this file.
export const installed = createRequire(`${process.env.PARTNER_FOLDER}/partner.cjs`);

export const [url, key] = process.argv.slice(2);
export const options = { serviceParameters: { "x-api-key": key } };

// Returns a function that makes something once for each of its arguments.
export function once(make) {
  const made = new Map();
  return (name) => {
    if (!made.has(name)) made.set(name, make(name));
    return made.get(name);
  };
}

export async function drive(calls) {
  for await (const line of createInterface({ input: process.stdin })) {
    answer(calls, JSON.parse(line));
  }
  process.exit(0);
}

async function answer(calls, { id, call, args }) {
  try {
    const found = calls[call](args);
    if (found[Symbol.asyncIterator]) {
      for await (const event of found) say({ id, event });
      say({ id, result: null });
    } else {
      say({ id, result: (await found) ?? null });
    }
  } catch (error) {
    say({ id, error: { name: error.constructor.name, text: String(error.message) } });
  }
}

function say(answer) {
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
