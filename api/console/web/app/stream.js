// The streams that all tabs share, which run in the shared worker (worker.js): Stream, of changes, and Logs. new Stream(tell, away, counts) begins; away is called when there is nobody where the server was, and tell gets
//   {type: 'state', state}         connecting, live, stale (the node hears nothing of the others), reconnecting, signedout
//   {type: 'changes', items}       at most 4 times a second: [{machine, key, item}], item absent for what was deleted; the newest of each entity
//   {type: 'reset'}                changes were missed: load again what is shown
// It begins at the revisions of counts, the items of an answer of /v1/counts, or else of now, so that no snapshot of everything is sent, and goes on behind the last id after any break. What was loaded before the
// revisions of now were asked for may be older than those: that is a reset, too. Silence is one, too: a host that has lost its power ends no connection.

const every = 250; // ms between two messages to the pages
const silence = 25000; // ms after which there is nobody: a server that is there, and says so, does every 10 s

const placeOf = (counts) => counts.filter((c) => c.revision).map((c) => `${c.machine}:${c.revision}`).join(',');
const watch = (after) => '/v1/watch?namespace=*' + (after ? '&after=' + encodeURIComponent(after) : '');

export class Stream {
  constructor(tell, away, counts) {
    this.tell = tell;
    this.away = away;
    this.given = counts && placeOf(counts);
    this.waiting = new Map();
    this.after = '';
    this.backoff = 500;
    this.state = '';
    this.source = null;
    this.open();
  }

  set(state) {
    if (this.closed || state === this.state) return;
    this.state = state;
    this.tell({ type: 'state', state });
  }

  close() {
    this.closed = true;
    this.stop();
    clearTimeout(this.flushing);
  }

  /** stop ends what was begun: an answer that is still to come counts no more. */
  stop() {
    clearTimeout(this.timer);
    clearTimeout(this.silent);
    this.run = undefined;
    this.source?.close();
    this.source = null;
  }

  /** begins finds where the stream begins, at the revision of each machine, or goes on, if the server takes it back there; null for who has no session. */
  async begins() {
    const ask = (path, method) => fetch(path, { method, credentials: 'same-origin', signal: AbortSignal.timeout(silence) });
    let res;
    if (this.after) {
      res = await ask(watch(this.after), 'HEAD');
      if (res.ok) return this.after;
      if ([400, 414, 422, 431].includes(res.status)) this.after = ''; // also of a proxy, for which it is too long; an EventSource would not say why it does not open
    }
    if (!this.after) res = await ask('/v1/counts');
    if (res.status === 401) return null;
    if (!res.ok) throw new Error('HTTP ' + res.status);
    return placeOf((await res.json()).items);
  }

  async open() {
    if (this.closed) return;
    this.stop();
    this.set(this.state ? 'reconnecting' : 'connecting');
    const run = {};
    this.run = run;
    const { given } = this;
    this.given = undefined;
    const after = given ?? await this.begins().catch(() => undefined);
    if (this.run !== run) return; // it was closed, or opened once more, while it was asked
    if (after === undefined) { this.again(); return; }
    if (after === null) { this.set('signedout'); this.later(3000); return; }
    if (!this.after && given === undefined) this.tell({ type: 'reset' }); // not before: what is loaded now is not older than where the stream begins
    this.after = after;
    const source = new EventSource(watch(after));
    this.source = source;
    let due = true; // whether something is to be heard: that it opens, and more from a server that has said that it is there, which one of an older version does not
    const heard = () => {
      clearTimeout(this.silent);
      if (due) this.silent = setTimeout(() => { this.restart(false); this.away(); }, silence);
    };
    heard();
    source.onopen = () => { this.backoff = 500; due = false; heard(); this.set('live'); };
    source.onerror = () => this.source === source && this.restart(false);
    const on = (name, f) => source.addEventListener(name, (e) => {
      if (this.source !== source) return;
      heard();
      if (e.lastEventId) this.after = e.lastEventId;
      f(JSON.parse(e.data));
    });
    on('snapshot', (s) => { for (const item of s.items) this.add(s.machine, item); });
    on('entity', (e) => this.add(e.machine, e));
    on('parked', (p) => this.add(p.machine, p.item));
    on('deleted', (d) => this.put(d.machine, d.key, undefined));
    on('stale', ({ staleSeconds }) => { due = true; heard(); this.set(staleSeconds > 0 ? 'stale' : 'live'); });
    on('reset', () => this.restart(true));
    on('end', () => this.restart(false));
  }

  /** restart opens the stream again, from now on if what it had is lost. */
  restart(lost) {
    this.stop();
    if (lost) this.after = '';
    this.again();
  }

  again() {
    this.set('reconnecting');
    this.later(this.backoff);
    this.backoff = Math.min(this.backoff * 1.6, 5000);
  }

  later(ms) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.open(), ms);
  }

  add(machine, item) {
    this.put(machine, [item.namespace, item.parent, item.id].filter(Boolean).join('.'), item);
  }

  put(machine, key, item) {
    if (this.closed) return;
    this.waiting.set(machine + ' ' + key, { machine, key, item });
    this.flushing ??= setTimeout(() => {
      this.flushing = undefined;
      const items = [...this.waiting.values()];
      this.waiting.clear();
      this.tell({ type: 'changes', items });
    }, every);
  }
}

const together = 100; // ms of log lines that are told at once
const mostLogs = 64; // that the server sends over one connection

/**
 * Logs are the logs of tasks that somebody follows, over one connection. tell gets {type: 'log', key, lines} with lines [{seq, at, attempt, line}], from the first that is kept on for who is new: who
 * knows them leaves out what it has; {type: 'log', key, state}: refused, after which it is not followed any more, or crowded, while there are more than one connection may have; and
 * {type: 'logs', state}: live or reconnecting.
 */
export class Logs {
  constructor(tell) {
    this.tell = tell;
    this.at = new Map(); // key → the last line that was told; who was followed last is the last
    this.lines = new Map();
  }

  /** follow begins with a log, again for who is new. What was read and not told is read again: told to who is new, it would be taken for the beginning. */
  follow(key) {
    this.close();
    this.lines.delete(key);
    this.at.delete(key);
    this.at.set(key, 0);
    this.later(20); // several tabs at once are one change
  }

  leave(key) {
    const crowded = this.at.size > mostLogs;
    this.at.delete(key);
    if (!this.at.size) this.close();
    else if (crowded) this.later(20);
  }

  close() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = undefined;
  }

  later(ms) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.open(), ms);
  }

  open() {
    this.close();
    if (!this.at.size) return;
    const all = [...this.at];
    const source = new EventSource('/v1/logs?' + new URLSearchParams(all.slice(-mostLogs).map(([key, seq]) => ['task', seq ? key + ':' + seq : key])));
    this.source = source;
    source.onopen = () => {
      this.tell({ type: 'logs', state: 'live' });
      for (const [key] of all.slice(0, -mostLogs)) this.tell({ type: 'log', key, state: 'crowded' });
    };
    const lost = () => this.source === source && this.lost();
    source.onerror = () => (source.readyState === EventSource.CLOSED ? this.sift(source).then(lost) : lost());
    source.addEventListener('end', lost);
    source.addEventListener('log', (e) => this.source === source && this.take(Number(e.lastEventId), JSON.parse(e.data)));
  }

  lost() {
    this.close();
    this.tell({ type: 'logs', state: 'reconnecting' });
    this.later(2000);
  }

  take(seq, { task, ...line }) {
    if (!this.at.has(task)) return;
    this.at.set(task, Math.max(seq, this.at.get(task)));
    if (!this.lines.has(task)) this.lines.set(task, []);
    this.lines.get(task).push({ seq, ...line });
    this.flushing ??= setTimeout(() => {
      this.flushing = undefined;
      for (const [key, lines] of this.lines) this.tell({ type: 'log', key, lines });
      this.lines.clear();
    }, together);
  }

  /** sift asks for each log by itself, after an answer that was no stream: one that the server refuses would keep all others from being followed. */
  async sift(source) {
    for (const key of [...this.at.keys()].slice(-mostLogs)) {
      const stop = new AbortController();
      const status = await fetch('/v1/logs?' + new URLSearchParams({ task: key }), { credentials: 'same-origin', signal: stop.signal }).then((res) => res.status, () => 0);
      stop.abort();
      if (this.source !== source) return; // somebody has begun anew
      if ([403, 404, 422].includes(status)) {
        this.at.delete(key);
        this.tell({ type: 'log', key, state: 'refused' });
      } else if (status !== 200) return; // it is not about this log
    }
  }
}
