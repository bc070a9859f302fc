// Parts of a text, the spans of their translations, and what is said of them. Spans are in code points.

// A long text in parts that a request may hold, by the limits of the server, cut at ends of sentences.
export function chunks(typed, limits) {
  const { queue_sentences = 1000, queue_characters = 1e5, request_characters = 1e5 } = limits;
  const found = [""], most = { sentences: queue_sentences / 2, characters: Math.min(queue_characters / 2, request_characters) };
  let count = 0;
  for (const [sentence] of typed.matchAll(/[^\n.!?…。！？]*(?:[\n.!?…。！？]+\s*|$)/gu)) {
    const last = found.length - 1, ends = 1 + sentence.split("\n").length;
    if (found[last] && (count + ends > most.sentences || found[last].length + sentence.length > most.characters)) {
      found.push(sentence);
      count = 0;
    } else found[last] += sentence;
    count += ends;
  }
  return found.filter(Boolean);
}

// A part of the translation of a chunk that begins at this code point of the text.
export function moved(part, begin) {
  const shift = ([from, to]) => [from + begin, to + begin];
  part.source = shift(part.source);
  for (const one of part.details ?? []) one.alignment = one.alignment?.map(([source, ...rest]) => [shift(source), ...rest]);
  return part;
}

const FLAGS = {
  loop: "repeats itself", copy: "is a copy of the text", empty: "is empty", short: "is very short",
  long: "was cut off at the length limit", split: "was translated in parts", repaired: "was translated a second time",
  verbatim: "was copied, because it is not language", lost: "lacks characters that the model does not know",
  language: "is in another language", unchanged: "was left unchanged where its translation is empty",
  pivot: "was translated through another language",
};

// What is said of the translated parts of a text.
export function summary(found) {
  const kinds = [...new Set(found.flatMap((part) => part.flags))].map((flag) => FLAGS[flag] ?? flag);
  const missing = found.flatMap((part) => part.terms ?? []).filter((term) => term.status === "missing");
  const notes = kinds.map((words) => `A part ${words}.`);
  if (missing.length) notes.push(`Term missing: ${[...new Set(missing.map((term) => term.entry))].join(", ")}.`);
  return notes.join(" ") || "Done.";
}
