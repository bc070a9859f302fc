// Requests to the server. `key` gives the key that the user typed.

export const RETRY_SECONDS = 2;

export async function ask(path, body, signal) {
  const headers = { "Content-Type": "application/json" }, key = document.getElementById("api_key")?.value;
  if (key) headers.Authorization = `Bearer ${key}`;
  const answer = await fetch(path, body ? { method: "POST", headers, body: JSON.stringify(body), signal } : { headers, signal });
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => ({}));
  throw Object.assign(new Error(told.error?.message ?? `error ${answer.status}`), {
    status: answer.status, field: told.error?.field, after: Number(answer.headers.get("Retry-After")),
  });
}

// The objects of a stream of JSON lines.
export async function* objects(stream) {
  let rest = "";
  for await (const chunk of stream.pipeThrough(new TextDecoderStream())) {
    const whole = (rest + chunk).split("\n");
    rest = whole.pop();
    yield* whole.filter(Boolean).map((line) => JSON.parse(line));
  }
}

export function element(name, options = {}, ...children) {
  const made = Object.assign(document.createElement(name), options);
  made.append(...children);
  return made;
}

// Offers text as a file to save.
export function download(name, text, type = "text/plain") {
  const url = URL.createObjectURL(new Blob([text], { type }));
  element("a", { href: url, download: name }).click();
  URL.revokeObjectURL(url);
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
