// Where the reader is. location() follows the address; links below /ui/ are followed without loading the page anew. navigate(url, {replace}) goes somewhere;
// useQuery() is [params, set]: set({state: 'READY'}) changes the query of the address, and null takes something out of it. match(pattern, path) finds {name} in paths.
import { store, useStore } from './store.js';

const read = () => ({ path: location.pathname, query: new URLSearchParams(location.search), hash: location.hash });

/** place is where the reader is: {path, query, hash}. */
export const place = store(read());

const leaving = new Set();

/** navigate goes to an address of the console. With replace the one before is not in the history. */
export function navigate(url, { replace = false, keep = false } = {}) {
  const to = new URL(url, location.href);
  if (to.origin !== location.origin || !to.pathname.startsWith('/ui')) { location.href = to.href; return; }
  const samePage = to.pathname === location.pathname;
  history[replace ? 'replaceState' : 'pushState'](null, '', to.pathname + to.search + to.hash);
  place.set(read());
  for (const f of leaving) f(samePage);
  if (!keep && !samePage) scrollTo(0, 0);
}

/** onNavigate is told of each step; the argument says whether the page is the same one with another query. */
export function onNavigate(f) {
  leaving.add(f);
  return () => leaving.delete(f);
}

/** start has links and the history followed. */
export function start() {
  addEventListener('popstate', () => {
    const before = place.get().path;
    place.set(read());
    for (const f of leaving) f(before === location.pathname);
  });
  document.addEventListener('click', (e) => {
    if (e.defaultPrevented || e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;
    const a = e.target instanceof Element && e.target.closest('a[href]');
    if (!a || a.hasAttribute('download') || (a.target && a.target !== '_self')) return;
    const href = a.href?.baseVal ?? a.getAttribute('href'); // of SVG, too
    const to = new URL(href, location.href);
    if (to.origin !== location.origin || !/^\/ui(\/|$)/.test(to.pathname) || to.pathname.startsWith('/ui/assets/')) return;
    e.preventDefault();
    navigate(to.href);
  });
}

/** useQuery is the query of the address, and what changes it. */
export function useQuery() {
  const { query } = useStore(place);
  const set = (changes, options = { replace: true }) => {
    const next = new URLSearchParams(location.search);
    for (const [name, value] of Object.entries(changes)) {
      next.delete(name);
      for (const v of Array.isArray(value) ? value : [value]) if (v !== null && v !== undefined && v !== '') next.append(name, v);
    }
    const text = next.toString();
    navigate(location.pathname + (text ? '?' + text : ''), options);
  };
  return [query, set];
}

/** match is what {name} stands for in a path, or null where the pattern does not fit. */
export function match(pattern, path) {
  const want = pattern.split('/').filter(Boolean);
  const have = path.split('/').filter(Boolean);
  if (want.length !== have.length) return null;
  const found = {};
  for (let i = 0; i < want.length; i++) {
    let part;
    try { part = decodeURIComponent(have[i]); } catch { return null; }
    if (want[i].startsWith('{')) found[want[i].slice(1, -1)] = part;
    else if (want[i] !== part) return null;
  }
  return found;
}
