// The keyboard. `/` finds things, `g` and a letter goes to a page (those of pages.js with a key), `?` shows all keys, Escape closes, arrows
// go from row to row. Keys are left to whoever types into a field.
import { html, useEffect, useLayoutEffect, useRef, useState } from './base.js';
import { Dialog, open } from './dialog.js';
import { Icon } from './icons.js';
import { isThere, nav } from './pages.js';
import { navigate } from './router.js';
import { entityURL, get, machineURL, machines } from './api.js';
import { State, Key } from './parts.js';

let going = 0; // until when a letter after g is waited for
let shown = false;

const typing = (e) => e.target.closest?.('input, textarea, select, [contenteditable], dialog');

/** start listens to the keyboard. */
export function start() {
  addEventListener('keydown', (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || typing(e) || shown) {
      if ((e.ctrlKey || e.metaKey) && e.key === 'k' && !shown) { e.preventDefault(); showPalette(); }
      return;
    }
    if (going > Date.now()) {
      going = 0;
      const to = nav.find((n) => n.key === e.key);
      if (to) { e.preventDefault(); navigate(to.href); }
      return;
    }
    if (e.key === 'g') going = Date.now() + 1500;
    else if (e.key === '/') { e.preventDefault(); showPalette(); }
    else if (e.key === '?') showHelp();
    else if (e.key === 'ArrowDown' || e.key === 'ArrowUp') step(e);
  });
}

/** step goes to the next row of a table, or of letters, that has no keys of its own: to what opens it, or else is first in it. A text that scrolls keeps its arrows. */
function step(e) {
  if (e.target.closest('pre, code')) return;
  const all = [...(e.target.closest('.table-frame, .letter-group')?.querySelectorAll('tbody tr, summary') || [])].map((row) => (row.matches('summary') ? row : row.querySelector('a, button'))).filter(Boolean);
  if (!all.length || e.defaultPrevented) return;
  const at = all.findIndex((a) => (a.closest('tr') || a).contains(e.target));
  all[Math.max(0, Math.min(all.length - 1, at + (e.key === 'ArrowDown' ? 1 : -1)))].focus();
  e.preventDefault();
}

const once = (f) => () => {
  if (shown) return;
  shown = true;
  f().finally(() => { shown = false; });
};

export const showHelp = once(() => open(Help));
export const showPalette = once(() => open(Palette));

function Help({ close }) {
  const rows = [['/', 'Find an entity, a machine, a page'], ...nav.filter((n) => n.key).map((n) => ['g ' + n.key, 'Go to ' + n.text]), ['↑ ↓', 'Move in a list'], ['Enter', 'Open'], ['x', 'Select in a list'], ['Esc', 'Close'], ['?', 'These keys']];
  return html`<${Dialog} title="Keys" onClose=${() => close()}><dl class="keys">${rows.map(([k, text]) => html`<div><dt>${k.split(' ').map((c) => html`<${Key}>${c}</${Key}>`)}</dt><dd>${text}</dd></div>`)}</dl></${Dialog}>`;
}

function Palette({ close }) {
  const [text, setText] = useState('');
  const [{ of, found }, setFound] = useState({ found: [] }); // of is the text that it was found for: that of before stays until there is another
  const [at, setAt] = useState(0);
  const input = useRef();
  const entered = useRef(); // the text that Enter was pressed at before its results were there
  const chosen = useRef(); // what was marked by the arrows for this text: it stays marked, and Enter opens it, also before there are results of the text
  const show = (found) => {
    if (entered.current === text && found.length) { go(found[0]); return; }
    setFound({ of: text, found });
    setAt(Math.max(0, found.findIndex((f) => f.href === chosen.current)));
  };
  useEffect(() => {
    let gone = false;
    const timer = setTimeout(() => find(text.trim()).then((f) => !gone && show(f), () => {}), text ? 120 : 0);
    return () => { gone = true; clearTimeout(timer); };
  }, [text]);
  useLayoutEffect(() => input.current.focus(), []);
  const go = (f) => { close(); navigate(f.href); };
  const onKey = (e) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[e.key];
    if (step) {
      e.preventDefault();
      const next = (at + step + found.length) % Math.max(1, found.length);
      setAt(next);
      chosen.current = found[next]?.href;
      entered.current = undefined;
    }
    if (e.key !== 'Enter') return;
    e.preventDefault();
    if (of !== text && !chosen.current) entered.current = text;
    else if (found[at]) go(found[at]);
  };
  return html`<${Dialog} title="Find" onClose=${() => close()}>
    <input ref=${input} class="input palette-input" autocapitalize="none" role="combobox" aria-expanded="true" aria-controls="found" aria-activedescendant=${found[at] ? 'found-' + at : undefined} aria-label="Find an entity, a machine, a page"
      placeholder="The beginning of an id, a machine, a page" value=${text} onInput=${(e) => { entered.current = chosen.current = undefined; setText(e.target.value); }} onKeyDown=${onKey} autocomplete="off" spellcheck=${false} />
    <ul id="found" class="found" role="listbox" aria-label="Found">${found.map((f, i) => html`<li key=${f.href} id=${'found-' + i} role="option" aria-selected=${i === at} onMouseMove=${() => setAt(i)} onClick=${() => go(f)}>
      <${Icon} name=${f.icon} /><span>${f.text}</span><span class="faint small">${f.sub}</span>${f.m && html`<${State} m=${f.m} state=${f.state} />`}</li>`)}</ul>
    ${text && of === text && !found.length && html`<p class="faint">Nothing begins with that.</p>`}
  </${Dialog}>`;
}

/** find looks among pages and machines by any part of their names, and among entities by the beginnings of their ids. */
async function find(text) {
  const all = await machines();
  const has = (t) => t.toLowerCase().includes(text.toLowerCase());
  const pages = nav.filter((n) => has(n.text) && isThere(n, all)).map((n) => ({ icon: n.icon, text: n.text, sub: 'page', href: n.href }));
  const ms = all.filter((m) => has(m.name) || has(m.plural)).map((m) => ({ icon: 'machine', text: m.plural, sub: 'machine', href: machineURL(m) }));
  const id = text.toLowerCase();
  if (!/^[a-z0-9-]+$/.test(id)) return [...pages, ...ms];
  const lists = await Promise.all(all.map((m) => get(`/v1/${m.plural}`, { namespace: '*', idPrefix: id, limit: 5 }).then(({ data }) => data.items.map((e) => ({ m, e })), () => [])));
  const es = lists.flat().slice(0, 12).map(({ m, e }) => ({ icon: 'steady', text: e.id, sub: [m.name, e.parent, e.namespace !== 'default' && e.namespace].filter(Boolean).join(' · '), href: entityURL(m, e), m, state: e.state }));
  return [...es, ...pages, ...ms];
}
