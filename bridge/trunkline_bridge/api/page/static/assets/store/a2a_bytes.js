/** The part of Node's Buffer that the A2A SDK uses for files: base64 in and out. Import it before the SDK is used. */

class Bytes extends Uint8Array {
  /**
   * @override
   * @param {any} source Base64, or bytes.
   * @param {any} [encoding]
   * @returns {any}
   */
  static from(source, encoding) {
    if (typeof source !== "string") return new Bytes(source);
    if (encoding !== "base64") return new Bytes(new TextEncoder().encode(source));
    const binary = atob(source.replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = new Bytes(binary.length);
    for (let index = 0; index < binary.length; index += 1) bytes[index] = binary.charCodeAt(index);
    return bytes;
  }

  /** @param {unknown} value */
  static isBuffer(value) {
    return value instanceof Bytes;
  }

  /**
   * @override
   * @param {string} [encoding]
   * @returns {string}
   */
  toString(encoding) {
    if (encoding !== "base64") return new TextDecoder().decode(this);
    let binary = "";
    // Not in one call, whose arguments are limited.
    for (let from = 0; from < this.length; from += 0x8000) binary += String.fromCharCode(...this.subarray(from, from + 0x8000));
    return btoa(binary);
  }
}

/** @type {any} */ (globalThis).Buffer ??= Bytes;
