// The table of terms: typed, pasted, or read from a file.

import { element, kept } from "./api.js";
import { download, textOf } from "./files.js";

const $ = (id) => document.getElementById(id);
const rows = () => [...$("terms").rows];
let changed = () => {};

// Source, target and option of a row, as in a line of a file of `s2s glossary`.
function cells(row) {
  const [source, target, isExact] = row.querySelectorAll("input");
  const terms = [source, target].map((input) => input.value.replace(/\s+/g, " ").trim());
  return isExact.checked ? [...terms, "case"] : terms;
}

export const terms = () => rows().map(cells).filter(([source, target]) => source && target);

function addTerm(source = "", target = "", option = "") {
  const inputs = [["Term", { value: source, dir: "auto" }], ["Translation", { value: target, dir: "auto" }],
    ["Only in this case", { type: "checkbox", checked: option === "case" }]].map(([label, value]) => {
    const input = element("input", value);
    input.setAttribute("aria-label", label);
    input.addEventListener("input", update);
    return input;
  });
  const remove = element("button", { type: "button", textContent: "Remove" });
  const cellsOf = [...inputs, null, remove].map((inner) => element("td", {}, ...(inner ? [inner] : [])));
  const row = element("tr", {}, ...cellsOf);
  remove.addEventListener("click", () => {
    const next = row.nextElementSibling ?? row.previousElementSibling;
    row.remove();
    (next?.querySelector("button") ?? $("add-term")).focus();
    update();
  });
  $("terms").append(row);
  return inputs[0];
}

function update() {
  kept.set("terms", terms());
  changed();
}

// Shows beside each term what became of it.
export function showStatuses(found) {
  const statuses = new Map(); // sets, by entry
  for (const { entry, status } of found) {
    const key = entry.toLowerCase();
    statuses.set(key, (statuses.get(key) ?? new Set()).add(status));
  }
  for (const row of rows()) {
    const [source, target] = cells(row);
    const names = [...(statuses.get((source === "-" ? target : source.replace(/\*$/, "")).toLowerCase()) ?? [])];
    row.cells[3].replaceChildren(...names.map((name) => element("span", { className: "chip", textContent: name })));
  }
}

/* The columns of each line of a glossary, as `s2s glossary` reads it: a tab between them, or a comma in a CSV file,
   which has no options; comments, empty lines and a header are skipped. A semicolon, or the other separator, is read
   too. */
export function columnsOf(text, isCsv) {
  const lines = text.split(/\r\n|\r|\n/).filter((line) => line.trim() && !line.startsWith("#"));
  const found = lines.map((line) => columns(line, isCsv).map((cell) => cell.trim()));
  return String(found[0]?.slice(0, 2)).toLowerCase() === "source,target" ? found.slice(1) : found;
}

function columns(line, isCsv) {
  for (const mark of isCsv ? [",", ";", "\t"] : ["\t", ";", ","]) {
    const found = split(line, mark);
    if (found.length < 2) continue;
    const [source, target, option = ""] = found;
    return mark === "\t" ? [source, target.trim() || "=", isCsv ? "" : option] : [source, target, ""];
  }
  return [line];
}

function split(line, mark) {
  if (mark === "\t") return line.split(mark);
  const found = [""];
  let quoted = false;
  for (let at = 0; at < line.length; at++) {
    const last = found.length - 1;
    if (quoted && line[at] === '"' && line[at + 1] === '"') found[last] += line[at++];
    else if (line[at] === '"' && (quoted || !found[last])) quoted = !quoted;
    else if (line[at] === mark && !quoted) found.push("");
    else found[last] += line[at];
  }
  return found;
}

// Adds the terms of a text; says how many, or why there are none.
function take(text, from, isCsv = false) {
  const lines = columnsOf(text, isCsv), known = new Set(terms().map(String));
  const read = lines.filter(([source, target]) => source && target), left = lines.length - read.length;
  const wrong = read.find(([, , option]) => !["", "case"].includes(option));
  const found = read.map((columns) => columns.filter(Boolean))
    .filter((columns) => !known.has(String(columns)) && known.add(String(columns)));
  if (wrong) return told(`${from}: "${wrong[2]}" of ${wrong[0]} is not an option; the only one is "case".`);
  if (!read.length) {
    const remedy = "write a term and its translation in each line, with a tab or a comma between them";
    return told(`No terms in ${from}: ${remedy}.`);
  }
  found.forEach((columns) => addTerm(...columns));
  if (found.length) update();
  const more = left ? ` Lines without a translation: ${left}.` : "";
  return told(`${found.length} ${found.length === 1 ? "term" : "terms"} added.${more}`, true);
}

function told(words, isTaken = false) {
  $("terms-status").textContent = words;
  return isTaken;
}

// A file that `s2s glossary` reads as these terms: its first line is a header, and one that begins with # is a comment.
const lineOf = (columns) => `${columns.join("\t").replace(/^#/, " #")}\n`;
const written = () => [["source", "target"], ...terms()].map(lineOf).join("");

export function beginGlossary(onChange) {
  changed = onChange;
  for (const columns of kept.get("terms", [])) addTerm(...columns);
  if (terms().length) $("glossary").open = true;
  $("add-term").addEventListener("click", () => addTerm().focus());
  $("export-terms").addEventListener("click", () => {
    download("glossary.tsv", written(), "text/tab-separated-values");
  });
  const box = $("paste-terms");
  box.addEventListener("paste", () => setTimeout(() => take(box.value, "what was pasted") && (box.value = "")));
  box.addEventListener("change", () => box.value.trim() && take(box.value, "the box") && (box.value = ""));
  $("open-terms").addEventListener("change", async (event) => {
    const [file] = event.target.files;
    event.target.value = "";
    if (!file) return;
    const text = await textOf(file).catch((error) => told(error.message));
    if (text !== false) take(text, file.name, file.name.toLowerCase().endsWith(".csv"));
  });
}
