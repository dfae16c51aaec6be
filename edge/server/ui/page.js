// The page: frames come in as they like, the document changes at most once an animation frame.
// Everything that runs say is set as text, never as HTML.

import {call, Mirror, storeKey} from "./gateway.js";
import {Row, setText, element} from "./rows.js";
import {Runs} from "./runs.js";

const at = (id) => document.getElementById(id);
const HEALTH = {
  closed: ["good", "well"], open: ["bad", "left alone"],
  probing: ["warn", "tried again"], paused: ["warn", "paused"],
};
const SHARE = 4; // of the time, one part in so many is for painting
const runs = new Runs();
const rows = new Map();
let held = false;
let painting = false;
let restUntil = 0; // when the next frame may be painted, on the page's clock
let offset = 0; // the gateway's clock minus ours, in seconds
let stale = false; // something was missed: ask the runs API
const now = () => Date.now() / 1000 + offset;

// Painting leaves most of the time to whoever clicks or reads: the longer a frame took, layout and
// all, the later the next one comes.
function paintSoon() {
  if (painting) return;
  painting = true;
  setTimeout(() => requestAnimationFrame(() => {
    const began = performance.now();
    painting = false;
    paint();
    setTimeout(() => { restUntil = began + SHARE * (performance.now() - began); });
  }), Math.max(0, restUntil - performance.now()));
}

function paint() {
  const {finished, gaveUp, failed, hidden, missed} = runs.counts;
  const told = `${runs.running.size} running, ${finished} finished, ${failed} failed, ${gaveUp} gave up`;
  setText(at("counts"), told + (missed ? `, ${missed} frames missed` : ""));
  setText(at("hidden"), hidden ? `${hidden} more runs came too fast to be shown.` : "");
  if (held) return;
  for (const [id, row] of rows) {
    if (runs.rows.get(id) === row.run) continue;
    row.element.remove();
    rows.delete(id);
  }
  const fresh = [];
  for (const run of runs.changed) {
    let row = rows.get(run.id);
    if (!row) {
      row = new Row(run, {cancel, toggled});
      rows.set(run.id, row);
      fresh.unshift(row.element);
    }
    row.paint(now());
  }
  runs.changed.clear();
  if (fresh.length) at("runs").prepend(...fresh);
  at("empty").hidden = rows.size > 0;
}

async function cancel(run) {
  const {status, body} = await call(`/v1/runs/${encodeURIComponent(run.id)}`, "DELETE");
  if (status !== 200) setText(at("connection"), body.error?.message || `Not cancelled: ${status}`);
}

function toggled(run, isOpen) {
  if (isOpen) runs.open.add(run.id);
  else runs.open.delete(run.id);
  runs.changed.add(run);
  paintSoon();
}

async function reconcile() {
  stale = false;
  const {status, body} = await call("/v1/runs?limit=1000");
  if (status === 200) runs.reconcile(body.data, now(), !body.has_more);
  paintSoon();
}

async function showProviders() {
  const {status, body} = await call("/v1/providers");
  const list = status === 200 ? body.data : fromAttempts();
  at("no-providers").hidden = list.length > 0;
  at("providers").replaceChildren(...list.map((each) => {
    const [tone, word] = HEALTH[each.health] || ["", "–"];
    const told = element("span", word, tone && `badge ${tone}`);
    const line = element("tr");
    const name = element("th", each.name);
    name.scope = "row";
    const sound = each.call_validity;
    const cap = each.max_concurrent;
    line.append(name, cell(told), cell(cap ? `${each.busy} of ${cap}` : `${each.busy} taken`),
      cell(each.waiting ?? "–"), cell(sound == null ? "–" : `${Math.round(100 * sound)} %`));
    return line;
  }));
}

function cell(content) {
  const made = element("td");
  made.append(content);
  return made;
}

// Where the gateway tells nothing of its providers: what the attempts on the page say of them.
function fromAttempts() {
  const found = new Map();
  for (const run of runs.rows.values()) {
    for (const {provider: name, status, verdict, calls} of run.attempts) {
      if (!name) continue;
      const one = found.get(name) || {name, busy: 0, sound: 0, judged: 0};
      found.set(name, one);
      one.busy += status === "running" && !run.ended;
      if (verdict === "invalid" || (verdict && calls?.length)) {
        one.judged += 1;
        one.sound += verdict !== "invalid";
        one.call_validity = one.sound / one.judged;
      }
    }
  }
  return [...found.values()];
}

const mirror = new Mirror({
  refused() {
    setText(at("connection"), "A key is needed");
    setText(at("refused"), at("key").value ? "This key is not valid here" : "");
    at("ask").hidden = false;
    at("key").focus();
  },
  opened() {
    at("ask").hidden = true;
    at("key").value = "";
    setText(at("connection"), "Live");
    reconcile().catch(() => {});
    showProviders().catch(() => {});
  },
  frame(frame) {
    offset = frame.at - Date.now() / 1000;
    stale ||= frame.type === "gap" && !frame.run_id;
    runs.take(frame);
    paintSoon();
  },
  closed(text) { setText(at("connection"), text); },
});

at("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  storeKey(at("key").value.trim());
  mirror.connect();
});

at("hold").addEventListener("click", () => {
  held = !held;
  at("hold").setAttribute("aria-pressed", held);
  paintSoon();
});

setInterval(() => {
  if (document.hidden || !at("ask").hidden) return;
  for (const run of runs.rows.values()) if (!run.ended) runs.changed.add(run);
  paintSoon();
}, 500);
setInterval(() => {
  if (document.hidden || !at("ask").hidden) return;
  if (stale) reconcile().catch(() => {});
  showProviders().catch(() => {});
}, 2000);
// Rarely, so that a screen reader has time to say it.
setInterval(() => setText(at("summary"), at("counts").textContent), 5000);

mirror.connect();
