/** Markdown as elements. Texts of agents are not trusted: nothing is parsed as HTML, and links lead to the web only. */

import { html, useMemo } from "../vendor/preact.js";

// No two repetitions that accept the same character follow each other, so that a line of any text takes linear time.
const FENCE = /^ {0,3}(`{3,}(?!`)|~{3,}(?!~))([^`]*)$/;
const LANGUAGE = /^[\w+#.-]*/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+([^]*)$/;
const HEADING = /^ {0,3}(#{1,6})\s([^]*)$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const COLUMN_RULE = /^:?-+:?$/;
const SAFE_LINK = /^(https?:\/\/|mailto:)/i;
const DEEPEST = 6;

/**
 * A text in Markdown. It is split into blocks, and only blocks that change are rendered again: a text may be streamed.
 * @param {{text: string}} props
 */
export function Markdown({ text }) {
  const blocks = splitBlocks(text);
  return html`<div class="markdown">${blocks.map((block, index) => html`<${Block} key=${index} text=${block} />`)}</div>`;
}

/** @param {{text: string}} props */
function Block({ text }) {
  return useMemo(() => renderBlocks(text.split("\n"), 0), [text]);
}

/**
 * Returns the parts between empty lines; code and lists keep theirs.
 * @param {string} text
 */
export function splitBlocks(text) {
  /** @type {string[]} */
  const blocks = [];
  /** @type {string[]} */
  let lines = [];
  let fence = "";
  let isList = false;
  const end = () => {
    if (lines.some((line) => line.trim())) blocks.push(lines.join("\n"));
    lines = [];
    isList = false;
  };
  for (const line of text.replaceAll("\r\n", "\n").split("\n")) {
    const mark = FENCE.exec(line)?.[1] ?? "";
    if (fence) {
      lines.push(line);
      if (mark.startsWith(fence) && line.trim() === mark) fence = "";
      continue;
    }
    const isEmpty = !line.trim();
    // A list ends at a line that is neither an item nor indented.
    if (isList && !isEmpty && lines.at(-1)?.trim() === "" && !ITEM.test(line) && !/^\s/.test(line)) end();
    if (isEmpty && !isList) {
      end();
      continue;
    }
    if (mark && !isList) {
      end();
      fence = mark;
    }
    if (!lines.length && ITEM.test(line)) isList = true;
    lines.push(line);
  }
  end();
  return blocks;
}

/**
 * @param {string[]} lines
 * @param {number} depth
 * @returns {any[]}
 */
function renderBlocks(lines, depth) {
  /** @type {any[]} */
  const result = [];
  let index = 0;
  const line = () => lines[index] ?? "";
  /** @param {(text: string) => boolean} accept */
  const take = (accept) => {
    const from = index;
    while (index < lines.length && accept(line())) index += 1;
    return lines.slice(from, index);
  };
  while (index < lines.length) {
    const fence = FENCE.exec(line());
    const heading = HEADING.exec(line());
    if (!line().trim()) index += 1;
    else if (fence) {
      index += 1;
      const code = take((each) => each.trim() !== fence[1]);
      index += 1;
      const language = LANGUAGE.exec((fence[2] ?? "").trim())?.[0] ?? "";
      result.push(html`<pre class="code" tabindex="0" aria-label=${`Code ${language}`.trim()} role="region"><code>${code.join("\n")}</code></pre>`);
    } else if (heading) {
      index += 1;
      // The view has the levels above.
      result.push(html`<p class=${`heading level-${heading[1]?.length}`} role="heading" aria-level=${Math.min(6, (heading[1]?.length ?? 1) + 2)}>${renderInline(trimHeading(heading[2] ?? ""))}</p>`);
    } else if (RULE.test(line())) {
      index += 1;
      result.push(html`<hr />`);
    } else if (/^\s*>/.test(line()) && depth < DEEPEST) {
      const quoted = take((each) => /^\s*>/.test(each)).map((each) => each.replace(/^\s*> ?/, ""));
      result.push(html`<blockquote>${renderBlocks(quoted, depth + 1)}</blockquote>`);
    } else if (ITEM.test(line()) && depth < DEEPEST) {
      result.push(renderList(take((each) => ITEM.test(each) || /^\s/.test(each) || !each.trim()), depth));
    } else if (line().includes("|") && splitCells(lines[index + 1] ?? "").every((cell) => COLUMN_RULE.test(cell))) {
      result.push(renderTable(take((each) => each.includes("|"))));
    } else {
      const first = line();
      index += 1;
      const rest = take((each) => Boolean(each.trim()) && !FENCE.test(each) && !HEADING.test(each) && !ITEM.test(each) && !/^\s*>/.test(each));
      result.push(html`<p>${renderInline([first, ...rest].join("\n"))}</p>`);
    }
  }
  return result;
}

/**
 * @param {string[]} lines
 * @param {number} depth
 */
function renderList(lines, depth) {
  const [, indent = "", mark = ""] = ITEM.exec(lines[0] ?? "") ?? [];
  /** @type {string[][]} */
  const items = [];
  for (const line of lines) {
    const match = ITEM.exec(line);
    if (match && (match[1] ?? "").length <= indent.length + 1) items.push([match[3] ?? ""]);
    else items.at(-1)?.push(line.replace(/^(\t| {1,4})/, ""));
  }
  const content = items.map((item) => html`<li>${item.length === 1 ? renderInline(item[0] ?? "") : renderItem(item, depth)}</li>`);
  return /\d/.test(mark) ? html`<ol start=${parseInt(mark, 10)}>${content}</ol>` : html`<ul>${content}</ul>`;
}

/**
 * @param {string[]} item
 * @param {number} depth
 */
function renderItem(item, depth) {
  return [renderInline(item[0] ?? ""), renderBlocks(item.slice(1), depth + 1)];
}

/**
 * Returns a heading without the marks at its end.
 * @param {string} text
 */
function trimHeading(text) {
  let end = text.trimEnd().length;
  while (text[end - 1] === "#") end -= 1;
  return text.slice(0, end).trim();
}

/** @param {string} line */
function splitCells(line) {
  return line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
}

/** @param {string[]} lines */
function renderTable(lines) {
  const [head = "", , ...rows] = lines;
  return html`<div class="markdown-table" tabindex="0" role="region" aria-label="Table"><table>
    <thead><tr>${splitCells(head).map((cell) => html`<th>${renderInline(cell)}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${splitCells(row).map((cell) => html`<td>${renderInline(cell)}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

// Each alternative begins with a mark of its own and has no nested repetition, so that any text takes linear time.
const INLINE = new RegExp(
  [
    String.raw`(?<!\`)(?<code>\`+)(?!\`)(?<codeText>[^\`]+)\k<code>`,
    String.raw`!?\[(?<label>[^[\]\n]{1,500})\]\((?<url>[^()\s]{1,2000}(?:\([^()\s]{0,500}\)[^()\s]{0,500})?)(?: "[^"\n]{0,500}")?\)`,
    String.raw`\*\*(?<strong>[^\s*][^*\n]{0,2000})\*\*`,
    String.raw`(?<!\w)__(?<strong2>[^\s_][^_\n]{0,2000})__(?!\w)`,
    String.raw`\*(?<em>[^\s*][^*\n]{0,2000})\*`,
    String.raw`(?<!\w)_(?<em2>[^\s_][^_\n]{0,2000})_(?!\w)`,
    String.raw`~~(?<del>[^~\n]{1,2000})~~`,
    String.raw`(?<bare>https?:\/\/[^\s<>"'\`]{1,2000}[^\s<>"'\`.,;:!?)\]])`,
    String.raw`\\(?<escaped>[\\\`*_{}\[\]()#+\-.!|~>])`,
  ].join("|"),
  "g",
);

/**
 * @param {string} text
 * @param {number} [depth]
 * @returns {any[]}
 */
function renderInline(text, depth = 0) {
  /** @type {any[]} */
  const result = [];
  let end = 0;
  for (const match of text.matchAll(INLINE)) {
    if (match.index > end) result.push(text.slice(end, match.index));
    end = match.index + match[0].length;
    result.push(renderMatch(match.groups ?? {}, match[0], depth + 1));
  }
  if (end < text.length) result.push(text.slice(end));
  return result;
}

/**
 * @param {Record<string, string | undefined>} found
 * @param {string} source
 * @param {number} depth
 */
function renderMatch(found, source, depth) {
  const inner = (/** @type {string} */ text) => (depth < DEEPEST ? renderInline(text, depth) : text);
  if (found.codeText !== undefined) return html`<code>${found.codeText}</code>`;
  if (found.escaped !== undefined) return found.escaped;
  if (found.url !== undefined && found.label !== undefined) return SAFE_LINK.test(found.url) ? link(found.url, found.label) : source;
  if (found.bare !== undefined) return link(found.bare, found.bare);
  const strong = found.strong ?? found.strong2;
  if (strong !== undefined) return html`<strong>${inner(strong)}</strong>`;
  const em = found.em ?? found.em2;
  if (em !== undefined) return html`<em>${inner(em)}</em>`;
  return html`<del>${inner(found.del ?? "")}</del>`;
}

/**
 * @param {string} url
 * @param {string} label
 */
function link(url, label) {
  return html`<a href=${url} target="_blank" rel="noopener noreferrer">${label}</a>`;
}
