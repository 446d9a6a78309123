/** A file of a message or an answer: a picture, or a name with its size, to be saved. */

import { bytes } from "../format.js";
import { html, useEffect, useState } from "../vendor/preact.js";
import { Button } from "./basics.js";
import { Icon } from "./icons.js";

const PICTURES = /^image\/(png|jpeg|gif|webp|avif|svg\+xml)$/;

/**
 * @typedef {object} ChatFile
 * @property {string} name
 * @property {string} mediaType
 * @property {Uint8Array} [content]
 * @property {string} [url] Of a file that is elsewhere.
 */

/** @param {{file: ChatFile, onRemove?: () => void}} props */
export function FileChip({ file, onRemove }) {
  const isPicture = Boolean(file.content && PICTURES.test(file.mediaType));
  const [picture, setPicture] = useState("");
  useEffect(() => {
    if (!isPicture) return undefined;
    const url = URL.createObjectURL(toBlob(file, file.mediaType));
    setPicture(url);
    return () => URL.revokeObjectURL(url);
  }, [isPicture, file.content]);
  const name = file.name || file.mediaType || "file";
  return html`<div class="file-chip">
    ${picture ? html`<img src=${picture} alt=${name} />` : html`<${Icon} name="file" />`}
    <div class="grow"><div class="truncate" title=${name}>${name}</div>
      <div class="muted small truncate">${[file.mediaType, file.content ? bytes(file.content.length) : file.url].filter(Boolean).join(" · ")}</div></div>
    ${file.content && !onRemove && html`<${Button} kind="quiet" label=${`Save ${name}`} onClick=${() => save(file, name)}>Save<//>`}
    ${onRemove && html`<${Button} kind="quiet" icon="close" label=${`Remove ${name}`} onClick=${onRemove} />`}
  </div>`;
}

/**
 * @param {ChatFile} file
 * @param {string} type
 */
function toBlob(file, type) {
  return new Blob([/** @type {any} */ (file.content)], { type });
}

/**
 * @param {ChatFile} file
 * @param {string} name
 */
function save(file, name) {
  // Without its own type, so that no browser opens it as a page of this origin.
  const url = URL.createObjectURL(toBlob(file, "application/octet-stream"));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
