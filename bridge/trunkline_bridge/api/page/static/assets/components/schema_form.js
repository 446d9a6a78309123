/** A form for an object by its JSON Schema: fields for what has a simple type, JSON for the rest. */

import { parseJson, toNumber } from "../json.js";
import { html } from "../vendor/preact.js";
import { Field } from "./fields.js";

/**
 * @typedef {Record<string, any>} Schema
 * @typedef {Record<string, string | boolean>} FormValues The typed texts and the checked boxes, by property.
 */

/** @param {Schema} schema */
function kindOf(schema) {
  if (Array.isArray(schema.enum)) return "choice";
  if (schema.type === "boolean") return "boolean";
  if (schema.type === "integer" || schema.type === "number") return "number";
  // A property without a type takes everything: people write texts, and JSON where they mean it.
  if (schema.type === "string") return "text";
  return schema.type === undefined ? "any" : "json";
}

/**
 * Returns the schema's properties, those that are needed first.
 * @param {Schema} schema
 * @returns {[string, Schema, boolean][]} Name, schema, and whether it is needed.
 */
function propertiesOf(schema) {
  const required = new Set(schema.required ?? []);
  return Object.entries(schema.properties ?? {})
    .map(([name, each]) => /** @type {[string, Schema, boolean]} */ ([name, each === true ? {} : each, required.has(name)]))
    .sort((a, b) => Number(b[2]) - Number(a[2]));
}

/** @param {unknown} value */
const shown = (value) => (typeof value === "string" ? value : JSON.stringify(value));

/**
 * Returns the values that a form begins with: the defaults of the schema.
 * @param {Schema} schema
 * @returns {FormValues}
 */
export function startValues(schema) {
  return Object.fromEntries(
    propertiesOf(schema).map(([name, each]) => [name, kindOf(each) === "boolean" ? each.default === true : each.default === undefined ? "" : shown(each.default)]),
  );
}

/**
 * Returns false if a value is no object or array where the schema wants one.
 * @param {unknown} value
 * @param {unknown} type
 */
function hasType(value, type) {
  if (type === "array") return Array.isArray(value);
  return type !== "object" || (typeof value === "object" && value !== null && !Array.isArray(value));
}

/**
 * Returns the object that a form stands for, or what is wrong with it by property. The bridge checks the whole schema.
 * @param {Schema} schema
 * @param {FormValues} values
 * @returns {{object: Record<string, any>, problems: Record<string, string>}}
 */
export function readForm(schema, values) {
  /** @type {Record<string, any>} */
  const object = {};
  /** @type {Record<string, string>} */
  const problems = {};
  for (const [name, each, isRequired] of propertiesOf(schema)) {
    const value = values[name] ?? "";
    const kind = kindOf(each);
    if (kind === "boolean") {
      if (value === true || isRequired || each.default !== undefined) object[name] = value === true;
    } else if (value === "") {
      // An empty text is a value only where one is needed and allowed.
      if (isRequired) problems[name] = "This is needed.";
    } else if (kind === "number") {
      const number = toNumber(String(value).trim());
      if (!Number.isFinite(Number(number))) problems[name] = "This must be a number.";
      else if (each.type === "integer" && !Number.isInteger(Number(number))) problems[name] = "This must be a whole number.";
      else object[name] = number;
    } else if (kind === "json") {
      try {
        object[name] = parseJson(String(value));
        if (!hasType(object[name], each.type)) problems[name] = `This must be ${each.type === "array" ? "an array" : "an object"}.`;
      } catch (error) {
        problems[name] = `This must be JSON: ${/** @type {Error} */ (error).message}`;
      }
    } else if (kind === "choice") {
      object[name] = each.enum.find((/** @type {unknown} */ option) => shown(option) === value) ?? value;
    } else {
      object[name] = value;
    }
  }
  return { object, problems };
}

/**
 * @param {{schema: Schema, values: FormValues, problems: Record<string, string>, onChange: (values: FormValues) => void}} props
 */
export function SchemaForm({ schema, values, problems, onChange }) {
  const properties = propertiesOf(schema);
  if (!properties.length) return html`<p class="muted">It takes no input.</p>`;
  return html`<div class="stack">
    ${properties.map(([name, each, isRequired]) => {
      const set = (/** @type {string | boolean} */ value) => onChange({ ...values, [name]: value });
      const kind = kindOf(each);
      if (kind === "boolean") {
        return html`<label class="row" key=${name}><input type="checkbox" checked=${values[name] === true} onChange=${(/** @type {any} */ event) => set(event.target.checked)} />${each.title ?? name}${each.description && html`<span class="muted small">${each.description}</span>`}</label>`;
      }
      const label = `${each.title ?? name}${isRequired ? "" : " (optional)"}`;
      return html`<div key=${name}>
        <${Field} label=${label} hint=${each.description}>
          ${(/** @type {string} */ id) => html`<${Control} id=${id} kind=${kind} schema=${each} value=${String(values[name] ?? "")} isRequired=${isRequired} problem=${problems[name]} onChange=${set} />`}
        <//>
        ${problems[name] && html`<p class="error-text small" role="alert">${problems[name]}</p>`}
      </div>`;
    })}
  </div>`;
}

/**
 * @param {{
 *   id: string, kind: string, schema: Schema, value: string, isRequired: boolean, problem?: string, onChange: (value: string) => void,
 * }} props
 */
function Control({ id, kind, schema, value, isRequired, problem, onChange }) {
  const common = { id, value, "aria-invalid": problem ? "true" : "false", "aria-required": String(isRequired), onInput: (/** @type {any} */ event) => onChange(event.target.value) };
  if (kind === "choice") {
    const options = schema.enum.map(shown);
    return html`<div class="select"><select ...${common}>
      <option value="">–</option>
      ${options.map((/** @type {string} */ option) => html`<option key=${option} value=${option} selected=${option === value}>${option}</option>`)}
    </select></div>`;
  }
  if (kind === "number") return html`<input class="input" inputmode="decimal" autocomplete="off" ...${common} />`;
  if (kind === "json") return html`<textarea class="mono" rows="3" spellcheck=${false} placeholder=${`JSON: ${schema.type}`} ...${common}></textarea>`;
  return html`<textarea rows=${value.length > 80 ? 5 : 2} ...${common}></textarea>`;
}
