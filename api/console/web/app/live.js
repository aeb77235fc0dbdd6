// What changes, as it changes. useChanges(f, filter) calls f(changes) at most 4 times a second with [{machine, key, item}], and f(null) when changes were
// missed or the reader resumes after a pause: load again then. followLog(key, f) follows the log of a task. connection is 'connecting', 'live', 'stale', 'reconnecting' or 'signedout'. pause()
// and resume() concern this tab only. announce(text) says something to screen readers, politely and not too often.
import { paused, store } from './store.js';
import { useEffect, useRef } from './base.js';

/** connection is how the stream stands, also while this tab is paused. */
export const connection = store('connecting');

const listeners = new Set();
const readers = new Map(); // key of a task → who reads its log
let port;
let owed; // whether what is shown has to be loaded again once the stream is live

function missed() {
  if (!paused.get()) for (const f of [...listeners]) f(null);
}

function tell(message) {
  switch (message.type) {
    case 'state':
      connection.set(message.state);
      if (message.state === 'stale') { owed = true; missed(); } // answers say that they are stale, and that they are not any more
      else if (message.state === 'live' && owed) { owed = false; missed(); }
      break;
    case 'changes':
      if (!paused.get()) for (const f of [...listeners]) f(message.items);
      break;
    case 'log':
      if (paused.get() && message.lines) break; // they come again when it goes on
      for (const f of readers.get(message.key) || []) f(message);
      if (message.state === 'refused') readers.delete(message.key);
      break;
    case 'logs':
      for (const all of readers.values()) for (const f of all) f({ state: message.state });
      break;
    case 'reset':
      missed();
      break;
  }
}

/** start opens the stream, in the worker that tabs share where the browser has such ones. It begins at counts, an answer of /v1/counts, where nothing was loaded before these; else everything is loaded again when it begins. */
export function start(counts) {
  if (port) return;
  const worker = new URL('./worker.js', import.meta.url);
  if (typeof SharedWorker === 'undefined') { // then this tab has one of its own
    const channel = new MessageChannel();
    import(worker).then(() => self.onconnect({ ports: [channel.port2] }));
    port = channel.port1;
  } else port = new SharedWorker(worker, { type: 'module', name: 'instar' }).port;
  port.onmessage = ({ data }) => tell(data);
  port.start();
  port.postMessage({ hello: { since: counts ? Date.now() : 0, counts } });
  addEventListener('pagehide', () => port.postMessage('bye'));
  addEventListener('pageshow', (e) => {
    if (!e.persisted) return;
    connection.set('connecting'); // what has changed was told to nobody here, nor who has signed in or out
    port.postMessage({ hello: { since: 0 } });
    for (const key of readers.keys()) port.postMessage({ follow: key });
  });
}

/**
 * followLog calls f with {lines: [{seq, at, attempt, line}]}, from the first that is kept on, some of them perhaps again, and with {state}: live, reconnecting, crowded (too many others are followed)
 * or refused, which is the last that is said; until what it returns is called. key is <namespace>.<repository>.<task>. All logs of all tabs come over one connection.
 */
export function followLog(key, f) {
  start();
  if (!readers.has(key)) readers.set(key, new Set());
  readers.get(key).add(f);
  port.postMessage({ follow: key });
  return () => {
    const all = readers.get(key);
    if (!all?.delete(f) || all.size) return;
    readers.delete(key);
    port.postMessage({ leave: key });
  };
}

/** retry has a broken connection opened now. */
export const retry = () => port?.postMessage('now');

/** again opens the stream anew, for who has signed in or out: what one may see is not for another. */
export const again = () => port?.postMessage('again');

/** pause keeps what is shown as it is, until resume. */
export const pause = () => paused.set(true);

export function resume() {
  paused.set(false);
  for (const key of readers.keys()) port.postMessage({ follow: key }); // from the first line on: readers know which they have
  for (const f of [...listeners]) f(null);
}

/** onChanges calls f as useChanges does, until what it returns is called. */
export function onChanges(f, { machine, key } = {}) {
  const listen = (items) => {
    if (!items) { f(null); return; }
    const ours = items.filter((c) => (!machine || c.machine === machine) && (!key || c.key === key));
    if (ours.length) f(ours);
  };
  listeners.add(listen);
  return () => listeners.delete(listen);
}

/** useChanges follows what changes, of one machine or key where the filter says so. */
export function useChanges(f, { machine, key } = {}) {
  const latest = useRef(f);
  latest.current = f;
  useEffect(() => onChanges((items) => latest.current(items), { machine, key }), [machine, key]);
}

/** useReload calls reload after changes, at once and then at most every so many ms: for what has to be asked for anew, as counts. */
export function useReload(reload, filter, ms = 500) {
  const timing = useRef({});
  timing.current.reload = reload; // the newest: what is asked for may have changed while the timer ran
  useEffect(() => () => clearTimeout(timing.current.timer), []);
  useChanges(() => {
    const t = timing.current;
    if (t.timer) return;
    const wait = Math.max(0, (t.last || 0) + ms - Date.now());
    t.timer = setTimeout(() => { t.timer = undefined; t.last = Date.now(); t.reload(); }, wait);
  }, filter);
}

let last = 0;
let saying;

/** announce says a text to screen readers: the newest one, at most every five seconds. */
export function announce(text) {
  clearTimeout(saying);
  saying = setTimeout(() => {
    last = Date.now();
    const region = document.getElementById('polite');
    if (region) region.textContent = text;
  }, Math.max(0, last + 5000 - Date.now()));
}
