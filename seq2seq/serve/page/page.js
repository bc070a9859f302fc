// The page: what is typed is translated after a pause, sentence by sentence as they come. Without it, the form works.
// Spans of answers are in code points; `points` are the texts as arrays of them.

const REST = 300, AGAIN = 2000; // milliseconds
const DOUBTFUL = 0.4, UNCERTAIN = 0.5, ALTERNATIVES = 4;
const FLAGS = {
  loop: "repeats itself", copy: "is a copy of the text", empty: "is empty", short: "is very short", long: "is very long",
  cut: "was cut off", split: "was translated in parts", verbatim: "was copied, at least in part",
  lost: "lacks signs that the model does not know",
  repaired: "was searched for twice",
};
const $ = (id) => document.getElementById(id);
const text = $("text"), mirror = $("mirror"), translation = $("translation"), status = $("status");
let abilities = { details: [], glossary: false }, models = [], parts = [], controller = null, timer = 0;

function element(name, options = {}, ...children) {
  const made = Object.assign(document.createElement(name), options);
  made.append(...children);
  return made;
}

function say(words, isError = false) {
  status.textContent = words;
  status.classList.toggle("error", isError);
}

async function ask(path, body, signal) {
  const headers = { "Content-Type": "application/json" }, key = $("api_key")?.value;
  if (key) headers.Authorization = `Bearer ${key}`;
  const answer = await fetch(path, body ? { method: "POST", headers, body: JSON.stringify(body), signal } : { headers, signal });
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => ({}));
  throw Object.assign(new Error(told.error?.message ?? `error ${answer.status}`), {
    status: answer.status, after: Number(answer.headers.get("Retry-After")),
  });
}

const model = () => models[Number($("direction").value)] ?? models[0];
const wanted = (...kinds) => kinds.filter((kind) => abilities.details.includes(kind));

function request() {
  const { source, target } = model(), entries = terms();
  const body = { source: source ?? undefined, target: target ?? undefined };
  if (abilities.glossary && entries.length) body.glossary = { entries };
  return body;
}

// -- translation ----------------------------------------------------------------------------------

// The translation is of what stood in the box before.
const isStale = () => translation.classList.contains("stale");

function later() {
  translation.classList.add("stale");
  mark([]);
  say("");
  clearTimeout(timer);
  timer = setTimeout(translate, REST);
}

async function translate() {
  controller?.abort();
  const own = (controller = new AbortController()), typed = text.value;
  if (!typed.trim() || !models.length) {
    clear();
    parts = [];
    say("");
    return;
  }
  say("Translating");
  try {
    const body = { ...request(), text: typed, split: "sentences", stream: true };
    body.details = wanted("alignment", "words", "confidence", "terms");
    const answer = await ask("/v1/translate", body, own.signal);
    const found = [];
    for await (const line of lines(answer.body)) {
      if (line.error) throw new Error(line.error.message);
      if (line.done) break;
      if (!found.length) clear();
      found.push(line);
      parts = found;
      show(line);
    }
    showStatuses();
    say(summary(found));
  } catch (error) {
    if (error.name === "AbortError") return;
    failed(error);
  }
}

function clear() {
  translation.replaceChildren();
  translation.classList.remove("stale");
}

async function* lines(stream) {
  let rest = "";
  for await (const chunk of stream.pipeThrough(new TextDecoderStream())) {
    const whole = (rest + chunk).split("\n");
    rest = whole.pop();
    yield* whole.filter(Boolean).map((line) => JSON.parse(line));
  }
}

function failed(error) {
  const again = () => (timer = setTimeout(translate, (error.after || AGAIN / 1000) * 1000));
  if (error instanceof TypeError) {
    say("The server does not answer; trying again.", true);
    again();
  } else if (error.status === 429 || error.status === 503) {
    say("The server is busy; trying again.", true);
    again();
  } else {
    say(error.message, true);
  }
}

function summary(found) {
  const kinds = [...new Set(found.flatMap((part) => part.flags))].map((flag) => FLAGS[flag] ?? flag);
  const missing = found.flatMap((part) => part.terms ?? []).filter((term) => term.status === "missing");
  const notes = kinds.map((words) => `A part ${words}.`);
  if (missing.length) notes.push(`Term missing: ${[...new Set(missing.map((term) => term.entry))].join(", ")}.`);
  return notes.join(" ") || "Done.";
}

// -- one sentence ---------------------------------------------------------------------------------

function show(part) {
  const points = Array.from(part.text), details = part.sentences ?? [];
  const words = details.flatMap((one) => one.words ?? []), links = details.flatMap((one) => one.alignment ?? []);
  const unsure = details.some((one) => one.confidence !== null && one.confidence < UNCERTAIN);
  const shown = element("span", { className: unsure ? "sentence uncertain" : "sentence", lang: model().target ?? "" });
  let end = 0;
  for (const word of words) {
    const [from, to] = word.target;
    shown.append(points.slice(end, from).join(""), wordOf(part, points, word, links, shown));
    end = to;
  }
  if (!words.length && points.length) shown.append(wordOf(part, points, { target: [0, points.length] }, links, shown));
  else shown.append(points.slice(end).join(""));
  translation.append(part.before, shown);
}

function wordOf(part, points, word, links, sentence) {
  const [from, to] = word.target;
  const own = links.filter(([, target]) => target[0] === from).map(([source]) => source);
  const shown = element("span", { className: "word", tabIndex: 0, textContent: points.slice(from, to).join("") });
  shown.setAttribute("role", "button");
  if (word.probability !== undefined && word.probability < DOUBTFUL) {
    shown.classList.add("doubtful");
    shown.title = `The model is not sure of this word (${Math.round(100 * word.probability)} %)`;
  }
  shown.sources = own;
  for (const begin of ["pointerenter", "focus"]) shown.addEventListener(begin, () => mark(own));
  for (const stop of ["pointerleave", "blur"]) shown.addEventListener(stop, () => mark([]));
  const choose = () => offer(part, points.slice(0, from).join("").trimEnd(), sentence);
  shown.addEventListener("click", choose);
  shown.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      choose();
    } else if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      const all = [...translation.querySelectorAll(".word")], step = event.key === "ArrowRight" ? 1 : -1;
      all[all.indexOf(shown) + step]?.focus();
    }
  });
  return shown;
}

// Marks words of the text (spans), and the words of the translation that stand for them.
function mark(chosen) {
  const spans = isStale() ? [] : chosen;
  const points = Array.from(text.value), sorted = spans.toSorted((one, other) => one[0] - other[0]);
  mirror.replaceChildren();
  let end = 0;
  for (const [from, to] of sorted) {
    mirror.append(points.slice(end, from).join(""), element("mark", {}, points.slice(from, to).join("")));
    end = to;
  }
  mirror.append(points.slice(end).join("") + "\n");
  const starts = new Set(spans.map(([from]) => from));
  for (const word of translation.querySelectorAll(".word")) {
    word.classList.toggle("partner", word.sources.some(([from]) => starts.has(from)));
  }
}

// The word at the cursor, and its partners.
function markAtCursor() {
  if (document.activeElement !== text) return;
  const place = Array.from(text.value.slice(0, text.selectionStart)).length;
  const spans = [...translation.querySelectorAll(".word")].flatMap((word) => word.sources);
  mark(spans.filter(([from, to]) => from <= place && place <= to).slice(0, 1));
}

// Other translations of a sentence that begin with `prefix`.
async function offer(part, prefix, sentence) {
  document.querySelector(".choices")?.remove();
  if (isStale()) return;
  const source = Array.from(text.value).slice(...part.source).join("");
  say("Looking for alternatives");
  try {
    const { source: from, target } = request();
    const alternatives = Math.min(ALTERNATIVES, (model().search?.beam_size ?? 1) - 1);
    const body = { source: from, target, text: source, split: "none", alternatives, prefix: prefix || undefined };
    const [found] = (await (await ask("/v1/translate", body)).json()).translations;
    const texts = [...new Set([part.text, found.text, ...found.alternatives.map((one) => one.text)])];
    const list = element("ul", { className: "choices" });
    list.setAttribute("aria-label", "Alternatives");
    for (const choice of texts) {
      const button = element("button", { type: "button", textContent: choice, lang: target ?? "" });
      button.addEventListener("click", () => {
        part.text = choice;
        sentence.replaceChildren(choice);
        list.remove();
        say("Changed.");
      });
      list.append(element("li", {}, button));
    }
    list.addEventListener("keydown", (event) => event.key === "Escape" && list.remove());
    $("result").append(list);
    list.querySelector("button").focus();
    say(`${texts.length} alternatives; Escape closes them.`);
  } catch (error) {
    failed(error);
  }
}

// -- glossary -------------------------------------------------------------------------------------

const rows = () => [...$("terms").rows];
const terms = () => rows().map((row) => [...row.querySelectorAll("input")].map((input) => input.value.trim()))
  .filter(([source, target]) => source && target);

function addTerm(source = "", target = "") {
  const inputs = [["Term", source], ["Translation", target]].map(([label, value]) => {
    const input = element("input", { value });
    input.setAttribute("aria-label", label);
    input.addEventListener("input", later);
    return input;
  });
  const remove = element("button", { type: "button", textContent: "Remove" });
  const row = element("tr", {}, ...inputs.map((input) => element("td", {}, input)), element("td", {}), element("td", {}, remove));
  remove.addEventListener("click", () => (row.remove(), later()));
  $("terms").append(row);
  return inputs[0];
}

function showStatuses() {
  const all = parts.flatMap((part) => part.terms ?? []);
  for (const row of rows()) {
    const [source, target] = [...row.querySelectorAll("input")].map((input) => input.value.trim());
    const entry = (source === "-" ? target : source.replace(/\*$/, "")).toLowerCase();
    const found = [...new Set(all.filter((term) => term.entry.toLowerCase() === entry).map((term) => term.status))];
    row.cells[2].replaceChildren(...found.map((name) => element("span", { className: "chip", textContent: name })));
  }
}

function pasted() {
  const box = $("paste-terms");
  const found = box.value.split("\n").map((line) => line.split("\t")).filter((columns) => columns[0].trim() && columns[1]?.trim());
  if (!found.length) return;
  for (const [source, target] of found) addTerm(source.trim(), target.trim());
  box.value = "";
  later();
}

function exported() {
  const lines = terms().map((columns) => columns.join("\t") + "\n").join("");
  const url = URL.createObjectURL(new Blob([lines], { type: "text/tab-separated-values" }));
  element("a", { href: url, download: "glossary.tsv" }).click();
  URL.revokeObjectURL(url);
}

// -- what is served -------------------------------------------------------------------------------

function showFacts() {
  const { name, source, target, engine, metrics = {}, fingerprint } = model();
  const scores = Object.entries(metrics).filter(([, value]) => typeof value === "number")
    .map(([key, value]) => `${key} ${Number(value.toPrecision(4))}`).join(", ");
  const facts = { Model: name, Languages: `${source ?? "?"} to ${target ?? "?"}`, Engine: engine, Validation: scores, Fingerprint: fingerprint };
  $("facts").replaceChildren(...Object.entries(facts).flatMap(([term, value]) => [element("dt", {}, term), element("dd", {}, value)]));
}

async function begin() {
  try {
    const told = await (await ask("/v1/models")).json();
    abilities = told.abilities;
    models = told.models.filter((one) => one.task === "translation");
    if (!models.length) return say("This server has no translation model.", true);
    $("glossary").hidden = !abilities.glossary;
    $("more").hidden = false;
    text.lang = model().source ?? "";
    showFacts();
    say("");
    later();
  } catch (error) {
    if (error.status === 403) return say("Give the key of this server.", true);
    failed(error);
    setTimeout(begin, AGAIN);
  }
}

document.querySelector(".panes").classList.add("both");
$("result").hidden = false;
$("submit").hidden = true;
document.querySelector("form").addEventListener("submit", (event) => (event.preventDefault(), translate()));
text.addEventListener("input", later);
document.addEventListener("selectionchange", markAtCursor);
$("direction").addEventListener("change", () => ((text.lang = model().source ?? ""), showFacts(), later()));
$("api_key")?.addEventListener("change", begin);
$("copy").addEventListener("click", () => navigator.clipboard.writeText(translation.textContent).then(
  () => say("Copied."), () => say("The browser does not allow copying; select the text instead.", true)));
$("add-term").addEventListener("click", () => addTerm().focus());
$("export-terms").addEventListener("click", exported);
$("paste-terms").addEventListener("input", pasted);
begin();
