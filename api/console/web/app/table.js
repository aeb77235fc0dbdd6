// Table, for lists of any length: only the rows that are seen are in the page. Table({label, columns, rows, keyOf, hrefOf, total, onEnd, selected, onSelect, empty, height}):
//   columns   [{name, text, cell(row), class, grow}]; the first one is a link if hrefOf(row) is given
//   onEnd     called when the end comes near, to load more rows
//   selected  a Set of keys, with onSelect(next): each row gets a box
// Arrows go up and down, Enter opens, x selects.
import { html, classes, useEffect, useLayoutEffect, useRef, useState } from './base.js';
import { navigate } from './router.js';

const rowHeight = 44;
const beyond = 8; // rows above and below those that are seen

export function Table({ label, columns, rows, keyOf, hrefOf, total = rows.length, onEnd, selected, onSelect, empty, height = '65vh' }) {
  const frame = useRef();
  const [view, setView] = useState({ top: 0, height: 600 });
  const [at, setAt] = useState(-1);
  const ticking = useRef(false);
  const look = () => {
    if (ticking.current) return;
    ticking.current = true;
    requestAnimationFrame(() => {
      ticking.current = false;
      const f = frame.current;
      if (f) setView({ top: f.scrollTop, height: f.clientHeight });
    });
  };
  useEffect(() => {
    look();
    const watch = new ResizeObserver(look);
    watch.observe(frame.current);
    return () => watch.disconnect();
  }, []);
  const first = Math.max(0, Math.min(Math.floor(view.top / rowHeight) - beyond, rows.length));
  const last = Math.min(rows.length, Math.ceil((view.top + view.height) / rowHeight) + beyond);
  useEffect(() => { if (onEnd && last > rows.length - 40) onEnd(); }, [last, rows.length]);
  useLayoutEffect(() => {
    if (at < 0) return;
    const f = frame.current;
    const y = at * rowHeight;
    if (y < f.scrollTop) f.scrollTop = y;
    else if (y + rowHeight * 2 > f.scrollTop + f.clientHeight) f.scrollTop = y + rowHeight * 2 - f.clientHeight;
  }, [at]);
  const toggle = (key) => {
    const next = new Set(selected);
    if (!next.delete(key)) next.add(key);
    onSelect(next);
  };
  const onKey = (e) => {
    if (e.target.tagName === 'INPUT' && e.key !== 'ArrowDown' && e.key !== 'ArrowUp') return;
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 12, PageUp: -12 }[e.key];
    if (step) setAt(Math.max(0, Math.min(rows.length - 1, at + step)));
    else if (e.key === 'Enter' && e.target === frame.current && hrefOf && rows[at]) navigate(hrefOf(rows[at]));
    else if (e.key === 'x' && onSelect && rows[at]) toggle(keyOf(rows[at]));
    else return;
    e.preventDefault();
  };
  const all = selected && rows.length > 0 && rows.every((r) => selected.has(keyOf(r)));
  if (!rows.length && empty) return html`<div class="table-frame" ref=${frame}>${empty}</div>`;
  return html`<div class="table-frame" ref=${frame} onScroll=${look} onKeyDown=${onKey} tabindex="0" role="region" aria-label=${label} style=${{ maxHeight: height }}>
    <table class="table" aria-rowcount=${total < 0 ? -1 : total + 1} aria-label=${label}>
      <thead><tr aria-rowindex="1">
        ${onSelect && html`<th class="cell-box"><input type="checkbox" aria-label="Select all that are loaded" checked=${all} onChange=${() => onSelect(all ? new Set() : new Set(rows.map(keyOf)))} /></th>`}
        ${columns.map((c) => html`<th scope="col" class=${c.class}>${c.text}</th>`)}
      </tr></thead>
      <tbody>
        ${first > 0 && html`<tr aria-hidden="true" style=${{ height: first * rowHeight + 'px' }}><td colspan=${columns.length + 1}></td></tr>`}
        ${rows.slice(first, last).map((row, i) => {
    const key = keyOf(row);
    return html`<tr key=${key} aria-rowindex=${first + i + 2} class=${classes(at === first + i && 'row-at', selected?.has(key) && 'row-selected')}>
            ${onSelect && html`<td class="cell-box"><input type="checkbox" aria-label=${'Select ' + key} checked=${selected.has(key)} onChange=${() => toggle(key)} /></td>`}
            ${columns.map((c, n) => html`<td class=${c.class}>${n === 0 && hrefOf ? html`<a class="row-link" href=${hrefOf(row)}>${c.cell(row)}</a>` : c.cell(row)}</td>`)}
          </tr>`;
  })}
        ${last < rows.length && html`<tr aria-hidden="true" style=${{ height: (rows.length - last) * rowHeight + 'px' }}><td colspan=${columns.length + 1}></td></tr>`}
      </tbody>
    </table>
  </div>`;
}
