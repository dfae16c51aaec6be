// One run as a row of the table. Elements are made once and changed in place, so focus stays.

import {isGiveUp, tail} from "./runs.js";

const SHOWN_CHARS = 280;
const TONES = {valid: "good", repaired: "warn", invalid: "bad", success: "good"};

export function element(name, text = "", classes = "") {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  if (classes) made.className = classes;
  return made;
}

function part(name, role, classes = "") {
  const made = element(name, "", classes);
  made.setAttribute("role", role);
  return made;
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export class Row {
  constructor(run, {cancel, toggled}) {
    this.run = run;
    this.drawn = "";
    this.element = part("tr", "row"); // its display is no table row's, so roles are told
    this.status = element("span", "", "badge");
    this.note = element("p", "", "quiet");
    this.reasoning = element("p", "", "reasoning");
    this.text = element("p");
    this.calls = element("div");
    this.error = element("p", "", "bad");
    this.details = element("details");
    this.title = element("summary", "No attempt yet");
    this.list = element("ol");
    this.details.append(this.title, this.list);
    this.details.addEventListener("toggle", () => toggled(run, this.details.open));
    this.time = part("td", "cell", "time");
    this.button = element("button", "Cancel");
    this.button.type = "button";
    this.button.setAttribute("aria-label", `Cancel run ${run.id}`);
    this.button.addEventListener("click", () => { this.button.disabled = true; cancel(run); });
    const name = part("th", "rowheader");
    name.append(element("div", run.model), element("div", run.id, "id"));
    if (run.key) name.append(element("div", run.key, "quiet"));
    this.#cell(this.status, this.note);
    this.element.append(name);
    this.#cell(this.reasoning, this.text, this.calls, this.error);
    this.#cell(this.details);
    this.element.append(this.time);
    this.#cell(this.button);
  }

  #cell(...content) {
    const made = part("td", "cell");
    made.append(...content);
    this.element.append(made);
  }

  paint(now) {
    const {run} = this;
    setText(this.status, wording(run));
    this.status.className = `badge ${tone(run)}`;
    setText(this.note, run.missed ? `${run.missed} frames missed` : "");
    setText(this.reasoning, this.#part(run.reasoning));
    setText(this.text, this.#part(run.text));
    setText(this.error, run.error);
    const seconds = run.total ?? Math.max(0, now - run.started);
    setText(this.time, `${seconds.toFixed(run.ended ? 2 : 1)} s`);
    this.button.hidden = run.ended > 0 && document.activeElement !== this.button;
    this.button.disabled = run.ended > 0;
    this.#lists();
  }

  #part(text) {
    const part = this.details.open ? text : tail(text, SHOWN_CHARS);
    return part.length < text.length ? `…${part}` : part;
  }

  #lists() {
    const {attempts, calls} = this.run;
    const drawn = JSON.stringify([attempts.map((each) => each.status), calls]);
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    const last = attempts.at(-1);
    if (last) {
      const many = attempts.length > 1 ? `${attempts.length} attempts, last at` : "1 attempt at";
      setText(this.title, `${many} ${last.provider || "no provider"}`);
    }
    this.list.replaceChildren(...attempts.map(attemptItem));
    this.calls.replaceChildren(...calls.map(callLine));
  }
}

function wording(run) {
  if (run.status === "cancelled") return run.error ? "cancelled" : "client gave up";
  if (run.status === "drained") return "client gave up, drained";
  return run.status.replaceAll("_", " ");
}

function tone(run) {
  if (!run.ended) return "";
  return isGiveUp(run.status) ? "warn" : TONES[run.status] || "bad";
}

function attemptItem(attempt) {
  const item = element("li");
  const word = attempt.verdict || attempt.status;
  const shade = attempt.status === "running" ? "" : TONES[word] || "bad";
  const badge = element("span", word.replaceAll("_", " "), `badge ${isGiveUp(word) ? "warn" : shade}`);
  const facts = [attempt.provider, attempt.model].filter(Boolean).join(" · ");
  item.append(badge, ` ${facts}`);
  const marks = [attempt.feedback && "with feedback", attempt.constrained && "constrained",
    ...(attempt.repairs || [])].filter(Boolean);
  if (marks.length) item.append(` (${marks.join(", ")})`);
  for (const name of attempt.calls || []) item.append(" ", element("span", name, `call ${shade}`));
  const why = [attempt.category, attempt.reason].filter(Boolean).join(": ");
  if (why) item.append(element("p", why));
  return item;
}

function callLine(call) {
  const line = element("div");
  const said = `${call.name}(${tail(call.arguments, SHOWN_CHARS)})`;
  line.append(element("span", said, `call ${TONES[call.verdict] || ""}`));
  if (call.verdict) line.append(" ", element("span", call.verdict, "quiet"));
  return line;
}
