// The gateway as the page talks to it: calls with the key, and a mirror that comes back.

const KEY = "edge.key";
const TYPES = "run.started,attempt.started,attempt.failed,chunk,answer,run.finished";

export const storedKey = () => sessionStorage.getItem(KEY) || "";
export const storeKey = (key) => sessionStorage.setItem(KEY, key);

export async function call(path, method = "GET") {
  const key = storedKey();
  const headers = key ? {authorization: `Bearer ${key}`} : {};
  const answer = await fetch(path, {method, headers, cache: "no-store"});
  const body = await answer.json().catch(() => ({}));
  return {status: answer.status, body};
}

// Follows all runs; `on` has refused(), opened(list), frame(frame), closed(text).
export class Mirror {
  #wait = 500;
  #timer = 0;

  constructor(on) { this.on = on; }

  async connect() {
    clearTimeout(this.#timer);
    let listed;
    try {
      listed = await call("/v1/runs?limit=1");
    } catch {
      return this.#later();
    }
    // A browser does not tell why a handshake was refused, so a key is tried here first.
    if (listed.status === 401) return this.on.refused();
    if (listed.status !== 200) return this.#later();
    const address = new URL(`/v1/mirror?batch=true&types=${TYPES}`, location.href);
    address.protocol = address.protocol.replace("http", "ws");
    const socket = new WebSocket(address, ["edge.mirror", ...keyProtocol()]);
    socket.onopen = () => { this.#wait = 500; this.on.opened(); };
    // Each message costs a browser more than what is in it: frames come in batches.
    socket.onmessage = (event) => JSON.parse(event.data).forEach((frame) => this.on.frame(frame));
    socket.onclose = (event) => {
      if (event.code === 1008) this.on.closed(event.reason || "This key may not follow runs");
      else this.#later();
    };
  }

  #later() {
    const wait = this.#wait * (0.75 + Math.random() / 2);
    this.#wait = Math.min(this.#wait * 2, 15000);
    this.on.closed(`Not connected; trying again in ${Math.ceil(wait / 1000)} s`);
    this.#timer = setTimeout(() => this.connect(), wait);
  }
}

// A browser sets no headers on a WebSocket; the key travels as one of the protocols it offers.
function keyProtocol() {
  const bytes = new TextEncoder().encode(storedKey());
  const text = btoa(String.fromCharCode(...bytes));
  const safe = text.replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
  return safe ? [`edge.key.${safe}`] : [];
}
