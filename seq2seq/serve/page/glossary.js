// The table of terms: typed, pasted, or read from a file.

import { download, element, kept } from "./api.js";

const $ = (id) => document.getElementById(id);
const rows = () => [...$("terms").rows];
const cells = (row) => [...row.querySelectorAll("input")].map((input) => input.value.trim());
let changed = () => {};

export const terms = () => rows().map(cells).filter(([source, target]) => source && target);

function addTerm(source = "", target = "") {
  const inputs = [["Term", source], ["Translation", target]].map(([label, value]) => {
    const input = element("input", { value });
    input.setAttribute("aria-label", label);
    input.addEventListener("input", update);
    return input;
  });
  const remove = element("button", { type: "button", textContent: "Remove" });
  const row = element("tr", {}, ...inputs.map((input) => element("td", {}, input)), element("td"), element("td", {}, remove));
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
  for (const row of rows()) {
    const [source, target] = cells(row);
    const entry = (source === "-" ? target : source.replace(/\*$/, "")).toLowerCase();
    const names = [...new Set(found.filter((term) => term.entry.toLowerCase() === entry).map((term) => term.status))];
    row.cells[2].replaceChildren(...names.map((name) => element("span", { className: "chip", textContent: name })));
  }
}

// The first two columns of each line that has them, separated by a tab, a semicolon or a comma, with quotes as in CSV.
export function columnsOf(text) {
  const lines = text.replace(/^\ufeff/, "").split(/\r\n|\r|\n/).filter((line) => line.trim());
  const columns = lines.map((line) => ["\t", ";", ","].map((mark) => split(line, mark)).find((found) => found.length > 1) ?? []);
  return columns.map((found) => found.slice(0, 2).map((cell) => cell.trim()));
}

function split(line, mark) {
  if (mark === "\t") return line.split(mark);
  const found = [""];
  let quoted = false;
  for (let at = 0; at < line.length; at++) {
    const last = found.length - 1;
    if (line[at] === '"') {
      if (quoted && line[at + 1] === '"') found[last] += line[at++];
      else quoted = !quoted;
    } else if (line[at] === mark && !quoted) found.push("");
    else found[last] += line[at];
  }
  return found;
}

// Adds the terms of a text; says how many, or why there are none.
function take(text, from) {
  const lines = columnsOf(text), known = new Set(terms().map(String));
  const read = lines.filter(([source, target]) => source && target), left = lines.length - read.length;
  const found = read.filter((columns) => !known.has(String(columns)) && known.add(String(columns)));
  found.forEach((columns) => addTerm(...columns));
  $("terms-status").textContent = read.length
    ? `${found.length} ${found.length === 1 ? "term" : "terms"} added.${left ? ` Lines without a translation: ${left}.` : ""}`
    : `No terms in ${from}: write a term and its translation in each line, with a tab or a comma between them.`;
  if (found.length) update();
  return read.length > 0;
}

export function beginGlossary(onChange) {
  changed = onChange;
  for (const columns of kept.get("terms", [])) addTerm(...columns);
  if (terms().length) $("glossary").open = true;
  $("add-term").addEventListener("click", () => addTerm().focus());
  $("export-terms").addEventListener("click", () => {
    download("glossary.tsv", terms().map((columns) => columns.join("\t") + "\n").join(""), "text/tab-separated-values");
  });
  const box = $("paste-terms");
  box.addEventListener("paste", () => setTimeout(() => take(box.value, "what was pasted") && (box.value = "")));
  box.addEventListener("change", () => box.value.trim() && take(box.value, "the box") && (box.value = ""));
  $("open-terms").addEventListener("change", async (event) => {
    const [file] = event.target.files;
    if (file) take(await file.text(), file.name);
    event.target.value = "";
  });
}
