/**
 * Reads and writes JSON with exact integers: those that a double rounds are BigInts here.
 *
 * A browser without access to the source of numbers (before Chrome 114, Firefox 135, Safari 18.4) rounds them as before.
 */

// JSON.stringify refuses BigInts without it.
Object.defineProperty(BigInt.prototype, "toJSON", {
  value() {
    return /** @type {any} */ (JSON).rawJSON(String(this));
  },
});

const INTEGER = /^-?\d+$/;

/**
 * Returns the number that a text stands for; NaN if it is none.
 * @param {string} text
 * @returns {number | bigint}
 */
export function toNumber(text) {
  const number = Number(text);
  return INTEGER.test(text) && !Number.isSafeInteger(number) && "rawJSON" in JSON ? BigInt(text) : number;
}

/**
 * Parses JSON.
 * @param {string} text
 * @returns {any}
 */
export function parseJson(text) {
  return JSON.parse(text, /** @type {any} */ ((/** @type {string} */ _key, /** @type {any} */ value, /** @type {{source?: string}} */ context) => (typeof value === "number" && context?.source ? toNumber(context.source) : value)));
}
