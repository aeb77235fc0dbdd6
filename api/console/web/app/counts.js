// How many entities of a machine are in each state, asked for once for all who show it. useCounts(name) is {data: {state: n}, error}: of all that the reader may see, and anew after changes, at
// most twice a second.
import { useEffect, useState } from './base.js';
import { get } from './api.js';
import { onChanges } from './live.js';
import { store, useStore } from './store.js';

const every = 500;
const all = new Map();

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
        const counts = await counted(name);
        c.value.set({ data: counts.states, parked: counts.parked });
      } catch (error) {
        c.value.set((v) => ({ ...v, error }));
      }
    };
    c.soon = () => {
      c.timer ??= setTimeout(() => { c.timer = undefined; c.load(); }, Math.max(0, c.last + every - Date.now()));
    };
    all.set(name, c);
  }
  return all.get(name);
}

export function useCounts(name) {
  const c = of(name);
  useEffect(() => {
    if (c.users++ === 0) {
      c.load();
      c.stop = onChanges(c.soon, { machine: name });
    }
    return () => {
      if (--c.users === 0) { c.stop(); clearTimeout(c.timer); c.timer = undefined; }
    };
  }, [name]);
  return useStore(c.value);
}

/** useAllCounts is useCounts of several machines: a map from names to {state: n}. */
export function useAllCounts(names) {
  const [value, set] = useState(new Map());
  const id = names.join();
  useEffect(() => {
    const stops = names.map((name) => {
      const c = of(name);
      const look = () => set((v) => new Map(v).set(name, c.value.get().data));
      if (c.users++ === 0) { c.load(); c.stop = onChanges(c.soon, { machine: name }); }
      look();
      const unfollow = c.value.follow(look);
      return () => { unfollow(); if (--c.users === 0) { c.stop(); clearTimeout(c.timer); c.timer = undefined; } };
    });
    return () => stops.forEach((stop) => stop());
  }, [id]);
  return value;
}
