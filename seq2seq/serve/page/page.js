// The page: what is typed is translated after a pause, sentence by sentence as they come. Without it, the form works.
// Spans of answers are in code points; `points` are the texts as arrays of them.

import { close, offer, whenClosed } from "./alternatives.js";
import { askJson, element, kept, RETRY_SECONDS, streamed } from "./api.js";
import { choiceOf, choose, edited, forget } from "./chosen.js";
import { copied, download, textOf } from "./files.js";
import { beginGlossary, showServedTerms, showStatuses, terms } from "./glossary.js";
import { moved, summary, translations } from "./parts.js";
import { append, beginWords, fill, focusWord, isStale, markAt, setText } from "./words.js";

const REST = 300; // milliseconds
const ALTERNATIVES = 4;
const FORMATS = { html: "html", htm: "html", xhtml: "xml", xml: "xml", md: "markdown" };
const $ = (id) => document.getElementById(id);
const text = $("text"), translation = $("translation"), status = $("status");
let abilities = { details: [], formats: [], glossary: false }, limits = {}, models = [], parts = [];
let controller = null, timer = 0, beginning = 0, isWhole = false; // whether all of the text is translated
let opening = null; // the document that was opened last: {name, controller}, then with saved {name, text}
let detected = null; // the source language of the text, where the server has told it
let isReady; // resolves `ready`: the models are known, so that what is asked of the page can be answered
const ready = new Promise((resolve) => (isReady = resolve));
let wished = kept.get("languages", null); // the model and the languages before a reload

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
const listOf = (side) => (served()?.languages?.[side] ? $(side) : $("direction"));
const tagOf = (side) => listOf(side).selectedOptions[0]?.dataset[side] ?? "";
const classifies = () => model()?.task === "classification";
// What requests to the chosen model may hold.
const able = () => ({ ...abilities, ...served()?.abilities });
const wanted = (...kinds) => kinds.filter((kind) => able().details.includes(kind));

// What every request for a translation names. A part of a text has the language that was detected in the whole of it.
function request(ofText = null) {
  const { name, source, target } = model(), entries = terms();
  const body = { source: (source === "auto" ? ofText : null) ?? source ?? undefined, target: target ?? undefined };
  const isAlike = (one) => one.name !== name && one.source === source && one.target === target;
  if (served().languages || models.some(isAlike)) body.model = name;
  if (able().glossary && entries.length) body.glossary = { entries };
  return body;
}

// -- translation ----------------------------------------------------------------------------------

function later() {
  controller?.abort(); // an answer that comes now is of an earlier text
  isWhole = false;
  translation.classList.add("stale");
  close();
  setText(text.value);
  $("length").textContent = `${Array.from(text.value).length.toLocaleString("en")} characters`;
  kept.set("text", text.value);
  if (!models.length) return; // `begin` reports why, and translates when there are models
  clearTimeout(timer);
  if (!text.value.trim()) return translate(); // which only clears, so that it removes no later message
  say("");
  timer = setTimeout(translate, REST);
}

// The text was edited, which is what the user wants now.
function typed() {
  opening?.controller.abort();
  opening = null;
  edited(text.value, text.selectionEnd);
  later();
}

function put(content) {
  text.value = content;
  typed();
}

async function translate() {
  if (!models.length) return;
  controller?.abort();
  const own = (controller = new AbortController()), content = text.value, found = [];
  const length = Array.from(content).length;
  detected = null;
  isWhole = false;
  if (!content.trim()) {
    clear();
    parts = [];
    return sayDone();
  }
  say(classifies() ? "Classifying" : "Translating");
  try {
    if (classifies()) return await classify(content, own.signal);
    for await (const part of translations(content, limits, (chunk) => asked(chunk, own.signal))) {
      own.signal.throwIfAborted();
      if (!found.length) clear();
      found.push(part);
      parts = found;
      show(part);
      isWhole = part.source[1] === length;
    }
    showTerms();
    showServed();
    sayDone();
  } catch (error) {
    if (error.name !== "AbortError") failed(error, (wait) => (timer = setTimeout(translate, wait)));
  }
}

// Yields the translations of the sentences of a chunk.
async function* asked(chunk, signal) {
  const body = { ...request(detected), text: chunk, split: "sentences", stream: true };
  body.details = wanted("alignment", "words", "confidence", "terms");
  for await (const line of streamed(body, signal)) {
    if (line.done) detected ??= line.source;
    else yield line;
  }
}

async function classify(content, signal) {
  const answer = await askJson("/v1/classify", { text: content, model: model().name }, signal);
  const [{ probabilities }] = answer.classifications;
  const sorted = Object.entries(probabilities).toSorted(([, one], [, other]) => other - one);
  clear();
  translation.append(sorted.map(([label, value]) => `${label}: ${Math.round(100 * value)} %`).join("\n"));
  parts = [];
  isWhole = true;
  sayDone();
}

// With Detect, the terms of the server are those of the language that was detected.
const sourceOfText = () => (model().source === "auto" ? detected : model().source);
const showServed = () => showServedTerms(abilities, sourceOfText(), model().target);
const showTerms = () => showStatuses(parts.flatMap((part) => part.terms ?? []));

// Says what is done last, which is what Download saves.
function sayDone() {
  if (opening) say(opening.saved ? `${opening.name} is translated; Download saves it.` : `Translating ${opening.name}`);
  else if (isWhole) say(summary(parts));
  else say(text.value.trim() ? "Translating" : "");
}

function clear() {
  translation.replaceChildren();
  translation.classList.remove("stale");
}

// Says what went wrong. Where `again` is given, it tries what failed once more, after these milliseconds.
function failed(error, again) {
  const busy = [429, 503].includes(error.status) && error.code !== "model" || error.code === "stopping";
  if (error.isLost || busy) {
    say(`The server ${busy ? "is busy" : "does not answer"}; ${again ? "trying again" : "try again later"}.`, true);
    again?.((error.after || RETRY_SECONDS) * 1000);
  } else if (error.code === "key") {
    if (!$("api_key")) status.before(keyField()); // the server was started again, with keys
    say($("api_key").value ? "The server does not accept this key." : "This server needs a key.", true);
  } else {
    say(error.message, true);
  }
}

function keyField() {
  const field = element("input", { id: "api_key", name: "api_key", type: "password" });
  field.addEventListener("change", begin);
  return element("p", {}, element("label", { htmlFor: field.id, textContent: "Key" }), " ", field);
}

// -- one sentence ---------------------------------------------------------------------------------

function show(part) {
  part.original = part.text;
  part.shown = element("span", { lang: tagOf("target") });
  append(part);
  const choice = choiceOf(part);
  if (choice) take(part, choice);
  else fill(part);
}

// Shows a choice for the sentence of a part, with spans of this place.
function take(part, { text: words, details, terms: own }) {
  const { details: there } = moved({ source: [0, 0], details: structuredClone(details) }, part.source[0]);
  fill(Object.assign(part, { text: words, details: there, terms: own }));
}

// Offers other translations of a sentence that begin as this one does up to a word. What is chosen stays until the
// sentence changes.
async function alternatives(word, part) {
  if (isStale()) return;
  const prefix = Array.from(part.text).slice(0, word.begin).join("").trimEnd();
  try {
    const texts = async () => {
      say("Looking for alternatives");
      const count = Math.min(ALTERNATIVES, (model().search?.beam_size ?? 1) - 1);
      const body = { ...request(detected), text: part.sentence, split: "none", alternatives: count, prefix };
      const [found] = (await askJson("/v1/translate", body)).translations;
      const others = [part.original, found.text, ...found.alternatives.map((one) => one.text)];
      return [...new Set([part.text, ...others.filter((one) => one.startsWith(prefix))])];
    };
    const chosen = (found) => {
      const choice = choose(part, found);
      if (opening?.saved) opening = null; // the text is what the user wants now
      take(part, choice);
      focusWord(part, word.begin);
      showTerms();
      say("Changed.");
      explain(part, choice, word.begin);
    };
    const count = await offer(word, tagOf("target"), texts, chosen, sayDone);
    if (count !== null) say(`${count} ${count === 1 ? "alternative" : "alternatives"}; Escape closes them.`);
  } catch (error) {
    failed(error);
  }
}

// Links the words of a text that was chosen, as far as the model would say it, and finds its terms.
async function explain(part, choice, place) {
  const body = { ...request(detected), text: part.sentence, split: "none", prefix: choice.text };
  body.details = wanted("alignment", "words", "terms");
  const found = (await askJson("/v1/translate", body).catch(() => null))?.translations[0];
  whenClosed(() => {
    if (found?.text !== choice.text) return;
    Object.assign(choice, { details: found.details, terms: found.terms });
    for (const now of parts.filter((one) => choiceOf(one) === choice)) {
      const hasFocus = now.shown.contains(document.activeElement);
      take(now, choice);
      if (hasFocus) focusWord(now, place);
    }
    showTerms();
  });
}

// -- files, and the way back ----------------------------------------------------------------------

async function opened(event) {
  const [file] = event.target.files;
  event.target.value = "";
  if (!file) return;
  const ending = file.name.split(".").pop().toLowerCase(), format = FORMATS[ending];
  const content = await textOf(file).catch((error) => say(error.message, true));
  if (content === undefined) return;
  if (!format || classifies()) return put(content);
  if (!able().formats.includes(format)) return say(`This server does not translate ${ending} files.`, true);
  opening?.controller.abort();
  const own = (opening = { name: file.name, controller: new AbortController() });
  sayDone();
  try {
    const answer = await askJson("/v1/translate", { ...request(), text: content, format }, own.controller.signal);
    if (opening !== own) return;
    own.saved = {
      name: file.name.replace(/(\.\w+)$/, `.${answer.target ?? "translated"}$1`), text: answer.translations[0].text,
    };
    sayDone();
    $("save").focus();
  } catch (error) {
    if (opening !== own) return;
    opening = null;
    failed(error);
  }
}

// The translation of the text that is in the box now; null, and a message, where there is none.
function current() {
  if (isWhole) return translation.textContent;
  const isTyped = Boolean(text.value.trim());
  say(isTyped ? "The text is not translated yet; wait until it is." : "There is no translation; type a text.", true);
  return null;
}

function save() {
  if (opening?.saved) return download(opening.saved.name, opening.saved.text);
  if (opening) return say(`${opening.name} is not translated yet; wait until it is.`, true);
  const words = current();
  if (words !== null) download("translation.txt", `${words}\n`);
}

async function copy() {
  const words = current();
  if (words === null) return;
  const isCopied = await copied(words);
  say(isCopied ? "Copied." : "The browser does not allow copying; select the text instead.", !isCopied);
}

// Whether both languages can be exchanged in the lists.
const turns = () => ["source", "target"].every((side) => served()?.languages?.[side]) && $("source").value !== "auto";
const isReverse = (one) => one.source && one.source === model()?.target && one.target === model()?.source;
const reverse = () => models.findIndex(isReverse);

function swap() {
  const other = turns() ? $("direction").value : reverse(), answer = isWhole ? translation.textContent : "";
  if (other < 0) return;
  $("direction").value = other;
  if (turns()) [$("source").value, $("target").value] = [$("target").value, $("source").value];
  if (answer) put(answer);
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
  text.lang = tagOf("source");
  $("swap").hidden = !turns() && reverse() < 0;
  for (const side of ["source", "target"].filter($))
    for (const part of [$(side), ...$(side).labels]) part.hidden = !served().languages?.[side];
  $("result-title").textContent = classifies() ? "Labels" : "Translation";
  $("glossary").hidden = classifies() || !able().glossary;
  showServed();
  showFacts();
  const { name, source: from, target: to } = served();
  kept.set("languages", { name, from, to, source: $("source")?.value, target: $("target")?.value });
  forget();
  later();
}

// Chooses what was chosen before a reload, as far as it is still there.
function restore() {
  const is = (one) => one.name === wished.name && one.source === wished.from && one.target === wished.to;
  const found = wished ? models.findIndex(is) : -1;
  if (found >= 0) {
    $("direction").value = found;
    for (const side of ["source", "target"].filter($))
      if ([...$(side).options].some((one) => one.value === wished[side])) $(side).value = wished[side];
  }
  wished = null;
}

function chooseLanguages() {
  wished = null;
  turned();
}

async function begin() {
  clearTimeout(beginning);
  try {
    const told = await askJson("/v1/models");
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
    restore();
    turned();
    isReady();
  } catch (error) {
    failed(error, (wait) => (beginning = setTimeout(begin, wait)));
  }
}

document.querySelector(".panes").classList.add("both");
document.querySelector(".tools").hidden = false;
$("result").hidden = false;
$("submit").hidden = true;
if (!text.value) text.value = kept.get("text", "");
beginGlossary(() => {
  forget();
  later();
});
beginWords(alternatives);
edited(text.value, 0);
document.querySelector("form").addEventListener("submit", (event) => (event.preventDefault(), translate()));
text.addEventListener("input", typed);
document.addEventListener("selectionchange", () => {
  if (document.activeElement === text) markAt(text.selectionStart, parts);
});
$("direction").addEventListener("change", chooseLanguages);
for (const side of ["source", "target"].filter($)) $(side).addEventListener("change", chooseLanguages);
$("swap").addEventListener("click", swap);
$("api_key")?.addEventListener("change", begin);
$("clear").addEventListener("click", () => (put(""), text.focus()));
for (const [name, event, act] of [["open-text", "change", opened], ["save", "click", save], ["copy", "click", copy]])
  $(name).addEventListener(event, (happened) => ready.then(() => act(happened)));
begin();
