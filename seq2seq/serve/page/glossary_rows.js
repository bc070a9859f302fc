// The lines of a glossary as columns, by the rules of text/table_format.py and text/glossary_rows.py.

const QUOTED = '"(?:[^"]|"")*"';
const record = (field) => new RegExp(`^(?:${field})(?:\t(?:${field}))*$`, "u");
const RECORD = record(`${QUOTED}|[^"\t]*`), ALL_QUOTED = record(`${QUOTED}|\\p{Nd}*`);
// The line in which Excel names the mark of a CSV.
const NAMES_MARK = /^"?sep=(\t|[^\p{L}\p{N}_\s"])"?$/iu;
const MARKS = [",", ";", "\t"], LINES_FOR_MARK = 200;

/* The columns of each line, without comments, empty lines and the header. A CSV has two columns; a file of another kind
   has a tab between its columns. What is pasted is a CSV if it has no tab, or names its mark. Throws an error if the
   marks of a CSV are not clear, or a line is not one record. */
export function columnsOf(text, isCsv) {
  let lines = text.split(/\r\n|\r|\n/).map((line, index) => ({ line, number: index + 1 }))
    .filter(({ line }) => line.trim() && !line.startsWith("#"));
  const texts = lines.map(({ line }) => line), named = texts[0]?.match(NAMES_MARK)?.[1];
  const asCsv = isCsv ?? (named !== undefined || !text.includes("\t"));
  if (asCsv && named) lines = lines.slice(1);
  const mark = asCsv ? named ?? markOf(texts.slice(0, LINES_FOR_MARK)) : "\t";
  const isQuoted = asCsv || hasSpreadsheetQuotes(texts);
  const found = lines.map(({ line, number }) => {
    const fields = isQuoted ? fieldsOf(line, mark) : line.split(mark);
    if (!fields) throw new Error(`line ${number} is not one record; double the quotes inside a quoted field`);
    return fields.slice(0, asCsv ? 2 : undefined).map((field) => field.trim());
  });
  return String(found[0]?.slice(0, 2)).toLowerCase() === "source,target" ? found.slice(1) : found;
}

// The fields of a line, without quotes around them; null if it is not one record.
function fieldsOf(line, mark) {
  const found = [], field = new RegExp(`(?:(${QUOTED})|((?!")[^\\${mark}]*))(\\${mark}|$)`, "y");
  for (;;) {
    const at = field.exec(line);
    if (!at) return null;
    found.push(at[1]?.slice(1, -1).replaceAll('""', '"') ?? at[2]);
    if (!at[3]) return found;
  }
}

// The mark that splits all lines into equally many fields, at least two. A mark before a space is punctuation.
function markOf(lines) {
  const isEven = (mark) => {
    const widths = new Set(lines.map((line) => fieldsOf(line, mark)?.length ?? 1));
    return widths.size === 1 && !widths.has(1);
  };
  const count = (mark) => (lines[0] ?? "").split(mark).length;
  const isPunctuation = (mark) => lines.some((line) => line.replace(new RegExp(QUOTED, "g"), "").includes(`${mark} `));
  const even = MARKS.filter(isEven), others = even.filter((mark) => !isPunctuation(mark));
  const fitting = others.length ? others : even;
  if (fitting.length < 2) return fitting[0] ?? MARKS.reduce((most, mark) => (count(mark) > count(most) ? mark : most));
  const shown = fitting.map((mark) => (mark === "\t" ? "a tab" : `"${mark}"`));
  throw new Error(`lines can be split by ${shown.join(" and by ")}; write a first line such as sep=${fitting.at(-1)}`);
}

// Whether quotes occur only around fields of a TSV file, and all fields have them, or some need them.
function hasSpreadsheetQuotes(lines) {
  const quoted = lines.filter((line) => line.includes('"'));
  const isNeeded = (line) => fieldsOf(line, "\t").some((field) => /["\t]/.test(field));
  if (!quoted.every((line) => RECORD.test(line))) return false;
  return quoted.some(isNeeded) || lines.every((line) => ALL_QUOTED.test(line));
}
