// The list of a machine's entities: filters in the address (state, label, q, parent, preset, order), pages by cursor as one scrolls, live, with views that are kept under a name
// and commands for all that are selected or that match.
import { html, useCallback, useEffect, useRef, useState } from '../app/base.js';
import { collection, entityURL, get, keyOf, may } from '../app/api.js';
import { Icon } from '../app/icons.js';
import { announce, useChanges } from '../app/live.js';
import { Empty, Failure, Labels, Mark, State } from '../app/parts.js';
import { place, useQuery } from '../app/router.js';
import { every, passes, soon, stored, useStore } from '../app/store.js';
import { Table } from '../app/table.js';
import { Since, Time, count, minutesAgo } from '../app/time.js';
import { Bulk } from './bulk.js';

const most = 500; // rows that are loaded anew when something changes; of longer lists those that are there are changed

const views = stored('views', {}); // machine → {name: query}

/** same is the query of a view in one order, with the namespace that it has where it says none. */
function same(text) {
  const q = new URLSearchParams(text);
  if (!q.has('namespace')) q.set('namespace', '*');
  q.sort();
  return q.toString();
}

/** filterOf is the query of a list from that of the address. */
function filterOf(m, query, ns) {
  const f = { namespace: ns, state: query.getAll('state').flatMap((s) => s.split(',')).filter(Boolean), label: query.getAll('label'), idPrefix: query.get('q') || '', parent: query.get('parent') || '', orderBy: query.get('order') || '' };
  const preset = query.get('preset') || '';
  if (preset === 'failed') f.state = m.states.filter((s) => s.failed).map((s) => s.name);
  if (preset === 'moving' || preset.startsWith('stuck')) f.state = m.states.filter((s) => s.transitional).map((s) => s.name);
  if (preset.startsWith('stuck')) {
    f.stuck = Number(preset.split('-')[1]) || 5;
    f.orderBy ||= 'since';
  }
  if (preset === 'parked') f.parked = true;
  f.none = preset !== '' && !f.state.length && !f.parked; // no state of this machine is meant: that is nothing, not all
  return f;
}

const asked = ({ stuck, none, ...f }, limit, cursor) => ({ ...f, limit, cursor, ...(stuck && { sinceBefore: minutesAgo(stuck) }) });

/** useList loads a list page by page, and keeps it current. */
function useList(m, filter) {
  const id = JSON.stringify([m.name, filter]);
  const [list, setList] = useState({ id, rows: [], next: '', loading: true });
  const now = useRef(list);
  const put = (change) => { now.current = change(now.current); setList(now.current); };
  const busy = useRef();
  const wanted = useRef({}); // what was asked for while it loads: anew, from the first page; more, the next page; changes
  const timers = useRef([]); // of what is loaded anew, and of the next page
  const later = (ms, more, anew) => {
    if (anew) { clearTimeout(timers.current[+more]); delete timers.current[+more]; } // what is for changes only does less
    timers.current[+more] ??= setTimeout(() => { delete timers.current[+more]; load(more, anew); }, ms);
  };
  const unseen = useRef(new Map()); // what has changed since what is there was asked for, by key
  const apply = (again) => { // again: also to the page that is under way
    const newer = unseen.current;
    if (!again) unseen.current = new Map();
    const stays = (r) => r.problem || (!filter.parked && (!filter.state.length || filter.state.includes(r.state)) && (!filter.stuck || Date.parse(r.since) <= Date.now() - filter.stuck * 60000));
    const now = (r) => {
      const item = newer.has(keyOf(r)) ? newer.get(keyOf(r)) || { ...r, problem: 'deleted' } : r;
      return item.revision < r.revision ? r : item; // a page may be ahead of what is told
    };
    if (newer.size) put((l) => ({ ...l, rows: l.rows.map(now).filter(stays) }));
  };
  const next = () => { // the next page before changes, which may come all the time
    const what = ['anew', 'more', 'changes'].find((w) => wanted.current[w]);
    if (!what) return;
    delete wanted.current[what];
    if (what === 'anew') delete wanted.current.changes;
    load(what === 'more', what === 'anew');
  };
  const load = useCallback(async (more, anew) => {
    if (busy.current === id) { wanted.current[anew ? 'anew' : more ? 'more' : 'changes'] = true; return; }
    const before = !anew && now.current.id === id ? now.current : { rows: [], next: '' };
    if (more && !before.next) { next(); return; } // it was loaded anew while this waited for its turn
    if (!more && !anew && before.rows.length > most) { apply(); next(); return; } // it has become long since something changed
    busy.current = id;
    const seen = more ? new Map() : unseen.current;
    if (!more) unseen.current = new Map();
    try {
      const limit = more ? 200 : Math.min(most, Math.max(100, before.rows.length));
      const query = more ? { ...before.query, limit, cursor: before.next } : asked(filter, limit);
      const { data } = filter.none ? { data: { items: [], nextCursor: '' } } : await get(collection(m), query);
      if (busy.current !== id) return;
      const come = new Set(data.items.map(keyOf)); // in an order by time, what has changed comes again further down
      put((l) => ({ id, rows: more ? [...l.rows.filter((r) => !come.has(keyOf(r))), ...data.items] : data.items, next: data.nextCursor, query: more ? l.query : query, loading: false, stale: data.staleSeconds }));
    } catch (error) {
      if (busy.current === id) {
        unseen.current = new Map([...seen, ...unseen.current]);
        put((l) => ({ ...l, id, error, loading: false, rows: l.id === id ? l.rows : [] }));
        if (passes(error)) later(soon, more, anew);
      }
    } finally {
      if (busy.current === id) {
        busy.current = undefined;
        next();
      }
    }
  }, [id]);
  useEffect(() => {
    put(() => ({ id, rows: [], next: '', loading: true }));
    load(false);
    return () => {
      timers.current.forEach((t) => clearTimeout(t));
      timers.current = [];
      busy.current = undefined;
      wanted.current = {};
      unseen.current = new Map();
    };
  }, [id]);
  every({ data: list, idle: () => now.current.id === id && busy.current !== id, reload: () => later(0, false) }, filter.stuck && list.rows.length <= most ? 20000 : 0); // what becomes stuck does so as time passes, and nothing changes
  useChanges((changes) => {
    if (!changes) { load(false, true); return; } // some were missed: what there was may be old
    for (const c of changes) unseen.current.set(c.key, c.item);
    const long = now.current.rows.length > most;
    if (long) apply(busy.current === id);
    if (!long || busy.current === id) later(700, false);
  }, { machine: m.name });
  return { ...list, rows: list.id === id ? list.rows : [], more: () => list.next && load(true), reload: () => load(false, true) };
}

export function List({ m, ns, states }) {
  const [query, setQuery] = useQuery();
  const filter = filterOf(m, query, ns);
  const list = useList(m, filter);
  const [marked, setSelected] = useState(new Set());
  useEffect(() => setSelected(new Set()), [m.name, query.toString()]);
  const selected = new Set(marked.size ? list.rows.map(keyOf).filter((key) => marked.has(key)) : []); // of what is still there
  const matching = filter.label.length || filter.idPrefix || filter.parent || filter.stuck ? undefined : (filter.parked ? [''] : filter.state.length ? filter.state : [...m.states.map((s) => s.name), '']).reduce((n, s) => n + (states?.[s] || 0), 0);
  useEffect(() => { if (matching !== undefined) announce(`${matching} ${m.plural}`); }, [matching]);
  const preset = query.get('preset');
  const narrowed = [...query.keys()].some((k) => k !== 'order' && k !== 'namespace');
  const chosen = preset ? [] : filter.state;
  const toggle = (s) => setQuery({ preset: null, state: chosen.includes(s) ? chosen.filter((x) => x !== s) : [...chosen, s] });
  const columns = [
    { text: 'Id', cell: (e) => e.id, class: 'cell-id' },
    { text: 'State', cell: (e) => (e.problem ? html`<${Mark} kind="failed">${e.problem === 'deleted' ? 'deleted' : 'unreadable'}</${Mark}>` : html`<${State} m=${m} state=${e.state} />`) },
    ...(m.parent ? [{ text: m.parent, cell: (e) => html`<a href=${entityURL(m.parent, { id: e.parent, namespace: e.namespace })}>${e.parent}</a>` }] : []),
    { text: 'In it for', cell: (e) => html`<${Since} at=${e.since} />` },
    ...(ns === '*' ? [{ text: 'Namespace', cell: (e) => html`<span class="soft">${e.namespace}</span>` }] : []),
    { text: 'Labels', cell: (e) => html`<${Labels} labels=${e.labels} />` },
    { text: 'Version', cell: (e) => e.version, class: 'cell-end num' },
    { text: 'Changed', cell: (e) => html`<${Time} at=${e.updatedAt} />` },
  ];
  const canAct = may('operate') && !filter.parked; // what cannot be read takes no command but repair-value
  return html`<section class="list" aria-label=${m.plural}>
    <div class="chips" role="group" aria-label="Presets">
      <button type="button" class="chip" aria-pressed=${!narrowed} onClick=${() => setQuery({ preset: null, state: null, label: null, q: null, parent: null, view: null })}>All</button>
      <button type="button" class="chip" aria-pressed=${preset === 'failed'} onClick=${() => setQuery({ state: null, preset: 'failed' })}><${Icon} name="alert" />Needs somebody</button>
      <button type="button" class="chip" aria-pressed=${preset === 'moving'} onClick=${() => setQuery({ state: null, preset: 'moving' })}><${Icon} name="spin" />On its way</button>
      ${[5, 60].map((n) => html`<button type="button" class="chip" aria-pressed=${preset === 'stuck-' + n} onClick=${() => setQuery({ state: null, preset: 'stuck-' + n })}><${Icon} name="clock" />Stuck over ${n === 60 ? 'an hour' : n + ' min'}</button>`)}
      <${Views} m=${m} query=${query} />
    </div>
    <div class="chips" role="group" aria-label="States">${m.states.filter((s) => states?.[s.name] > 0 || chosen.includes(s.name)).map((s) => html`<button key=${s.name} type="button" class="chip" aria-pressed=${chosen.includes(s.name)} onClick=${() => toggle(s.name)}>${s.name}<span class="num faint">${count(states?.[s.name] || 0)}</span></button>`)}
      ${(states?.[''] > 0 || filter.parked) && html`<button type="button" class="chip" aria-pressed=${!!filter.parked} onClick=${() => setQuery({ state: null, preset: filter.parked ? null : 'parked' })}><${Icon} name="alert" />unreadable<span class="num faint">${count(states?.[''] || 0)}</span></button>`}</div>
    <${Filters} m=${m} query=${query} setQuery=${setQuery} filter=${filter} />
    <${Failure} error=${list.error} retry=${list.reload} small />
    ${list.stale > 0 && html`<p class="bad small">This node hears nothing of the others: the list is its state of ${Math.round(list.stale)} s ago.</p>`}
    ${canAct && html`<${Bulk} m=${m} filter=${filter} selected=${selected} matching=${matching} rows=${list.rows} clear=${() => setSelected(new Set())} />`}
    <${Table} label=${`List of ${m.plural}`} columns=${columns} rows=${list.rows} total=${matching ?? (list.next ? -1 : list.rows.length)} keyOf=${keyOf} hrefOf=${(e) => entityURL(m, e)} onEnd=${list.more} selected=${canAct ? selected : undefined} onSelect=${canAct ? setSelected : undefined}
      empty=${list.loading ? html`<p class="faint pad">Loading…</p>` : list.error ? html`<p class="faint pad">–</p>` : html`<${Empty} title=${narrowed ? 'Nothing matches' : `No ${m.plural} yet`}><p>${narrowed ? 'Take a filter away to see more.' : `The first one appears here as soon as there is one${ns === '*' ? '' : ' in the namespace ' + ns}.`}</p></${Empty}>`} />
    <p class="faint small" role="status">${list.rows.length ? `${count(list.rows.length)}${matching !== undefined ? ` of ${count(matching)}` : list.next ? ' and more' : ''}` : ''}</p>
    ${list.rows.length > most && html`<p class="faint small">Of more than ${most} rows those that are here follow what happens; new ones come when the list is loaded anew. <button type="button" class="button button-quiet small" onClick=${list.reload}>Load it anew</button></p>`}
  </section>`;
}

function Filters({ m, query, setQuery, filter }) {
  const [q, setQ] = useState(filter.idPrefix);
  const [label, setLabel] = useState('');
  const timer = useRef();
  useEffect(() => setQ(filter.idPrefix), [filter.idPrefix]);
  const type = (text) => {
    setQ(text);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setQuery({ q: text.trim().toLowerCase() || null }), 250);
  };
  useEffect(() => () => clearTimeout(timer.current), []);
  return html`<div class="toolbar">
    <input class="input" type="search" autocapitalize="none" aria-label="Ids that begin with" placeholder="Id begins with…" value=${q} onInput=${(e) => type(e.target.value)} spellcheck=${false} autocomplete="off" />
    <form autocapitalize="none" class="inline-form" onSubmit=${(e) => { e.preventDefault(); if (label.trim()) setQuery({ label: [...filter.label, label.trim()] }); setLabel(''); }}>
      <input class="input" aria-label="Add a label: k=v, k!=v, or k" placeholder="Label: team=web" value=${label} onInput=${(e) => setLabel(e.target.value)} spellcheck=${false} autocomplete="off" /></form>
    ${filter.label.map((l) => html`<button type="button" class="chip" aria-label=${`Take away the label ${l}`} onClick=${() => setQuery({ label: filter.label.filter((x) => x !== l) })}>${l}<${Icon} name="close" /></button>`)}
    ${filter.parent && html`<button type="button" class="chip" onClick=${() => setQuery({ parent: null })}>${m.parent}: ${filter.parent}<${Icon} name="close" /></button>`}
    <label class="order">Order <select class="input" value=${query.get('order') || ''} onChange=${(e) => setQuery({ order: e.target.value || null })}>
      <option value="">id</option><option value="updatedAt desc">changed last</option><option value="createdAt desc">newest</option><option value="since">longest in its state</option></select></label>
  </div>`;
}

function Views({ m, query }) {
  const all = useStore(views)[m.name] || {};
  const { path } = useStore(place);
  const [naming, setNaming] = useState(false);
  const text = query.toString();
  const put = (name, q) => views.set((v) => {
    const of = { ...v[m.name] };
    if (q === null) delete of[name]; else of[name] = q;
    return { ...v, [m.name]: of };
  });
  return html`${Object.entries(all).map(([name, q]) => html`<span class="chip-pair"><a class="chip" href=${path + (q ? '?' + q : '')} aria-current=${same(q) === same(text) ? 'true' : undefined}><${Icon} name="star" />${name}</a>
      <button type="button" class="button button-quiet small" aria-label=${`Forget the view ${name}`} onClick=${() => put(name, null)}><${Icon} name="close" /></button></span>`)}
    ${naming ? html`<form autocapitalize="none" class="inline-form" onSubmit=${(e) => { e.preventDefault(); const n = e.target.elements.view.value.trim(); if (n) put(n, text); setNaming(false); }}><input class="input small" name="view" aria-label="Name of the view" placeholder="Name of the view" autofocus maxlength="40" /></form>`
    : same(text) !== same('') && !Object.values(all).some((q) => same(q) === same(text)) && html`<button type="button" class="chip" onClick=${() => setNaming(true)}><${Icon} name="star" />Keep this view</button>`}`;
}
