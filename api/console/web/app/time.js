// How this reader sees things: prefs has {theme, clock, density}. Time shows a moment as relative, local or UTC, with the whole as its title, and keeps
// relative ones current. ago, duration and count make texts; nothing else in the console formats times and numbers.
import { html, useEffect, useState } from './base.js';
import { store, stored, useStore } from './store.js';

/** prefs: theme is 'system', 'light' or 'dark'; clock is 'relative', 'local' or 'utc'. */
export const prefs = stored('prefs', { theme: 'system', clock: 'relative' });

/** applyTheme puts the theme on the page, now and when it changes. */
export function applyTheme() {
  const put = ({ theme }) => { document.documentElement.dataset.theme = theme; };
  put(prefs.get());
  prefs.follow(put);
}

/** minutesAgo is a moment so many minutes ago, of a whole minute: who asks twice asks the same. */
export const minutesAgo = (n) => new Date(Math.floor(Date.now() / 60000 - n) * 60000).toISOString();

const now = store(Date.now());
setInterval(() => !document.hidden && now.set(Date.now()), 1000);

const units = [['y', 31536000], ['d', 86400], ['h', 3600], ['m', 60], ['s', 1]];

/** duration is a short text for some milliseconds: 2h 5m, 1.4s, 12ms. */
export function duration(ms) {
  if (!Number.isFinite(ms)) return '';
  if (ms < 0) ms = 0;
  if (ms < 1000) return Math.round(ms) + 'ms';
  if (ms < 10000) return (ms / 1000).toFixed(1) + 's';
  let s = Math.round(ms / 1000);
  const i = units.findIndex(([, n]) => s >= n);
  const [unit, n] = units[i];
  let text = Math.floor(s / n) + unit;
  s %= n;
  const next = units[i + 1];
  if (next && Math.floor(s / next[1]) > 0) text += ' ' + Math.floor(s / next[1]) + next[0];
  return text;
}

/** ago says how long ago a moment was, or how far ahead it is. */
export function ago(at, from = Date.now()) {
  const ms = from - at;
  if (Math.abs(ms) < 1500) return 'now';
  const t = duration(Math.abs(ms) < 60000 ? Math.round(Math.abs(ms) / 1000) * 1000 : Math.abs(ms)).replace(/\.0s$/, 's');
  return ms < 0 ? 'in ' + t : t + ' ago';
}

/** exact is a moment as a whole, in local time or UTC. */
export function exact(at, clock) {
  const d = new Date(at);
  if (Number.isNaN(d.getTime())) return '';
  if (clock === 'utc') return d.toISOString().replace('T', ' ').replace(/\.\d+Z$/, 'Z');
  const two = (n) => String(n).padStart(2, '0');
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}

/** useNow is the time, a little late: once a second while the page is seen. */
export const useNow = () => useStore(now);

/** Time shows a moment as the reader wants moments. */
export function Time({ at, precise }) {
  const { clock } = useStore(prefs);
  const ms = typeof at === 'number' ? at : Date.parse(at);
  if (!(ms >= 0 && ms <= 864e13)) return html`<span class="faint">–</span>`; // no date is later
  const iso = new Date(ms).toISOString();
  const text = clock === 'relative' && !precise ? html`<${Ago} at=${ms} />` : exact(ms, clock === 'utc' ? 'utc' : 'local');
  return html`<time datetime=${iso} title=${iso} class="num">${text}</time>`;
}

function Ago({ at }) {
  const [text, set] = useState(() => ago(at));
  useEffect(() => {
    const look = (t) => set(ago(at, t));
    look(Date.now());
    return now.follow(look);
  }, [at]);
  return text;
}

/** Since is how long something has lasted, or how long ago it was, and counts on. */
export function Since({ at }) {
  const t = useNow();
  const from = new Date(at ?? NaN);
  const iso = Number.isNaN(from.getTime()) ? '' : from.toISOString();
  return html`<time datetime=${iso} title=${iso} class="num">${iso && duration(Math.max(0, t - from))}</time>`;
}

const compact = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });
const whole = new Intl.NumberFormat('en');

/** count is a number for people: 1,234 and 1.2M. */
export const count = (n) => (n >= 100000 ? compact.format(n) : whole.format(n));

/** bytes is a size for people. */
export function bytes(n) {
  const names = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  while (n >= 1024 && i < names.length - 1) { n /= 1024; i++; }
  return (n < 10 && i > 0 ? n.toFixed(1) : Math.round(n)) + ' ' + names[i];
}
