// How an entity came to be what it is. useTimeline(path, namespace, seq) reads its newest events, back to the one that seq names, and goes on behind the last one: {items, earlier, error, more, back}; back reads earlier
// ones, which there are if earlier is true. Timeline shows them, the newest first: what was asked for and
// by whom, what it led to, what was done and tried; bars for how long each lasted, gaps without anything as one line.
import { html, classes, memo, useCallback, useEffect, useMemo, useRef, useState } from '../app/base.js';
import { get, session } from '../app/api.js';
import { Icon } from '../app/icons.js';
import { Copy, Failure, Json, LinkOut, Loading, State } from '../app/parts.js';
import { passes, soon } from '../app/store.js';
import { duration, Time } from '../app/time.js';

const page = 100; // events that are read at first, and each time that earlier ones are asked for
const most = 5000; // events to which it goes back for the one that its address names

export function useTimeline(path, namespace, seq) {
  const [line, setLine] = useState({});
  const run = useRef({});
  const read = useCallback(async (r, query) => {
    const { data: { items, nextCursor } } = await get(path + '/events', { namespace, limit: page, ...query });
    if (run.current !== r) return false;
    if ('before' in query) {
      r.all = [...items.reverse(), ...r.all];
      r.whole = !nextCursor;
      r.keep = Math.max(page, r.all.length);
    } else if (items.length) {
      r.all = [...r.all, ...items];
      if (r.all.length > r.keep) { r.all = r.all.slice(-r.keep); r.whole = false; } // as many as were asked for
    }
    setLine({ items: r.all, earlier: !r.whole });
    return !!nextCursor;
  }, [path, namespace]);
  const more = useCallback(async (back) => {
    const r = run.current;
    r.back ||= back === true;
    if (r.busy) { r.again = true; return; }
    r.busy = true;
    clearTimeout(r.timer); // this is the next try
    try {
      do {
        r.again = false;
        if (!r.all.length) await read(r, { before: 0 });
        else while (await read(r, { after: r.all[r.all.length - 1].seq, limit: 500 }));
        const earlier = (limit) => read(r, { before: r.all[0].previous + 1, limit });
        if (r.back && !r.whole) await earlier(2 * page);
        r.back = false;
        while (seq && run.current === r && !r.whole && r.all[0].seq > seq && r.all.length < most) await earlier(500);
      } while (r.again);
    } catch (error) {
      if (run.current === r) {
        setLine((l) => ({ ...l, error }));
        if (passes(error)) r.timer = setTimeout(() => run.current === r && more(), soon);
      }
    }
    r.busy = false;
  }, [read, seq]);
  useEffect(() => {
    run.current = { all: [] };
    setLine({});
    more();
    return () => { run.current = {}; };
  }, [path, namespace]);
  return { ...line, more, back: () => more(true) };
}

/** steps puts together the events of one decision: they have the same version and command. */
function steps(items) {
  const all = [];
  for (const e of items) {
    const last = all[all.length - 1];
    if (last && last.version === e.version && last.commandId === e.commandId && last.command === e.command) last.events.push(e);
    else all.push({ version: e.version, command: e.command, commandId: e.commandId, actor: e.actor, reason: e.reason, from: e.from, to: e.to, time: e.time, seq: e.seq, events: [e] });
  }
  all.forEach((s, i) => {
    const next = all[i + 1];
    s.lasts = next ? Date.parse(next.time) - Date.parse(s.time) : undefined;
    s.refused = s.events.some((e) => e.type === 'command.refused');
    s.failed = s.events.some((e) => e.class === 'error');
  });
  return all;
}

export function Timeline({ m, line, seq }) {
  const all = useMemo(() => steps(line.items || []).reverse(), [line.items]);
  if (!line.items) return html`<${Failure} error=${line.error} small />${!line.error && html`<${Loading} />`}`;
  if (!all.length) return html`<p class="faint pad">No events are kept.</p>`;
  const longest = 2 ** Math.ceil(Math.log2(all.reduce((most, s) => Math.max(most, s.lasts || 0), 1))); // rounded, so that bars seldom change
  return html`<${Failure} error=${line.error} small />
    <ol class="timeline">${all.flatMap((s, i) => [ // one list of elements with keys, so that what is open stays when something comes in front of it
    ...(s.lasts > 600000 && i > 0 ? [html`<li class="gap" key=${'gap' + s.seq}><span>${duration(s.lasts)} in which nothing happened</span></li>`] : []),
    html`<${Step} key=${s.seq} m=${m} s=${s} longest=${longest} open=${!!seq && s.events.some((e) => String(e.seq) === seq)} />`])}</ol>
    ${line.earlier && html`<button type="button" class="button" onClick=${line.back}>Show earlier ones</button>`}`;
}

const Step = memo(Shown, ({ m, s, longest, open }) => [m.name, s.seq, s.events.length, s.lasts, longest, open].join(' '));

function Shown({ m, s, longest, open }) {
  const [raw, setRaw] = useState(!!open);
  const at = useRef();
  useEffect(() => { if (open) at.current.scrollIntoView({ block: 'center' }); }, []);
  const moves = s.from !== s.to && s.to;
  const known = m.commands.find((c) => c.name === s.command);
  const width = s.lasts ? Math.max(2, (Math.log1p(s.lasts) / Math.log1p(longest)) * 100) : 0;
  return html`<li class=${classes('step', s.refused && 'step-refused', s.failed && 'step-failed', moves && 'step-moves')} ref=${at}>
    <span class="step-mark" aria-hidden="true"><${Icon} name=${s.refused ? 'close' : s.failed ? 'alert' : moves ? 'check' : known?.report ? 'steady' : 'right'} /></span>
    <div class="step-body">
      <div class="step-head"><b class="mono">${s.command || s.events[0].type}</b>
        ${s.refused ? html`<span class="state state-failed">refused</span>` : moves ? html`<span class="step-move">${s.from ? html`<${State} m=${m} state=${s.from} /><${Icon} name="right" label="to" />` : ''}<${State} m=${m} state=${s.to} /></span>` : html`<span class="faint small">stays ${s.to}</span>`}
        <span class="step-time"><${Time} at=${s.time} /></span></div>
      ${(s.actor || s.reason) && html`<p class="small faint">${known?.report ? 'reported' : 'asked for'} by ${s.actor || 'somebody'}${s.reason && html`: ${s.reason}`}</p>`}
      <ul class="step-events">${s.events.map((e) => html`<li key=${e.seq}><span class=${classes('mono small', e.class === 'error' && 'bad')}>${e.type}</span> <span class="small faint">${summary(e.data)}</span></li>`)}</ul>
      ${s.lasts !== undefined && html`<div class="bar-row"><span class="time-bar"><span style=${{ width: width + '%' }}></span></span><span class="small faint num">${duration(s.lasts)} until the next</span></div>`}
      <button type="button" class="button button-quiet small" aria-expanded=${raw} onClick=${() => setRaw(!raw)}><${Icon} name=${raw ? 'down' : 'right'} />version ${s.version} · ${s.events.length} ${s.events.length === 1 ? 'event' : 'events'}</button>
      ${raw && html`<div class="stack"><p class="small faint">command id <span class="mono">${s.commandId || '–'}</span>${s.commandId && html`<${Copy} text=${s.commandId} label="Copy the command id" />`}${s.events[0].traceId && html` · <${Trace} id=${s.events[0].traceId} />`} · <a href=${hrefOf(s.seq)}>link to it</a></p>
        <${Json} value=${s.events} label=${'Events of version ' + s.version} /></div>`}
    </div>
  </li>`;
}

/** Trace is the id of a trace, linked to where traces are shown if the server says where that is. */
function Trace({ id }) {
  const at = session.get()?.traceUrl;
  return html`trace <${LinkOut} href=${at?.replace('{trace}', encodeURIComponent(id))}><span class="mono">${id}</span></${LinkOut}><${Copy} text=${id} label="Copy the trace id" />`;
}

/** hrefOf is the address of an event on the page of its entity. */
const hrefOf = (seq) => '?' + new URLSearchParams([...[...new URLSearchParams(location.search)].filter(([k]) => k !== 'tab' && k !== 'seq'), ['seq', seq]]);

const telling = ['effect', 'try', 'error', 'message', 'code', 'detail', 'reason', 'attempt', 'attempts', 'url', 'revision', 'step', 'stage', 'image', 'status', 'ready'];

const times = { nextTry: 'the next try', notBefore: 'not before' };

/** summary is what tells most of the data of an event, in one line, as parts of it. */
function summary(data) {
  if (!data || typeof data !== 'object') return [];
  const of = (o) => Object.entries(o).flatMap(([k, v]) => {
    if (v === null || v === '' || v === undefined) return [];
    if (k === 'changes' && typeof v === 'object') return Object.entries(v).slice(0, 4).map(([n, c]) => `${n}: ${text(c?.from)} → ${text(c?.to)}`);
    if (k === 'try' && o.of) return [`try ${v} of ${o.of}`];
    if (typeof v === 'object' && (k === 'error' || k === 'failure')) return of(v);
    if (times[k] && typeof v === 'string') return [html`${times[k]} <${Time} at=${v} />`];
    return telling.includes(k) && typeof v !== 'object' ? [`${k} ${text(v)}`] : [];
  });
  return of(data).slice(0, 6).flatMap((part, i) => (i ? [' · ', part] : [part]));
}

const cut = (line, most) => (line.length > most ? line.slice(0, most) + '…' : line);

const text = (v) => (v === undefined ? '–' : cut(String(typeof v === 'object' ? JSON.stringify(v) : v), 300));
