// The data of an entity, and what changed in it between two of the versions that this page has seen: it follows the entity while it is open.
import { html, useState } from '../app/base.js';
import { Json, Plain } from '../app/parts.js';

/** flat is an object as paths with values. */
function flat(v, at = '', all = new Map()) {
  if (v !== null && typeof v === 'object' && Object.keys(v).length) for (const [k, x] of Object.entries(v)) flat(x, at ? `${at}.${k}` : k, all);
  else all.set(at, v);
  return all;
}

function changes(a, b) {
  const [from, to] = [flat(a), flat(b)];
  return [...new Set([...from.keys(), ...to.keys()])].filter((k) => JSON.stringify(from.get(k)) !== JSON.stringify(to.get(k))).sort().map((k) => ({ path: k, from: from.get(k), to: to.get(k) }));
}

const show = (v) => (v === undefined ? html`<span class="faint">–</span>` : html`<span class="mono small">${typeof v === 'string' ? v : JSON.stringify(v)}</span>`);

export function Data({ e, versions }) {
  const [than, setThan] = useState('');
  const [upTo, setUpTo] = useState('');
  const version = (revision) => versions.find((v) => String(v.revision) === revision);
  const base = version(than);
  const other = version(upTo) || e;
  const diff = base && changes(base.data, other.data);
  const seen = versions.filter((v) => v.revision !== e.revision).reverse();
  const options = seen.map((v) => html`<option value=${String(v.revision)}>version ${v.version}, ${v.state}</option>`);
  return html`<div class="stack">
    <div class="toolbar"><label class="order">What changed since <select class="input" value=${than} onChange=${(x) => setThan(x.target.value)}><option value="">nothing</option>${options}</select></label>
      ${base && html`<label class="order">until <select class="input" value=${upTo} onChange=${(x) => setUpTo(x.target.value)}><option value="">now</option>${options}</select></label>`}
      ${versions.length < 2 && html`<span class="faint small">Versions that are seen from now on can be compared. Older changes are in the timeline.</span>`}</div>
    ${diff && (diff.length ? html`<${Plain} label="What changed" heads=${`Field|Version ${base.version}|${other === e ? 'Now' : `Version ${other.version}`}`} rows=${diff.map((d) => html`<tr key=${d.path}><th scope="row" class="mono small">${d.path}</th><td class="diff-from wrap">${show(d.from)}</td><td class="diff-to wrap">${show(d.to)}</td></tr>`)} />` : html`<p class="faint">The data is the same.</p>`)}
    ${e.data === undefined ? html`<p class="faint pad">It has no data.</p>` : html`<${Json} value=${e.data} label="Data" />`}
  </div>`;
}
