// The words of the translation: the marks of their partners in the text, and the keys that go from one to another.
// What is done for a sentence or a word takes no longer in a long text: it visits the words of this sentence alone.
// Each line is an element, which has the direction of its first letter, as a line of the box has.

import { element } from "./api.js";

const DOUBTFUL = 0.4, UNCERTAIN = 0.5;
const mirror = document.getElementById("mirror"), translation = document.getElementById("translation");
let reached = null; // the one word that the Tab key reaches; arrow keys go from it to the others
let partners = []; // the words that are marked
let lines = []; // of the text below the box

const lineOf = (textContent) => element("div", { dir: "auto", textContent });

// Whether the translation belongs to an earlier text.
export const isStale = () => translation.classList.contains("stale");

// Shows the translation of a sentence.
export function fill(part) {
  const { shown } = part, points = Array.from(part.text), details = part.details ?? [];
  const words = details.flatMap((one) => one.words ?? []), links = details.flatMap((one) => one.alignment ?? []);
  const sources = (begin) => links.filter(([, target]) => target[0] === begin).map(([source]) => source);
  const unsure = details.some((one) => one.confidence !== null && one.confidence < UNCERTAIN);
  shown.className = unsure ? "sentence uncertain" : "sentence";
  shown.told = part;
  shown.replaceChildren();
  let end = 0;
  if (!words.length && points.length) words.push({ target: [0, points.length] });
  for (const { target: [from, to], probability } of words) {
    const word = wordOf(points.slice(from, to).join(""), probability);
    Object.assign(word, { begin: from, sources: sources(from) });
    shown.append(points.slice(end, from).join(""), word);
    end = to;
  }
  shown.append(points.slice(end).join(""));
  if (!reached?.isConnected) reach(shown.firstElementChild ?? translation.querySelector(".word"));
}

function wordOf(textContent, probability) {
  const shown = element("span", { className: "word", tabIndex: -1, textContent });
  shown.setAttribute("role", "button");
  shown.setAttribute("aria-haspopup", "true");
  if (probability !== undefined && probability < DOUBTFUL && /[\p{L}\p{N}]/u.test(textContent)) {
    shown.classList.add("doubtful");
    shown.title = `The model is not sure of this word (${Math.round(100 * probability)} %)`;
  }
  return shown;
}

// Puts the focus on the word of a sentence that is at this place or goes beyond it.
export function focusWord({ shown }, place) {
  const words = [...shown.querySelectorAll(".word")];
  (words.findLast((word) => word.begin <= place) ?? words[0])?.focus({ preventScroll: true });
}

function reach(word) {
  if (reached) reached.tabIndex = -1;
  reached = word;
  if (word) word.tabIndex = 0;
}

// The text below the box, in which words are marked.
export function setText(text) {
  unmark();
  mirror.replaceChildren();
  lines = [];
  for (const { 0: line, index } of `${text}\n`.matchAll(/[^\n]*\n/g)) {
    const shown = Object.assign(lineOf(line), { begin: index });
    lines.push(shown);
    mirror.append(shown);
  }
}

// Shows the space before the translation of a sentence, and the element for it.
export function append({ before, shown }) {
  for (const [number, space] of before.split("\n").entries()) {
    if (number) translation.lastElementChild.append("\n");
    if (number || !translation.lastElementChild) translation.append(lineOf(""));
    translation.lastElementChild.append(space);
  }
  translation.lastElementChild.append(shown);
}

function unmark() {
  for (const one of mirror.querySelectorAll("mark")) one.replaceWith(one.textContent);
  mirror.normalize();
  for (const word of partners) word.classList.remove("partner");
  partners = [];
}

// Marks words in the sentence of a part (spans of the text), and the words of its translation that are linked to them.
function mark(part, spans) {
  unmark();
  if (isStale()) return;
  const points = Array.from(part.sentence), ends = new Map(spans);
  const line = lines.findLast(({ begin }) => begin <= part.at);
  const place = (of) => part.at - line.begin + points.slice(0, of - part.source[0]).join("").length;
  for (const [from, to] of [...ends].toSorted(([one], [other]) => other - one)) {
    const word = line.firstChild.splitText(place(from));
    word.splitText(place(to) - place(from));
    word.replaceWith(element("mark", {}, word.data));
  }
  partners = [...part.shown.querySelectorAll(".word")].filter((word) => word.sources.some(([from]) => ends.has(from)));
  for (const word of partners) word.classList.add("partner");
}

// Marks the word at the cursor (in the text as JavaScript counts), and its partners.
export function markAt(cursor, parts) {
  const part = parts.findLast((one) => one.at <= cursor);
  if (isStale() || !part) return unmark();
  const place = part.source[0] + Array.from(part.sentence.slice(0, cursor - part.at)).length;
  const spans = [...part.shown.querySelectorAll(".word")].flatMap((word) => word.sources);
  mark(part, spans.filter(([from, to]) => from <= place && place <= to).slice(0, 1));
}

// The word after or before a word.
function beside(word, isAfter) {
  const words = document.createTreeWalker(translation, NodeFilter.SHOW_ELEMENT, (one) =>
    one.matches(".word") ? NodeFilter.FILTER_ACCEPT : NodeFilter.FILTER_SKIP);
  words.currentNode = word;
  return isAfter ? words.nextNode() : words.previousNode();
}

// Calls `choose` with a word and its part when it is clicked, or Enter or the space bar is pressed on it.
export function beginWords(choose) {
  const on = (name, act) => translation.addEventListener(name, (event) => {
    const word = event.target.closest(".word");
    if (word) act(word, word.parentElement.told, event);
  });
  for (const begin of ["pointerover", "focusin"]) on(begin, (word, part) => mark(part, word.sources));
  for (const stop of ["pointerout", "focusout"]) on(stop, unmark);
  on("focusin", reach);
  on("click", choose);
  on("keydown", (word, part, event) => {
    const forwards = getComputedStyle(word).direction === "rtl" ? "ArrowLeft" : "ArrowRight";
    if (event.key === "Enter" || event.key === " ") choose(word, part);
    else if (event.key === "ArrowRight" || event.key === "ArrowLeft") beside(word, event.key === forwards)?.focus();
    else return;
    event.preventDefault();
  });
}
