// Files that are opened and saved, and the clipboard.

import { element } from "./api.js";

const UTF16 = new Set(["255,254", "254,255"]); // byte order marks

// The text of a file. What is not text in UTF-8 is refused: its letters would be wrong.
export async function textOf(file) {
  const bytes = new Uint8Array(await file.arrayBuffer()), remedy = "save it as UTF-8 text";
  if (UTF16.has(String(bytes.subarray(0, 2)))) throw new Error(`${file.name} is UTF-16; ${remedy}.`);
  const line = lineThat(bytes, (part) => part.includes(0));
  if (line) throw new Error(`${file.name}: line ${line} has zero bytes; ${remedy}.`);
  if (isUtf8(bytes)) return new TextDecoder().decode(bytes);
  throw new Error(`${file.name}: line ${lineThat(bytes, (part) => !isUtf8(part))} is not UTF-8; ${remedy}.`);
}

function isUtf8(bytes) {
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    return true;
  } catch {
    return false;
  }
}

// The number of the first line that is so, or 0. No character in UTF-8 has the byte of a line end in it.
function lineThat(bytes, isSo) {
  for (let line = 1, begin = 0; begin < bytes.length; line++) {
    const end = bytes.indexOf(10, begin), after = end < 0 ? bytes.length : end + 1;
    if (isSo(bytes.subarray(begin, after))) return line;
    begin = after;
  }
  return 0;
}

// Offers text as a file to save.
export function download(name, text, type = "text/plain") {
  const url = URL.createObjectURL(new Blob([text], { type }));
  element("a", { href: url, download: name }).click();
  URL.revokeObjectURL(url);
}

// Whether text is now in the clipboard. At an address with http:// of another machine there is the old command alone.
export async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const box = element("textarea", { value: text, readOnly: true }), focus = document.activeElement;
    document.body.append(box);
    box.select();
    const isCopied = document.execCommand("copy");
    box.remove();
    focus?.focus();
    return isCopied;
  }
}
