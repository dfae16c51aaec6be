// What the frames of a mirror say, folded into one state a run. Pure: no DOM, no clock, no network.

export const KEPT_CHARS = 4000;
export const MAX_ROWS = 200;
const LINGER_S = 3; // an ended run stays at least so long, that it can be read

export class Runs {
  constructor() {
    this.rows = new Map(); // the runs that are shown, oldest first
    this.running = new Set(); // all that run, shown or not
    this.counts = {finished: 0, gaveUp: 0, failed: 0, hidden: 0, missed: 0};
    this.changed = new Set();
    this.open = new Set(); // runs whose attempts somebody reads
  }

  take(frame) {
    const {run_id: id, type} = frame;
    if (type === "gap") {
      this.counts.missed += frame.missed;
      if (!id) for (const run of this.rows.values()) run.holed = true; // whose they are is not told
    }
    if (!id) return;
    if (type === "run.started" && !this.rows.has(id) && !this.running.has(id)) {
      this.running.add(id);
      this.#place(newRun(id, frame.at, frame), frame.at);
    } else if (type === "run.finished" && this.running.delete(id)) this.#count(frame.status);
    const run = this.rows.get(id);
    if (run && fold(run, frame)) this.changed.add(run);
  }

  // The runs API is the truth: of the runs that the page came too late for, or missed the end of.
  reconcile(list, now, isAll) {
    const listed = new Map(list.map((row) => [row.id, row]));
    for (const row of [...list].reverse()) {
      const known = this.rows.has(row.id) || this.running.has(row.id);
      if (!known && this.rows.size < MAX_ROWS) this.#place(newRun(row.id, row.created, row), now);
      if (!known && row.status === "running") this.running.add(row.id);
      const run = this.rows.get(row.id);
      if (run && !run.ended) {
        restate(run, row, now);
        this.changed.add(run);
      }
    }
    for (const id of this.running) {
      const row = listed.get(id);
      if (row ? row.status === "running" : !isAll) continue;
      this.running.delete(id);
      if (row) this.#count(row.status);
      const run = this.rows.get(id);
      if (run && !row) Object.assign(run, {status: "unknown", ended: now});
      if (run) this.changed.add(run);
    }
  }

  #count(status) {
    this.counts.finished += 1;
    if (isGiveUp(status)) this.counts.gaveUp += 1;
    else if (status !== "success") this.counts.failed += 1;
  }

  #place(run, now) {
    if (this.rows.size >= MAX_ROWS) {
      let least = null;
      for (const row of this.rows.values()) {
        if (row.ended && now - row.ended > LINGER_S && !this.open.has(row.id)) { least = row; break; }
      }
      if (!least) { this.counts.hidden += 1; return; }
      this.rows.delete(least.id);
      this.changed.delete(least);
    }
    this.rows.set(run.id, run);
    this.changed.add(run);
  }
}

export const isGiveUp = (status) => status === "cancelled" || status === "drained";

export function newRun(id, at, facts) {
  return {
    id, started: at, ended: 0, seq: 0, missed: 0, holed: false, model: facts.model, key: facts.key || "",
    status: "running", error: "", text: "", reasoning: "", calls: [], attempts: [], total: null,
  };
}

// True where the frame says something new.
export function fold(run, frame) {
  if (frame.seq && frame.seq <= run.seq) return false;
  if (frame.seq) {
    // A number may also be left out because this key is not told what is told of traced runs.
    if (frame.type === "gap") run.missed += Math.min(frame.missed, frame.seq - run.seq);
    else if (run.holed) run.missed += frame.seq - run.seq - 1;
    run.holed = false;
    run.seq = frame.seq;
  }
  switch (frame.type) {
    case "attempt.started": setAttempt(run, {...frame, status: "running"}); break;
    case "attempt.failed": setAttempt(run, frame); break;
    case "chunk": takeChunk(run, frame.chunk); break;
    case "answer": takeAnswer(run, frame.answer); break;
    case "run.finished":
      for (const attempt of frame.attempts) setAttempt(run, attempt);
      run.status = frame.status;
      run.error ||= frame.error_type || "";
      run.total = frame.timings.total_s;
      run.ended = frame.at;
      judge(run);
  }
  return true;
}

function restate(run, row, now) {
  for (const attempt of row.attempts) setAttempt(run, attempt);
  run.status = row.status;
  if (row.status === "running") return;
  Object.assign(run, {ended: Math.min(now, row.created + row.age_s), total: row.age_s});
  judge(run);
}

function setAttempt(run, attempt) {
  const at = run.attempts.findIndex((each) => each.attempt === attempt.attempt);
  if (at < 0) run.attempts.push(attempt);
  else run.attempts[at] = {...run.attempts[at], ...attempt};
}

function takeChunk(run, chunk) {
  if (!chunk) return; // what passes through may be any JSON
  if (chunk.error) run.error = chunk.error.message || chunk.error.type;
  for (const choice of chunk.choices || []) takeMessage(run, choice.delta || {});
}

function takeAnswer(run, answer) {
  if (answer?.error) run.error = answer.error.message || answer.error.type;
  for (const choice of answer?.choices || []) takeMessage(run, choice.message || {});
}

function takeMessage(run, said) {
  const thought = said.reasoning_content ?? said.reasoning;
  if (typeof thought === "string") run.reasoning = tail(run.reasoning + thought, KEPT_CHARS);
  if (typeof said.content === "string") run.text = tail(run.text + said.content, KEPT_CHARS);
  for (const call of said.tool_calls || []) {
    const {name = "", arguments: args = ""} = call.function || {};
    const last = run.calls.at(-1);
    if (last && !call.id) last.arguments = tail(last.arguments + args, KEPT_CHARS);
    else run.calls.push({name, arguments: tail(args, KEPT_CHARS), verdict: null});
  }
}

// The calls that the client got are those of the last attempt, and share its verdict.
function judge(run) {
  const verdict = run.attempts.at(-1)?.verdict ?? null;
  for (const call of run.calls) call.verdict = verdict;
}

export function tail(text, chars) {
  if (text.length <= chars) return text;
  const cut = text.slice(-chars);
  return /^[\uDC00-\uDFFF]/.test(cut) ? cut.slice(1) : cut; // not half a character
}
