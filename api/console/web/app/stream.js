// The one stream of changes, which runs in the shared worker (worker.js), or in the page where there is none (live.js). new Stream(tell) begins; tell gets
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
    const res = await fetch('/v1/machines', { credentials: 'same-origin' });
    if (res.status === 401) return null;
    if (!res.ok) throw new Error('HTTP ' + res.status);
    const { items } = await res.json();
    const places = await Promise.all(items.map(async (m) => {
      const res = await fetch(`/v1/machines/${encodeURIComponent(m.name)}/counts`, { credentials: 'same-origin' });
      if (!res.ok) throw new Error('HTTP ' + res.status);
      const { revision } = await res.json();
      return revision ? `${m.name}:${revision}` : '';
    }));
    return places.filter(Boolean).join(',');
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

