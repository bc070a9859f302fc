// The table of terms: typed, pasted, or read from a file.

import { element, kept } from "./api.js";
import { download, textOf } from "./files.js";
import { columnsOf } from "./glossary_rows.js";

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

// Names the glossaries of the server that apply to texts of a direction.
export function showServedTerms(abilities, source, target) {
  const { default_glossaries: always = [], glossaries_of_directions: known = {} } = abilities;
  const isHere = (one) => one.source === source && one.target === target;
  const own = [...always, ...Object.keys(known).filter((name) => known[name].some(isHere))];
  $("served-terms").hidden = !own.length;
  $("served-terms").textContent = `If you enter no terms, the server's own terms apply: ${own.join(", ")}.`;
}

/* Adds the terms of a text; says how many, or why there are none. Without a target, a line with a mark copies its term;
   a line without a mark is left out. `isCsv` is that of a file. */
function take(text, from, isCsv) {
  let lines;
  try {
    lines = columnsOf(text, isCsv);
  } catch (error) {
    return told(`${from}: ${error.message}.`);
  }
  const known = new Set(terms().map(String)), isPair = ([source, target]) => source && target !== undefined;
  const read = lines.filter(isPair).map(([source, target, option = ""]) => [source, target || "=", option]);
  const wrong = read.find(([, , option]) => !["", "case"].includes(option)), left = lines.length - read.length;
  const found = read.map((columns) => columns.filter(Boolean))
    .filter((columns) => !known.has(String(columns)) && known.add(String(columns)));
  if (wrong) return told(`${from}: "${wrong[2]}" of ${wrong[0]} is not an option; the only one is "case".`);
  if (!read.length) {
    const mark = { true: "a comma or a semicolon", false: "a tab", undefined: "a tab or a comma" }[isCsv];
    return told(`No terms in ${from}: write a term and its translation in each line, with ${mark} between them.`);
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
