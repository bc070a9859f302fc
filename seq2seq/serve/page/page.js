// The page: what is typed is translated after a pause, sentence by sentence as they come. Without it, the form works.
// Spans of answers are in code points; `points` are the texts as arrays of them.

import { close, offer, whenClosed } from "./alternatives.js";
import { ask, download, element, kept, objects, RETRY_SECONDS } from "./api.js";
import { beginGlossary, showStatuses, terms } from "./glossary.js";
import { chunks, moved, summary } from "./parts.js";

const REST = 300; // milliseconds
const DOUBTFUL = 0.4, UNCERTAIN = 0.5, ALTERNATIVES = 4;
const FORMATS = { html: "html", htm: "html", xhtml: "xml", xml: "xml", md: "markdown" };
const $ = (id) => document.getElementById(id);
const text = $("text"), mirror = $("mirror"), translation = $("translation"), status = $("status");
const chosen = new Map(); // chosen texts with details, whose spans are those of the sentence, by language and sentence
let abilities = { details: [], formats: [], glossary: false }, limits = {}, models = [], parts = [];
let controller = null, timer = 0, beginning = 0, isWhole = false; // whether all of the text is translated
let translated = null; // the last document
let detected = null; // the source language of the text, where the server has told it

function say(words, isError = false) {
  status.textContent = words;
  status.classList.toggle("error", isError);
}

// The chosen model; one of many languages has those that are chosen.
const served = () => models[Number($("direction").value)] ?? models[0];
function model() {
  const one = served();
  if (!one?.languages) return one;
  const sides = Object.keys(one.languages).map((side) => [side, $(side).value]);
  return { ...one, ...Object.fromEntries(sides) };
}
// The tag of a language of the chosen model, for `lang`; empty if it is not known.
const tagOf = (side) => (served()?.languages?.[side] ? $(side) : $("direction")).selectedOptions[0]?.dataset[side] ?? "";
const classifies = () => model()?.task === "classification";
const wanted = (...kinds) => kinds.filter((kind) => abilities.details.includes(kind));

// What every request for a translation names. A part of a text has the language that was detected in the whole of it.
function request(ofText = null) {
  const { name, source, target } = model(), entries = terms();
  const body = { source: (source === "auto" ? ofText : null) ?? source ?? undefined, target: target ?? undefined };
  if (served().languages || models.some((one) => one.name !== name && one.source === source && one.target === target)) body.model = name;
  if (abilities.glossary && entries.length) body.glossary = { entries };
  return body;
}

// -- translation ----------------------------------------------------------------------------------

// Whether the translation belongs to an earlier text.
const isStale = () => translation.classList.contains("stale");

function later() {
  controller?.abort(); // an answer that comes now is of an earlier text
  isWhole = false;
  translation.classList.add("stale");
  close();
  mark([]);
  $("length").textContent = `${Array.from(text.value).length.toLocaleString("en")} characters`;
  kept.set("text", text.value);
  if (!models.length) return; // `begin` reports why, and translates when there are models
  say("");
  clearTimeout(timer);
  timer = setTimeout(translate, REST);
}

async function translate() {
  if (!models.length) return;
  controller?.abort();
  const own = (controller = new AbortController()), typed = text.value;
  translated = null;
  detected = null;
  isWhole = false;
  if (!typed.trim()) {
    clear();
    parts = [];
    say("");
    return;
  }
  say(classifies() ? "Classifying" : "Translating");
  try {
    if (classifies()) return await classify(typed, own.signal);
    const found = [];
    let begin = 0;
    for (const chunk of chunks(typed, limits)) {
      const body = { ...request(detected), text: chunk, split: "sentences", stream: true };
      body.details = wanted("alignment", "words", "confidence", "terms");
      const answer = await ask("/v1/translate", body, own.signal).catch((error) => {
        if (error.field !== "details" || !body.details.length) throw error;
        return ask("/v1/translate", { ...body, details: [] }, own.signal); // a direction in two passes has none
      });
      for await (const line of objects(answer.body)) {
        own.signal.throwIfAborted();
        if (line.error) throw new Error(line.error.message);
        if (line.done) {
          detected ??= line.source;
          break;
        }
        if (!found.length) clear();
        found.push(moved(line, begin));
        parts = found;
        show(line);
      }
      begin += Array.from(chunk).length;
    }
    showStatuses(parts.flatMap((part) => part.terms ?? []));
    isWhole = true;
    say(summary(found));
  } catch (error) {
    if (error.name !== "AbortError") failed(error, (wait) => (timer = setTimeout(translate, wait)));
  }
}

async function classify(typed, signal) {
  const answer = await (await ask("/v1/classify", { text: typed, model: model().name }, signal)).json();
  const [{ probabilities }] = answer.classifications;
  const sorted = Object.entries(probabilities).toSorted(([, one], [, other]) => other - one);
  clear();
  translation.append(sorted.map(([label, value]) => `${label}: ${Math.round(100 * value)} %`).join("\n"));
  parts = [];
  say("Done.");
}

function clear() {
  translation.replaceChildren();
  translation.classList.remove("stale");
}

// Says what went wrong. Where `again` is given, it tries what failed once more, after these milliseconds.
function failed(error, again) {
  const busy = error.status === 429 || error.status === 503;
  if (error instanceof TypeError || busy) {
    say(`The server ${busy ? "is busy" : "does not answer"}; ${again ? "trying again" : "try again later"}.`, true);
    again?.((error.after || RETRY_SECONDS) * 1000);
  } else if (error.status === 401 || error.status === 403) {
    say($("api_key")?.value ? "The server does not accept this key." : "This server needs a key.", true);
  } else {
    say(error.message, true);
  }
}

// -- one sentence ---------------------------------------------------------------------------------

const sourceOf = (part) => Array.from(text.value).slice(...part.source).join("");
const keyOf = (part) => JSON.stringify([model().target, sourceOf(part).trimEnd()]);

// The part with a choice for its sentence, and with details of its own: the text may have the sentence several times.
function withChoice(part, choice) {
  const { details } = moved({ source: [0, 0], details: structuredClone(choice.details) }, part.source[0]);
  return Object.assign(part, { text: choice.text, details });
}

function show(part) {
  part.original = part.text;
  const shown = element("span", { lang: tagOf("target") });
  translation.append(part.before, shown);
  const choice = chosen.get(keyOf(part));
  fill(shown, choice ? withChoice(part, choice) : part);
}

function fill(shown, part) {
  const points = Array.from(part.text), details = part.details ?? [];
  const words = details.flatMap((one) => one.words ?? []), links = details.flatMap((one) => one.alignment ?? []);
  const unsure = details.some((one) => one.confidence !== null && one.confidence < UNCERTAIN);
  shown.className = unsure ? "sentence uncertain" : "sentence";
  shown.replaceChildren();
  let end = 0;
  for (const word of words.length || !points.length ? words : [{ target: [0, points.length] }]) {
    const [from, to] = word.target;
    shown.append(points.slice(end, from).join(""), wordOf(part, points, word, links, shown));
    end = to;
  }
  shown.append(points.slice(end).join(""));
  rove(translation.querySelector(".word[tabindex='0']") ?? translation.querySelector(".word"));
}

// The one word that the Tab key reaches; arrow keys go from it to the others.
function rove(word) {
  for (const other of translation.querySelectorAll(".word")) other.tabIndex = other === word ? 0 : -1;
}

function wordOf(part, points, word, links, sentence) {
  const [from, to] = word.target, textOfWord = points.slice(from, to).join("");
  const own = links.filter(([, target]) => target[0] === from).map(([source]) => source);
  const shown = element("span", { className: "word", tabIndex: -1, textContent: textOfWord });
  shown.setAttribute("role", "button");
  shown.setAttribute("aria-haspopup", "true");
  if (word.probability !== undefined && word.probability < DOUBTFUL && /[\p{L}\p{N}]/u.test(textOfWord)) {
    shown.classList.add("doubtful");
    shown.title = `The model is not sure of this word (${Math.round(100 * word.probability)} %)`;
  }
  shown.sources = own;
  shown.addEventListener("focus", () => rove(shown));
  for (const begin of ["pointerenter", "focus"]) shown.addEventListener(begin, () => mark(own));
  for (const stop of ["pointerleave", "blur"]) shown.addEventListener(stop, () => mark([]));
  const choose = () => alternatives(part, points.slice(0, from).join("").trimEnd(), shown, sentence);
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

// Marks words of the text (spans), and the words of the translation that are linked to them.
function mark(spansOfText) {
  const spans = isStale() ? [] : spansOfText;
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

// Marks the word at the cursor, and its partners.
function markAtCursor() {
  if (document.activeElement !== text) return;
  const place = Array.from(text.value.slice(0, text.selectionStart)).length;
  const spans = [...translation.querySelectorAll(".word")].flatMap((word) => word.sources);
  mark(spans.filter(([from, to]) => from <= place && place <= to).slice(0, 1));
}

// Offers other translations of a sentence that begin with `prefix`; what is chosen stays until the sentence changes.
async function alternatives(part, prefix, word, sentence) {
  if (isStale()) return;
  const source = sourceOf(part), key = keyOf(part), language = tagOf("target");
  try {
    const texts = async () => {
      say("Looking for alternatives");
      const count = Math.min(ALTERNATIVES, (model().search?.beam_size ?? 1) - 1);
      const body = { ...request(detected), text: source, split: "none", alternatives: count, prefix: prefix || undefined };
      const [found] = (await (await ask("/v1/translate", body)).json()).translations;
      const others = [part.original, found.text, ...found.alternatives.map((one) => one.text)];
      return [...new Set([part.text, ...others.filter((one) => one.startsWith(prefix))])];
    };
    const count = await offer(word, language, texts, (choice) => {
      put(part, key, sentence, { text: choice, details: [] }, true);
      say("Changed.");
      explain(part, source, key, sentence);
    }, () => say(summary(parts)));
    if (count !== null) say(`${count} ${count === 1 ? "alternative" : "alternatives"}; Escape closes them.`);
  } catch (error) {
    failed(error);
  }
}

// Links the words of a text that was chosen, as far as the model would say it.
async function explain(part, source, key, sentence) {
  const { source: from, target, model: name } = request(detected);
  const body = { source: from, target, model: name, text: source, split: "none", prefix: part.text };
  body.details = wanted("alignment", "words");
  const answer = await ask("/v1/translate", body).catch(() => null);
  const found = (await answer?.json())?.translations[0];
  whenClosed(() => {
    if (found?.text !== part.text || chosen.get(key)?.text !== part.text || !sentence.isConnected) return;
    put(part, key, sentence, found, sentence.contains(document.activeElement));
  });
}

// Shows a choice in the place of its sentence.
function put(part, key, sentence, { text, details }, focuses) {
  chosen.set(key, { text, details });
  fill(sentence, withChoice(part, chosen.get(key)));
  if (focuses) sentence.querySelector(".word")?.focus({ preventScroll: true });
}

// -- files, and the way back ----------------------------------------------------------------------

async function opened(event) {
  const [file] = event.target.files;
  event.target.value = "";
  if (!file) return;
  const content = await file.text(), ending = file.name.split(".").pop().toLowerCase(), format = FORMATS[ending];
  if (!format || classifies()) {
    text.value = content;
    return later();
  }
  if (!abilities.formats.includes(format)) return say(`This server does not translate ${ending} files.`, true);
  say(`Translating ${file.name}`);
  try {
    const [found] = (await (await ask("/v1/translate", { ...request(), text: content, format })).json()).translations;
    translated = { name: file.name.replace(/(\.\w+)$/, `.${model().target ?? "translated"}$1`), text: found.text };
    say(`${file.name} is translated; Download saves it.`);
    $("save").focus();
  } catch (error) {
    failed(error);
  }
}

function save() {
  if (translated) download(translated.name, translated.text);
  else if (translation.textContent) download("translation.txt", `${translation.textContent}\n`);
}

// Whether both languages can be exchanged in the lists.
const turns = () => ["source", "target"].every((side) => served()?.languages?.[side]) && $("source").value !== "auto";
const reverse = () => models.findIndex((one) => one.source && one.source === model()?.target && one.target === model()?.source);

function swap() {
  const other = turns() ? $("direction").value : reverse(), answer = isWhole ? translation.textContent : "";
  if (other < 0) return;
  $("direction").value = other;
  if (turns()) [$("source").value, $("target").value] = [$("target").value, $("source").value];
  if (answer) text.value = answer;
  turned();
}

// -- what is served -------------------------------------------------------------------------------

function showFacts() {
  const { name, engine, metrics = {}, fingerprint } = model();
  const scores = Object.entries(metrics).filter(([, value]) => typeof value === "number")
    .map(([key, value]) => `${key} ${Number(value.toPrecision(4))}`).join(", ");
  const languages = classifies() ? "" : $("direction").selectedOptions[0]?.textContent;
  const facts = { Model: name, Languages: languages, Engine: engine, Validation: scores, Fingerprint: fingerprint };
  const known = Object.entries(facts).filter(([, value]) => value);
  $("facts").replaceChildren(...known.flatMap(([term, value]) => [element("dt", {}, term), element("dd", {}, value)]));
}

// Another model was chosen.
function turned() {
  if (!models.length) return;
  abilities = { ...abilities, ...served().abilities };
  text.lang = tagOf("source");
  $("swap").hidden = !turns() && reverse() < 0;
  for (const side of ["source", "target"].filter($))
    for (const part of [$(side), ...$(side).labels]) part.hidden = !served().languages?.[side];
  $("result-title").textContent = classifies() ? "Labels" : "Translation";
  $("glossary").hidden = classifies() || !abilities.glossary;
  const isHere = (one) => one.source === model().source && one.target === model().target;
  const directed = Object.entries(abilities.glossaries_of_directions ?? {})
    .filter(([, known]) => known.some(isHere)).map(([name]) => name);
  const own = [...(abilities.default_glossaries ?? []), ...directed];
  $("served-terms").hidden = !own.length;
  $("served-terms").textContent = `If you enter no terms, the server's own terms apply: ${own.join(", ")}.`;
  showFacts();
  later();
}

async function begin() {
  clearTimeout(beginning);
  try {
    const told = await (await ask("/v1/models")).json();
    ({ abilities, limits } = told);
    const classifiers = told.models.filter((one) => one.task === "classification");
    models = [...told.models.filter((one) => one.task === "translation"), ...classifiers];
    if (!models.length) return say("This server has no model.", true);
    for (const option of [...$("direction").options].slice(models.length - classifiers.length)) option.remove();
    classifiers.forEach((one) => $("direction").append(element("option", {
      value: models.indexOf(one), textContent: `Classify: ${one.name}`,
    })));
    $("more").hidden = false;
    say("");
    turned();
  } catch (error) {
    failed(error, (wait) => (beginning = setTimeout(begin, wait)));
  }
}

document.querySelector(".panes").classList.add("both");
document.querySelector(".tools").hidden = false;
$("result").hidden = false;
$("submit").hidden = true;
if (!text.value) text.value = kept.get("text", "");
beginGlossary(later);
document.querySelector("form").addEventListener("submit", (event) => (event.preventDefault(), translate()));
text.addEventListener("input", later);
document.addEventListener("selectionchange", markAtCursor);
$("direction").addEventListener("change", turned);
for (const side of ["source", "target"].filter($)) $(side).addEventListener("change", turned);
$("swap").addEventListener("click", swap);
$("api_key")?.addEventListener("change", begin);
$("clear").addEventListener("click", () => ((text.value = ""), text.focus(), later()));
$("open-text").addEventListener("change", opened);
$("save").addEventListener("click", save);
$("copy").addEventListener("click", () => navigator.clipboard.writeText(translation.textContent).then(
  () => say("Copied."), () => say("The browser does not allow copying; select the text instead.", true)));
begin();
