// Requests to the server. `key` gives the key that the user typed.

export const RETRY_SECONDS = 2;

// The error of a connection that ended; what is thrown when a request is given up stays as it is.
function lost(error) {
  if (error.name === "AbortError") throw error;
  throw Object.assign(new Error("The server does not answer."), { isLost: true });
}

// A key in the header, where it has any letters: its bytes in UTF-8, each as a character.
const bearer = (key) => `Bearer ${String.fromCharCode(...new TextEncoder().encode(key))}`;

// Half a character, such as one that was deleted in part, is no text in UTF-8.
const wellFormed = (name, value) => (typeof value === "string" ? value.toWellFormed() : value);

export async function ask(path, body, signal) {
  const headers = { "Content-Type": "application/json" }, key = document.getElementById("api_key")?.value.trim();
  if (key) headers.Authorization = bearer(key);
  const sent = body && { method: "POST", body: JSON.stringify(body, wellFormed) };
  const answer = await fetch(path, { headers, signal, ...sent }).catch(lost);
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => ({}));
  throw Object.assign(new Error(told.error?.message ?? `error ${answer.status}`), {
    ...told.error, status: answer.status, after: Number(answer.headers.get("Retry-After")),
  });
}

export const askJson = async (...request) => (await ask(...request)).json().catch(lost);

// The objects of a stream of JSON lines, up to one with `done`.
async function* objects(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read().catch(lost);
      if (done) lost(new Error());
      const whole = (rest + value).split("\n");
      rest = whole.pop();
      for (const line of whole.filter(Boolean).map((one) => JSON.parse(one))) {
        if (line.error) throw Object.assign(new Error(line.error.message), line.error);
        yield line;
        if (line.done) return;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/* Yields the lines of a translation that is streamed. Where the server has no details for it, it is asked for without
   them: a direction in two passes has none, and the weights that they need may be gone (`model`), which is a flag. */
export async function* streamed(body, signal, flags = []) {
  let isBegun = false;
  try {
    const answer = await ask("/v1/translate", body, signal);
    for await (const line of objects(answer.body)) {
      isBegun = true;
      yield line.done ? line : { ...line, flags: [...line.flags, ...flags] };
    }
  } catch (error) {
    const isFailed = error.code === "model";
    if (isBegun || !body.details.length || !(isFailed || error.field === "details")) throw error;
    yield* streamed({ ...body, details: [] }, signal, isFailed ? ["unaligned"] : []);
  }
}

export function element(name, options = {}, ...children) {
  const made = Object.assign(document.createElement(name), options);
  made.append(...children);
  return made;
}

// What was typed survives a reload of the tab, and is gone with it.
export const kept = {
  get: (name, otherwise) => {
    try {
      return JSON.parse(sessionStorage.getItem(name)) ?? otherwise;
    } catch {
      return otherwise;
    }
  },
  set: (name, value) => {
    try {
      sessionStorage.setItem(name, JSON.stringify(value));
    } catch { /* the browser keeps nothing: the page works without */ }
  },
};
