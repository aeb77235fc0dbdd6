// The diagram of a machine. Diagram({m, counts, at, path, hrefOf}) draws its states and what leads from one to another:
//   counts  {state: how many}, shown in the states with how many of all that is
//   at      the state of an entity: it stands out, as does what may come next
//   path    a Set of 'FROM→TO' that the entity has gone through
//   hrefOf  the address of a state, which makes it a link
//   times   {state: {p50Seconds, p95Seconds, count}}, shown instead of counts, the longest ones darkest
// It is laid out once for each machine; counts only change texts. What it shows is also there as a table for those who do not see it.
import { html, classes, useLayoutEffect, useMemo, useRef, useState } from './base.js';
import { Icon } from './icons.js';
import { kindOf, kinds } from './parts.js';
import { layout } from './layout.js';
import { count, duration } from './time.js';

const drawings = new WeakMap();

/** drawing is the layout of a machine, with one line for all inputs that lead from one state to another. */
function drawing(m) {
  if (!drawings.has(m)) {
    const lines = new Map();
    for (const e of m.edges) {
      const from = e.from || '';
      if (from === e.to) continue;
      const key = from + '→' + e.to;
      if (!lines.has(key)) lines.set(key, { from, to: e.to, on: [] });
      if (!lines.get(key).on.includes(e.on)) lines.get(key).on.push(e.on);
    }
    const nodes = [{ id: '', width: 22, height: 22 }, ...m.states.map((s) => ({ id: s.name, width: Math.max(104, s.name.length * 7.6 + 48), height: 50 }))];
    const d = layout(nodes, [...lines.values()]);
    for (const e of d.edges) e.on = lines.get(e.from + '→' + e.to).on;
    drawings.set(m, d);
  }
  return drawings.get(m);
}

const short = (on) => (on.length > 2 ? `${on[0]} +${on.length - 1}` : on.join(', '));

export function Diagram({ m, counts, at, path, hrefOf, label, times }) {
  const d = useMemo(() => drawing(m), [m]);
  const [seen, setSeen] = useState(null); // the state under the pointer, or that has the focus
  const frame = useRef();
  useLayoutEffect(() => { // on a narrow screen, the state that it is in is what one sees first
    const n = at && d.nodes.get(at);
    const f = frame.current;
    if (n) f.scrollLeft = (n.x / d.width) * f.scrollWidth - f.clientWidth / 2;
  }, [d, at]);
  const total = counts ? Object.values(counts).reduce((a, b) => a + b, 0) : 0;
  const slowest = times && Math.max(0.001, ...Object.values(times).map((t) => t.p95Seconds));
  const crowded = d.edges.length > 12;
  const look = (e) => {
    const of = at ?? seen;
    const next = at !== undefined && e.from === at;
    const gone = path?.has(e.from + '→' + e.to);
    const near = seen !== null && (e.from === seen || e.to === seen);
    return { next, gone, near, dim: !near && !next && !gone && (of !== null && of !== undefined) };
  };
  return html`<div class="diagram">
    <div class="diagram-scroll" ref=${frame} tabindex="0" role="region" aria-label=${label || `Diagram of ${m.name}`}>
    <svg viewBox=${`0 0 ${d.width} ${d.height}`} style=${{ width: '100%', maxWidth: d.width + 'px', minWidth: Math.min(d.width, Math.max(560, d.width * 0.66)) + 'px' }} role="group" aria-label=${`States of ${m.name}`}>
      <defs>${['', '-next', '-gone'].map((k) => html`<marker id=${'tip' + k} class=${'tip' + k} viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse"><path d="M0 0.8L7.500 4L0 7.200z" /></marker>`)}</defs>
      ${d.edges.map((e) => {
    const k = look(e);
    const tip = k.next || k.near ? '-next' : k.gone ? '-gone' : '';
    return html`<g key=${e.from + '→' + e.to} class=${classes('edge', k.next && 'edge-next', k.gone && 'edge-gone', k.near && 'edge-near', k.dim && 'edge-dim')} aria-hidden="true">
          <path d=${e.d} marker-end=${`url(#tip${tip})`} />
          ${(!crowded || k.near || k.next) && html`<text x=${e.mid.x} y=${e.mid.y - 5}><title>${e.on.join(', ')}</title>${short(e.on)}</text>`}
        </g>`;
  })}
      ${[...d.nodes].map(([id, n]) => (id === '' ? html`<circle key="start" class="start" cx=${n.x} cy=${n.y} r="7" />`
    : html`<${Node} key=${id} m=${m} id=${id} n=${n} count=${counts?.[id]} time=${times && (times[id] || {})} heat=${times?.[id] ? Math.log1p(times[id].p95Seconds) / Math.log1p(slowest) : 0} total=${total} here=${id === at} dim=${at !== undefined && id !== at && !d.edges.some((e) => e.from === at && e.to === id) && ![...(path || [])].some((p) => p.split('→').includes(id))}
            href=${hrefOf?.(id)} onLook=${setSeen} />`))}
    </svg></div>
    <div class="hidden-text"><table><caption>States of ${m.name}</caption><thead><tr><th>State</th><th>Kind</th>${counts && html`<th>Entities</th>`}${times && html`<th>Half stay up to</th><th>95 % stay up to</th>`}<th>Leads to</th></tr></thead>
      <tbody>${m.states.map((s) => html`<tr><th scope="row">${s.name}${s.name === at ? ' (now)' : ''}</th><td>${kinds[kindOf(m, s.name)].text}</td>${counts && html`<td>${counts[s.name] ?? 0}</td>`}${times && html`<td>${took(times[s.name]?.p50Seconds)}</td><td>${took(times[s.name]?.p95Seconds)}</td>`}
        <td>${d.edges.filter((e) => e.from === s.name).map((e) => `${e.to} on ${e.on.join(' or ')}`).join('; ')}</td></tr>`)}</tbody></table></div>
  </div>`;
}

const took = (s) => (s === undefined ? '–' : duration(s * 1000));

function Node({ m, id, n, count: c, time, heat, total, here, dim, href, onLook }) {
  const kind = kindOf(m, id);
  const x = n.x - n.width / 2;
  const y = n.y - n.height / 2;
  const share = c && total ? c / total : 0;
  const doc = m.states.find((s) => s.name === id)?.doc;
  const times = time?.count ? [time.p50Seconds, time.p95Seconds].map((t) => took(t).split(' ')[0]).join(' / ') : '–';
  const inner = html`<g class=${classes('node', 'node-' + kind, here && 'node-here', dim && 'node-dim', c === 0 && 'node-none')} onMouseEnter=${() => onLook(id)} onMouseLeave=${() => onLook(null)}>
    <rect class="node-box" x=${x} y=${y} width=${n.width} height=${n.height} rx="11" />
    ${heat > 0 && html`<rect class="node-heat" x=${x} y=${y} width=${n.width} height=${n.height} rx="11" fill-opacity=${0.06 + heat * 0.2} />`}
    ${!time && share > 0 && html`<rect class="node-share" x=${x + 11} y=${y + n.height - 6} width=${Math.max(3, (n.width - 22) * share)} height="3" rx="1.500" />`}
    <svg x=${x + 10} y=${y + (c === undefined ? 17 : 9)} width="15" height="15" viewBox="0 0 16 16" aria-hidden="true"><${Icon} name=${kinds[kind].icon} /></svg>
    <text class="node-name" x=${x + 31} y=${y + (c === undefined ? 29 : 21)}>${id}</text>${' '}
    ${c !== undefined && html`<text class=${time ? 'node-count node-time' : 'node-count'} x=${time ? n.x : x + 31} y=${y + 37}>${time ? times : count(c)}</text>`}
  </g>`;
  const text = `${id}${c === undefined ? '' : time ? ` ${times}, p50 and p95` : ` ${count(c)} ${c === 1 ? m.name : m.plural}`}, ${kinds[kind].text}${here ? ', now' : ''}`;
  return href ? html`<a href=${href} aria-label=${text} onFocus=${() => onLook(id)} onBlur=${() => onLook(null)}>${inner}</a>` : inner;
}
