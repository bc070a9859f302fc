// The translations that the user chose: each belongs to a sentence at a place of the text, and moves with it.

let chosen = new Map(); // choices by the place of their sentences, in code points
let typed = [];

export const choiceOf = (part) => {
  const choice = chosen.get(part.source[0]);
  return choice?.sentence === part.sentence.trimEnd() ? choice : null; // white space at the end may be typed yet
};

export function choose(part, text) {
  const choice = { sentence: part.sentence.trimEnd(), text, details: [], terms: [] };
  chosen.set(part.source[0], choice);
  return choice;
}

// They were made for one model, one pair of languages and one glossary.
export const forget = () => chosen.clear();

// Moves the choices after the place where the text was edited; the cursor is at the end of what was typed.
export function edited(text, cursor) {
  const before = typed, after = Array.from(text), place = Array.from(text.slice(0, cursor)).length;
  typed = after;
  if (!chosen.size) return;
  let old = before.length, now = after.length, begin = 0;
  const goBack = (end) => {
    while (old > begin && now > end && before[old - 1] === after[now - 1]) [old, now] = [old - 1, now - 1];
  };
  goBack(place);
  if (now > place) [old, now] = [before.length, after.length]; // it was edited elsewhere
  while (begin < old && begin < now && before[begin] === after[begin]) begin += 1;
  goBack(begin);
  const moved = [...chosen].filter(([at]) => at <= begin || at >= old);
  chosen = new Map(moved.map(([at, choice]) => [at >= old ? at + now - old : at, choice]));
}
