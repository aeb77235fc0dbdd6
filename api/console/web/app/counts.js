// How many entities of a machine are in each state, asked for once for all who show it. useCounts(name) is {data: {state: n}, error}, where '' is the state of those whose stored value cannot be read: of all
// that the reader may see, and anew after changes, at most twice a second. useAllCounts is that of several machines; needing is how many of these need somebody.
import { useEffect, useState } from './base.js';
import { get } from './api.js';
import { onChanges } from './live.js';
import { passes, soon, store } from './store.js';

const every = 500;
const all = new Map();

/** statesOf are counts by state, as the API has them. */
export const statesOf = ({ states, parked }) => ({ ...states, '': parked || 0 });

/** needing is how many of a machine need somebody: in a state that failed, or unreadable. */
export const needing = (m, counts) => m.states.reduce((n, s) => n + ((s.failed && counts?.[s.name]) || 0), counts?.[''] || 0);

let batch; // machines that are asked for at once: one request for all of them

function counted(name) {
  batch ??= { names: new Set(), answer: Promise.resolve().then(() => {
    const [first, ...more] = batch.names;
    batch = undefined;
    return more.length ? get('/v1/counts').then(({ data }) => data.items) : get(`/v1/machines/${encodeURIComponent(first)}/counts`).then(({ data }) => [data]);
  }) };
  batch.names.add(name);
  return batch.answer.then((items) => items.find((c) => c.machine === name));
}

function of(name) {
  if (!all.has(name)) {
    const c = { value: store({}), users: 0, load: undefined, timer: undefined, last: 0 };
    c.load = async () => {
      c.last = Date.now();
      try {
        c.value.set({ data: statesOf(await counted(name)) });
      } catch (error) {
        c.value.set((v) => ({ ...v, error }));
        if (c.users && passes(error)) c.later(soon);
      }
    };
    c.later = (ms) => {
      c.timer ??= setTimeout(() => { c.timer = undefined; c.load(); }, Math.max(0, c.last + ms - Date.now()));
    };
    all.set(name, c);
  }
  return all.get(name);
}

/** useAllCounts is a map from names of machines to what useCounts is of each. */
export function useAllCounts(names) {
  const [value, set] = useState(() => new Map(names.map((name) => [name, of(name).value.get()])));
  useEffect(() => {
    const stops = names.map((name) => {
      const c = of(name);
      const look = () => set((v) => new Map(v).set(name, c.value.get()));
      if (c.users++ === 0) { c.load(); c.stop = onChanges(() => c.later(every), { machine: name }); }
      look();
      const unfollow = c.value.follow(look);
      return () => { unfollow(); if (--c.users === 0) { c.stop(); clearTimeout(c.timer); c.timer = undefined; } };
    });
    return () => stops.forEach((stop) => stop());
  }, [names.join()]);
  return value;
}

export const useCounts = (name) => useAllCounts([name]).get(name) || {};
