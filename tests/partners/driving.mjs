// Reads calls from stdin, one JSON line each, and writes answers to stdout, as driving.py does.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

// The SDK is installed in the folder of scripts/partners, not next to this file.
export const requireSdk = createRequire(`${process.env.PARTNER_FOLDER}/partner.cjs`);

export const [url, key] = process.argv.slice(2);
export const options = { serviceParameters: { "x-api-key": key } };

// Returns a function that caches the result of `make` for each argument.
export function cached(make) {
  const created = new Map();
  return (name) => {
    if (!created.has(name)) created.set(name, make(name));
    return created.get(name);
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
    const result = calls[call](args);
    if (result[Symbol.asyncIterator]) {
      for await (const event of result) write({ id, event });
      write({ id, result: null });
    } else {
      write({ id, result: (await result) ?? null });
    }
  } catch (error) {
    write({ id, error: { name: error.constructor.name, text: String(error.message) } });
  }
}

function write(answer) {
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
