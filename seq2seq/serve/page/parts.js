// Parts of a text, the spans of their translations, and what is said of them. Spans are in code points.

// Ends of lines, and places where sentences may end. Only the server knows where they do, such as not after "Mr.".
const ENDS = /(?:(?<line>\n)|[.!?…]+[^\S\n]+|[。！？]+[^\S\n]*)/gu;

/* The beginning of a text that a request may hold, `count` sentences at most: whole lines. A line that is too long
   `isCut`, and then the last sentence of the answer may be half a sentence. Where `tooMany` took too long, or in a
   request that `isFull`, no more can be sent. */
function beginning(text, sentences, characters, tooMany) {
  const inside = text.slice(0, characters).replace(/[\ud800-\udbff]$/, ""); // half a character
  let count = 0, lines = 0, end = 0;
  for (const found of inside.matchAll(ENDS)) {
    if (count === sentences) break;
    count += 1;
    end = found.index + found[0].length;
    if (found.groups.line) lines = end;
  }
  const isShort = count < sentences || end === text.length;
  if (isShort && inside === text) return { chunk: text, count: count + (end < text.length) };
  if (lines) return { chunk: text.slice(0, lines), count };
  const cut = end || inside.lastIndexOf(" ") + 1 || inside.length;
  return { chunk: text.slice(0, cut), count, isCut: true, isFull: isShort || 2 * count >= tooMany };
}

// The translations of a chunk. The last one of a chunk that is cut is left out, unless it is all that can be sent.
async function* certain(next, send) {
  const waiting = [];
  let count = 0;
  try {
    for await (const part of send(next.chunk)) {
      waiting.push(part);
      if (next.isCut && waiting.length < 2) continue;
      count += 1;
      yield waiting.shift();
    }
  } catch (error) {
    yield* waiting; // these were not the last
    throw error;
  }
  if (next.isFull && !count) yield* waiting;
  else next.before = waiting[0]?.before; // what the part needs that is asked for again
}

/* Yields the translated sentences of a text, the same as in one request for all of it, with `sentence` and its place
   `at`. `send` yields those of a chunk. Where one takes the server too long, the rest is sent in smaller ones. */
export async function* translations(text, limits, send) {
  const { queue_sentences = 1000, queue_characters = 1e5, request_characters = 1e5 } = limits;
  const characters = Math.max(2, Math.floor(Math.min(queue_characters / 2, request_characters)));
  let most = Math.ceil(queue_sentences / 2), tooMany = Infinity, slow = null; // how many took too long, and its error
  let begin = 0, at = 0, before = ""; // of the rest: its place in code points and in UTF-16, and the space before it
  while (at < text.length) {
    const next = beginning(text.slice(at), most, characters, tooMany), points = Array.from(next.chunk);
    const between = (from, to) => points.slice(from, to).join("");
    let end = 0, done = 0, place = at, isLate = false;
    try {
      for await (const part of certain(next, send)) {
        const [from, to] = part.source, sentence = between(from, to);
        place += between(end, from).length;
        yield moved({ ...part, before: before + part.before, at: place, sentence }, begin);
        place += sentence.length;
        [before, end, done] = ["", to, done + 1];
      }
    } catch (error) {
      if (error.code !== "deadline") throw error;
      [isLate, slow] = [true, error];
    }
    if (end) {
      const space = between(end).match(/^[^\S\n]*/)[0];
      before = next.before ?? space;
      [begin, at] = [begin + end + space.length, place + space.length];
      tooMany = Infinity;
      if (isLate) most = done;
    } else {
      if (!isLate && !next.isCut) return; // the server has nothing more
      if (isLate) tooMany = next.count;
      most = isLate ? Math.ceil(next.count / 10) : 2 * next.count;
      if (most >= tooMany) throw slow;
    }
  }
}

// A part of the translation of a chunk that begins at this code point of the text.
export function moved(part, begin) {
  const shift = ([from, to]) => [from + begin, to + begin];
  part.source = shift(part.source);
  const shiftLink = ([source, ...rest]) => [shift(source), ...rest];
  for (const one of part.details ?? []) one.alignment = one.alignment?.map(shiftLink);
  return part;
}

const FLAGS = {
  loop: "repeats itself", copy: "is a copy of the text", empty: "is empty", short: "is very short",
  long: "was cut off at the length limit", split: "was translated in parts", repaired: "was translated a second time",
  verbatim: "was copied, because it is not language", lost: "lacks characters that the model does not know",
  language: "is in another language", unchanged: "was left unchanged where its translation is empty",
  pivot: "was translated through another language",
  unaligned: "has no alignment; the server's log has the cause", // a flag of `streamed`
};

// What is said of the translated parts of a text.
export function summary(found) {
  const kinds = [...new Set(found.flatMap((part) => part.flags))].map((flag) => FLAGS[flag] ?? flag);
  const missing = found.flatMap((part) => part.terms ?? []).filter((term) => term.status === "missing");
  const notes = kinds.map((words) => `A part ${words}.`);
  if (missing.length) notes.push(`Term missing: ${[...new Set(missing.map((term) => term.entry))].join(", ")}.`);
  return notes.join(" ") || "Done.";
}
