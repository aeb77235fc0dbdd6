// Small parts that pages are made of: State and Mark (a state as icon, text and colour), Card, Stat, Sparkline, Empty, Failure (an error with what to do), Loading, drawn (what a resource has), Rows (facts), Plain (a table),
// Tabs, Copy, Labels, Key (a key of the keyboard), Json, Heading (the h1 of a page, with its crumbs and actions). kindOf(m, state) says what a state is.
import { html, classes, useEffect, useRef, useState } from './base.js';
import { Icon } from './icons.js';
import { count } from './time.js';
import { toast } from './toast.js';

/** kindOf is 'failed', 'moving', 'ended', 'steady' or 'unknown'. */
export function kindOf(m, state) {
  const s = m?.states.find((s) => s.name === state);
  if (!s) return 'unknown';
  return s.failed ? 'failed' : s.terminal ? 'ended' : s.transitional ? 'moving' : 'steady';
}

export const kinds = {
  failed: { icon: 'alert', text: 'needs somebody' },
  moving: { icon: 'spin', text: 'on its way' },
  ended: { icon: 'ended', text: 'ended' },
  steady: { icon: 'steady', text: 'steady' },
  unknown: { icon: 'help', text: 'not known' },
};

/** Mark says how something stands: never by colour alone. */
export const Mark = ({ kind, icon = kinds[kind].icon, title, children }) => html`<span class=${'state state-' + kind} title=${title}><${Icon} name=${icon} />${children}</span>`;

/** State shows a state. kind is what it is instead of what its machine says. */
export const State = ({ m, state, kind = kindOf(m, state) }) => html`<${Mark} kind=${kind} title=${kinds[kind].text}>${state || 'unreadable'}</${Mark}>`;

export function Heading({ title, crumbs = [], children, sub }) {
  useEffect(() => { document.title = title + ' · Instar'; }, [title]);
  return html`<header class="heading">
    <div class="heading-text">
      ${crumbs.length > 0 && html`<nav class="crumbs" aria-label="Breadcrumb">${crumbs.map((c) => html`<a href=${c.href}>${c.text}</a><${Icon} name="right" />`)}</nav>`}
      <h1 tabindex="-1">${title}</h1>
      ${sub && html`<p class="sub">${sub}</p>`}
    </div>
    <div class="heading-actions">${children}</div>
  </header>`;
}

export function Card({ title, action, children, class: cls }) {
  return html`<section class=${classes('card', cls)}>${(title || action) && html`<header class="card-head"><h2>${title}</h2><div>${action}</div></header>`}${children}</section>`;
}

/** Stat is one number with its name; href makes it a link, tone is 'bad', 'warn' or 'good'. */
export function Stat({ label, value, hint, href, tone, icon }) {
  const inner = html`<span class="stat-label">${icon && html`<${Icon} name=${icon} />`}${label}</span><span class="stat-value num">${typeof value === 'number' ? count(value) : value ?? '–'}</span>${hint && html`<span class="stat-hint">${hint}</span>`}`;
  return href ? html`<a class=${classes('stat', tone && 'tone-' + tone)} href=${href}>${inner}</a>` : html`<div class=${classes('stat', tone && 'tone-' + tone)}>${inner}</div>`;
}

/** Sparkline draws numbers as bars with a text for those who do not see it. marks is a second row of numbers, drawn over the first as what is bad. */
export function Sparkline({ values, marks = [], label, height = 44 }) {
  const top = Math.max(1, ...values);
  const w = 4;
  return html`<svg class="spark" viewBox=${`0 0 ${values.length * w} ${height}`} preserveAspectRatio="none" role="img" aria-label=${label}>
    ${values.map((v, i) => v > 0 && html`<rect class="spark-bar" x=${i * w + 0.5} width=${w - 1} y=${height - Math.max(2, (v / top) * height)} height=${Math.max(2, (v / top) * height)} rx="1" />`)}
    ${marks.map((v, i) => v > 0 && html`<rect class="spark-bad" x=${i * w + 0.5} width=${w - 1} y=${height - Math.max(2, (v / top) * height)} height=${Math.max(2, (v / top) * height)} rx="1" />`)}
    <path class="spark-base" d=${`M0 ${height - 0.5}H${values.length * w}`} />
  </svg>`;
}

export function Empty({ icon = 'machine', title, children }) {
  return html`<div class="empty"><${Icon} name=${icon} /><h2>${title}</h2><div>${children}</div></div>`;
}

/** Failure shows what went wrong, and under which id it is logged. */
export function Failure({ error, retry, small }) {
  if (!error) return null;
  return html`<div class=${classes('failure', small && 'failure-small')} role="alert">
    <${Icon} name="alert" />
    <div><b>${error.title || 'That did not work'}</b><p>${error.message}</p>
      ${(error.errors || []).slice(0, 8).map((e) => html`<p class="mono small">${e.location}: ${e.message}</p>`)}
      ${error.currentState && html`<p>The state is <b>${error.currentState}</b>${error.allowedCommands?.length ? html`; it takes ${error.allowedCommands.join(', ')}` : ''}.</p>`}
      ${error.code && html`<p class="small faint"><a href=${'/docs#problem-' + error.code}>${error.code}</a>${error.requestId && html` · request <span class="mono">${error.requestId}</span>`}</p>`}
    </div>
    ${retry && html`<button class="button" onClick=${retry}>Try again</button>`}
  </div>`;
}

export function Loading({ rows = 3 }) {
  return html`<div class="loading" aria-busy="true"><span class="hidden-text">Loading</span>${Array.from({ length: rows }, () => html`<div class="loading-row"></div>`)}</div>`;
}

/** drawn is what a resource has, as draw makes it; or how it went wrong, and that it is on its way. */
export const drawn = (it, draw) => html`<${Failure} error=${it.error} retry=${it.reload} small=${!!it.data} />${it.data ? draw(it.data) : !it.error && html`<${Loading} />`}`;

/** Rows are facts by their names, without those that there are none of. */
export const Rows = ({ of }) => html`<dl class="facts-list">${Object.entries(of).map(([name, value]) => (value || value === 0) && html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;

/** Plain is a table of a few rows of any height; none is said where there are none. Of heads, with | between, those that begin with > are at the end of their cells, and those with < only heard. */
export const Plain = ({ label, heads, rows, none }) => html`<div class="table-frame" tabindex="0" role="region" aria-label=${label}>${rows.length ? html`<table class="table"><thead><tr>${heads.split('|').map((h) => html`<th scope="col" class=${h[0] === '>' && 'cell-end'}>${h[0] === '<' ? html`<span class="hidden-text">${h.slice(1)}</span>` : h.replace('>', '')}</th>`)}</tr></thead><tbody>${rows}</tbody></table>` : html`<p class="faint pad">${none}</p>`}</div>`;

/** Tabs are links, so that each has an address: tabs is [{id, text, href, badge}]. */
export function Tabs({ tabs, active, label }) {
  return html`<nav class="tabs" aria-label=${label}>${tabs.map((t) => html`<a href=${t.href} aria-current=${t.id === active ? 'page' : undefined}>${t.text}${t.badge !== undefined && html`<span class="badge num">${t.badge}</span>`}</a>`)}</nav>`;
}

/** Copy puts a text on the clipboard. */
export function Copy({ text, label = 'Copy', children }) {
  const [done, set] = useState(false);
  const timer = useRef();
  useEffect(() => () => clearTimeout(timer.current), []);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      set(true);
      clearTimeout(timer.current);
      timer.current = setTimeout(() => set(false), 1500);
    } catch {
      toast('This browser does not allow copying here. Select the text instead.', 'bad');
    }
  };
  return html`<button type="button" class="button button-quiet copy" onClick=${copy} title=${label} aria-label=${children ? undefined : label}>${children}<${Icon} name=${done ? 'check' : 'copy'} /></button>`;
}

const program = document.querySelector('meta[name=instar-program]')?.content || 'instar';

/** Command is something to type elsewhere, with a button that copies it. The command line is called as it was here. */
export function Command({ text: said }) {
  const text = said.replace(/^instar /, program + ' ');
  return html`<div class="command"><code tabindex="0">${text}</code><${Copy} text=${text} label=${'Copy: ' + text} /></div>`;
}

/** Labels are k=v, each a link to the list where toHref makes one. */
export function Labels({ labels, toHref, most = 4 }) {
  const all = Object.entries(labels || {}).sort(([a], [b]) => (a < b ? -1 : 1));
  if (!all.length) return null;
  return html`<span class="labels">${all.slice(0, most).map(([k, v]) => {
    const text = v === '' ? k : `${k}=${v}`;
    return toHref ? html`<a class="label" href=${toHref(text)}>${text}</a>` : html`<span class="label">${text}</span>`;
  })}${all.length > most && html`<span class="label" title=${all.slice(most).map((l) => l.join('=')).join(', ')}>+${all.length - most}</span>`}</span>`;
}

export const Key = ({ children }) => html`<kbd>${children}</kbd>`;

/** Json shows a value as it is stored. */
export function Json({ value, label = 'JSON' }) {
  const text = typeof value === 'string' ? value : JSON.stringify(value, null, 2);
  return html`<div class="json"><${Copy} text=${text} label="Copy the JSON" /><pre tabindex="0" role="group" aria-label=${label}>${text}</pre></div>`;
}

/** LinkOut is a link to elsewhere, if its address is one of the web; else it is text. */
export function LinkOut({ href, children }) {
  return /^https?:\/\//i.test(String(href)) ? html`<a href=${href} target="_blank" rel="noopener noreferrer">${children || href}<${Icon} name="out" /></a>` : html`<span>${children || href}</span>`;
}
