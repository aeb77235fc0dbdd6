// The streams that all tabs share, which run in the shared worker (worker.js), or in the page where there is none (live.js): Stream, of changes, and Logs. new Stream(tell) begins; tell gets
//   {type: 'state', state}         connecting, live, reconnecting, signedout
//   {type: 'changes', items}       at most 4 times a second: [{machine, key, item}], item absent for what was deleted; the newest of each entity
//   {type: 'reset'}                changes were missed: load again what is shown
// It begins at the revisions of now, so that no snapshot of everything is sent, and goes on behind the last id after any break.

const every = 250; // ms between two messages to the pages

export class Stream {
  constructor(tell) {
    this.tell = tell;
    this.waiting = new Map();
    this.after = '';
    this.backoff = 500;
    this.state = '';
    this.source = null;
    this.open();
  }

  set(state) {
    if (state === this.state) return;
    this.state = state;
    this.tell({ type: 'state', state });
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    this.source?.close();
  }

  /** begins finds where the stream begins: at the revision of each machine. */
  async begins() {
    const res = await fetch('/v1/counts', { credentials: 'same-origin' });
    if (res.status === 401) return null;
    if (!res.ok) throw new Error('HTTP ' + res.status);
    return (await res.json()).items.filter((c) => c.revision).map((c) => `${c.machine}:${c.revision}`).join(',');
  }

  async open() {
    if (this.closed) return;
    this.set(this.state ? 'reconnecting' : 'connecting');
    try {
      if (!this.after) {
        const after = await this.begins();
        if (after === null) { this.set('signedout'); this.later(3000); return; }
        this.after = after;
      } else if ((await fetch('/v1/session', { credentials: 'same-origin' }).then((r) => r.json())).role === undefined) {
        this.set('signedout');
        this.later(3000);
        return;
      }
    } catch {
      this.again();
      return;
    }
    const source = new EventSource('/v1/watch?namespace=*' + (this.after ? '&after=' + encodeURIComponent(this.after) : ''));
    this.source = source;
    source.onopen = () => { this.backoff = 500; this.set('live'); };
    source.onerror = () => { source.close(); if (this.source === source) this.again(); };
    const on = (name, f) => source.addEventListener(name, (e) => {
      if (e.lastEventId) this.after = e.lastEventId;
      f(JSON.parse(e.data));
    });
    on('snapshot', (s) => { for (const item of s.items) this.add(s.machine, item); });
    on('entity', (e) => this.add(e.machine, e));
    on('parked', (p) => this.add(p.machine, p.item));
    on('deleted', (d) => this.put(d.machine, d.key, undefined));
    on('stale', () => {});
    on('reset', () => this.restart(true));
    on('end', () => this.restart(false));
  }

  /** restart opens the stream again, from now on if what it had is lost. */
  restart(lost) {
    this.source?.close();
    this.source = null;
    if (lost) { this.after = ''; this.tell({ type: 'reset' }); }
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

/**
 * Logs are the logs of tasks that somebody follows, over one connection. tell gets {type: 'log', key, lines} with lines [{seq, at, attempt, line}], from the first that is kept on for who is new: who
 * knows them leaves out what it has; and {type: 'logs', state}: live or reconnecting.
 */
export class Logs {
  constructor(tell) {
    this.tell = tell;
    this.at = new Map(); // key → the last line that was told
    this.lines = new Map();
  }

  /** follow begins with a log, again for who is new. */
  follow(key) {
    this.at.set(key, 0);
    this.later(20); // several tabs at once are one change
  }

  leave(key) {
    this.at.delete(key);
    if (!this.at.size) this.close();
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
    this.source?.close();
    if (!this.at.size) return;
    const source = new EventSource('/v1/logs?' + new URLSearchParams([...this.at].map(([key, seq]) => ['task', seq ? key + ':' + seq : key])));
    this.source = source;
    source.onopen = () => this.tell({ type: 'logs', state: 'live' });
    const lost = () => {
      source.close();
      if (this.source !== source) return;
      this.tell({ type: 'logs', state: 'reconnecting' });
      this.later(2000);
    };
    source.onerror = lost;
    source.addEventListener('end', lost);
    source.addEventListener('log', (e) => {
      const { task, ...line } = JSON.parse(e.data);
      if (!this.at.has(task)) return;
      const seq = Number(e.lastEventId);
      this.at.set(task, Math.max(seq, this.at.get(task)));
      if (!this.lines.has(task)) this.lines.set(task, []);
      this.lines.get(task).push({ seq, ...line });
      this.flushing ??= setTimeout(() => {
        this.flushing = undefined;
        for (const [key, lines] of this.lines) this.tell({ type: 'log', key, lines });
        this.lines.clear();
      }, together);
    });
  }
}
