// The list of other translations of a sentence, below the word that was clicked. There is one list at most.

import { element } from "./api.js";

let open = null; // {list, word, closed}
let turn = 0; // counts what was asked, so that a late answer opens nothing
let asked = false; // whether a list is on its way
let waiting = []; // what would replace the word of a list
const REST = 300; // milliseconds, longer than a click

// Calls `replace`, which replaces words, when no list is open or on its way.
export function whenClosed(replace) {
  waiting.push(replace);
  settle();
}

function settle() {
  if (open || asked) return;
  const ready = waiting;
  waiting = [];
  for (const replace of ready) replace();
}

// Closes the list; the focus goes back to the word where it was in the list.
export function close() {
  turn += 1;
  asked = false;
  setTimeout(settle, REST); // the click that closed the list may be on a word
  if (!open) return;
  const { list, word, closed } = open, hadFocus = list.contains(document.activeElement);
  open = null;
  list.remove();
  closed();
  word.removeAttribute("aria-expanded");
  if (hadFocus && word.isConnected) word.focus({ preventScroll: true });
}

/* Shows the list of `texts()`, a promise, below `word`; `choose` takes the text that is clicked, `closed` is called
   when the list is gone.
   Resolves to the number of texts, or null where another list was asked for meanwhile. */
export async function offer(word, language, texts, choose, closed) {
  close();
  asked = true;
  const own = turn;
  try {
    const found = await texts();
    if (own !== turn || !word.isConnected) return null;
    show(word, language, found, choose, closed);
    return found.length;
  } finally {
    if (own === turn) asked = false;
    settle();
  }
}

function show(word, language, texts, choose, closed) {
  const list = element("ul", { className: "choices" });
  list.setAttribute("aria-label", "Alternatives");
  for (const text of texts) {
    const button = element("button", { type: "button", textContent: text, lang: language, dir: "auto" });
    button.addEventListener("click", () => {
      close();
      choose(text);
    });
    list.append(element("li", {}, button));
  }
  list.addEventListener("keydown", moved);
  const box = document.getElementById("result");
  const place = word.getBoundingClientRect(), outer = box.getBoundingClientRect();
  list.style.insetBlockStart = `${place.bottom - outer.top + 4}px`;
  box.append(list);
  open = { list, word, closed };
  word.setAttribute("aria-expanded", "true");
  list.querySelector("button").focus({ preventScroll: true });
  list.scrollIntoView({ block: "nearest" });
}

function moved(event) {
  const buttons = [...open.list.querySelectorAll("button")], at = buttons.indexOf(document.activeElement);
  const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
  if (event.key === "Escape") close();
  else if (next !== undefined) buttons[(next + buttons.length) % buttons.length].focus();
  else return;
  event.preventDefault();
}

document.addEventListener("pointerdown", (event) => {
  if (open && !open.list.contains(event.target)) close();
});
document.addEventListener("keydown", (event) => event.key === "Escape" && close());
