// Stores: values that components follow. store(v) makes one; useStore(s) has a component render when it changes. useResource(load, deps) loads something
// asynchronously, keeps what it had while it loads again, and drops answers that come too late: {data, error, loading, reload, idle}; useMore(load, deps) is one of a list, of which more is loaded when its end comes near; every(resource, ms) loads it anew every so often.
import { useState, useEffect, useRef, useCallback } from './base.js';

/** store holds a value; set takes a value or a function of the one before. */
export function store(value) {
  const followers = new Set();
  return {
    get: () => value,
    set(next) {
      const after = typeof next === 'function' ? next(value) : next;
      if (Object.is(after, value)) return;
      value = after;
      for (const f of [...followers]) f(value);
    },
    follow(f) {
      followers.add(f);
      return () => followers.delete(f);
    },
  };
}

/** useStore is the value of a store, or what select makes of it. */
export function useStore(s, select = (v) => v) {
  const [value, set] = useState(() => select(s.get()));
  const pick = useRef(select);
  pick.current = select;
  useEffect(() => {
    const look = () => set(() => pick.current(s.get()));
    look();
    return s.follow(look);
  }, [s]);
  return value;
}

/** stored is a store that this browser remembers under a name. A function that is set gets what another tab may have stored meanwhile. */
export function stored(name, initial) {
  const load = (value) => {
    try {
      return JSON.parse(localStorage.getItem('instar.' + name)) ?? value;
    } catch { return value; } // a browser that keeps nothing
  };
  const value = load(initial);
  const s = store(value);
  s.follow((v) => {
    try { localStorage.setItem('instar.' + name, JSON.stringify(v)); } catch { /* as above */ }
  });
  return { ...s, set: (next) => s.set(typeof next === 'function' ? next(load(s.get())) : next) };
}

/** passes reports whether an error passes by itself: there was no answer, or the server cannot give one now, as while it starts, or a proxy does not reach it. What was asked for is to be asked for again. */
export const passes = (e) => [0, 429, 502, 503, 504].includes(e.status);

/** soon is in how many ms. */
export const soon = 2000;

/**
 * useResource calls load(signal) at first and whenever deps change. What it had before stays until there is something new, unless deps
 * changed; an error does not hide the data, and a server that cannot answer now is asked again. reload loads again; calls while it loads lead to one more.
 */
export function useResource(load, deps) {
  const [state, set] = useState({ data: undefined, error: undefined, loading: true });
  const run = useRef({ load, busy: false, again: false, abort: null });
  run.current.load = load;
  const reload = useCallback(() => {
    const r = run.current;
    if (r.busy) { r.again = true; return; }
    r.busy = true;
    const abort = new AbortController();
    r.abort = abort;
    r.load(abort.signal).then(
      (data) => !abort.signal.aborted && set({ data, error: undefined, loading: false }),
      (error) => {
        if (abort.signal.aborted) return;
        set((s) => ({ ...s, error, loading: false }));
        if (passes(error)) setTimeout(() => !abort.signal.aborted && r.abort === abort && reload(), soon);
      },
    ).finally(() => {
      if (r.abort !== abort) return;
      r.busy = false;
      if (r.again) { r.again = false; reload(); }
    });
  }, []);
  useEffect(() => {
    set({ data: undefined, error: undefined, loading: true });
    const r = run.current;
    r.busy = r.again = false;
    reload();
    return () => { r.abort?.abort(); r.abort = null; };
  }, deps);
  const idle = () => !run.current.busy;
  return { ...state, reload, idle };
}

/** useMore is useResource of a list, {items, more}: load(least, signal) loads so many, if there are. onEnd, for a Table, asks for 500 more than there are; rest is for how long, in ms, it is left after changes before it is loaded anew: a second for each request of 500, so that a long list costs no more than a short one. */
export function useMore(load, deps) {
  const wanted = useRef(1);
  const it = useResource((signal) => load(wanted.current, signal), deps);
  const onEnd = () => {
    if (!it.data.more || wanted.current > it.data.items.length) return;
    wanted.current = it.data.items.length + 500;
    it.reload();
  };
  return { ...it, onEnd, rest: 1000 * Math.max(1, Math.ceil((it.data?.items.length || 0) / 500)) };
}

/** paused is whether what is shown is to stay as it is, until it is false again. */
export const paused = store(false);

/** every has a resource loaded anew so many ms after each answer while the page is seen, and not paused unless it is always; 0 ms is never. */
export function every(resource, ms, always) {
  useEffect(() => {
    if (!ms) return undefined;
    const look = () => !document.hidden && (always || !paused.get()) && resource.idle() && resource.reload();
    const timer = setInterval(look, ms);
    const unfollow = paused.follow(look);
    return () => { clearInterval(timer); unfollow(); };
  }, [ms, resource.data, resource.error]);
  return resource;
}
