// One task while it is done: how far it is, what it has written, and its log as it is written.
import { html, useEffect, useLayoutEffect, useRef, useState } from '../app/base.js';
import { entityURL, get, machine, namespaceOf, ofMachines } from '../app/api.js';
import { Actions } from '../app/command.js';
import { Icon } from '../app/icons.js';
import { followLog, useChanges } from '../app/live.js';
import { Card, Empty, Failure, Heading, Mark, Rows, State, drawn } from '../app/parts.js';
import { useQuery } from '../app/router.js';
import { useResource, useStore } from '../app/store.js';
import { Since, Time, bytes, count, duration, exact, prefs } from '../app/time.js';
import { Progress, Why, taskPath } from './tasks.js';

const most = 5000; // lines that are kept in the page

/** useLog follows the log of a task by its key: {lines, state}. */
function useLog(key) {
  const [log, setLog] = useState({ lines: [], state: 'connecting' });
  useEffect(() => {
    let last = 0;
    setLog({ lines: [], state: 'connecting' });
    return followLog(key, ({ lines = [], state }) => {
      const more = [];
      for (const l of lines) if (l.seq > last) { last = l.seq; more.push(l); } // one bundle may have some twice
      if (more.length || state) setLog((l) => ({ state: state || l.state, lines: more.length ? [...l.lines, ...more].slice(-most) : l.lines }));
    });
  }, [key]);
  return log;
}

export default function TaskLog({ params }) {
  const [query] = useQuery();
  const ns = namespaceOf(query);
  const at = { parent: params.repository, id: params.id, namespace: ns };
  const path = taskPath(at);
  const it = ofMachines(useResource(async (signal) => ({ m: await machine('task'), ...(await get(path, { namespace: ns }, signal)) }), [path, ns]));
  const key = `${ns}.${params.repository}.${params.id}`;
  useChanges(it.reload, { machine: 'task', key });
  const title = `${params.repository}/${params.id}`;
  const crumbs = [{ href: '/ui/tasks', text: 'Tasks' }];
  if (!it.data) return html`<${Heading} title=${title} crumbs=${crumbs} />${drawn(it)}`;
  const { m, data: e, etag } = it.data;
  const t = e.data || {};
  return html`<${Heading} title=${title} crumbs=${crumbs} sub=${html`<span class="facts"><${State} m=${m} state=${e.state} /><span>for <${Since} at=${e.since} /></span><span class="label">${t.type}</span>${t.title && html`<span>${t.title}</span>`}</span>`}>
      <${Actions} m=${m} e=${e} etag=${etag} />
      <a class="button" href=${entityURL(m, e)}>Timeline and data<${Icon} name="right" /></a></${Heading}>
    <${Failure} error=${it.error} small />
    ${e.lastError && e.state === 'failed' && html`<div class="failure failure-small"><${Icon} name="alert" /><div><b>${e.lastError.code}</b><p>${e.lastError.message}</p></div></div>`}
    ${e.state === 'running' && html`<${Card}><${Progress} p=${t.progress || { percent: 0, message: 'not told yet' }} /></${Card}>`}
    ${e.state === 'queued' && html`<${Card}><p>It waits for its turn since <${Time} at=${t.queuedAt || e.since} />. <${Why} t=${at} /></p></${Card}>`}
    <div class="entity">
      <div class="entity-main"><${Log} of=${key} /></div>
      <aside class="entity-side" aria-label="Facts"><${Attempts} t=${t} e=${e} /><${Documents} path=${path} ns=${ns} t=${t} /></aside>
    </div>`;
}

function Log({ of }) {
  const log = useLog(of);
  const { clock } = useStore(prefs);
  const [follow, setFollow] = useState(true);
  const [find, setFind] = useState('');
  const frame = useRef();
  const lines = find ? log.lines.filter((l) => l.line.toLowerCase().includes(find.toLowerCase())) : log.lines;
  useLayoutEffect(() => { if (follow && frame.current) frame.current.scrollTop = frame.current.scrollHeight; }, [lines.length, log.lines, follow]);
  const onScroll = () => { const f = frame.current; setFollow(f.scrollHeight - f.scrollTop - f.clientHeight < 24); };
  const words = { live: ['good', 'Live'], connecting: ['warn', 'Connecting'], reconnecting: ['bad', 'Reconnecting'], crowded: ['warn', 'Too many logs are open'], refused: ['bad', 'Refused'] };
  const [tone, text] = words[log.state];
  return html`<section class="stack" aria-label="Log">
    <div class="toolbar"><span class=${'pill pill-' + tone}><span class=${'dot dot-' + tone} aria-hidden="true"></span>${text}</span>
      <input class="input" type="search" aria-label="Lines with" placeholder="Line has…" value=${find} onInput=${(e) => setFind(e.target.value)} spellcheck=${false} autocomplete="off" />
      <label class="check small"><input type="checkbox" checked=${follow} onChange=${(e) => setFollow(e.target.checked)} /><span>Follow the end</span></label>
      <span class="faint small num">${count(lines.length)}${find ? ` of ${count(log.lines.length)}` : ''} ${log.lines.length === 1 ? 'line' : 'lines'}</span></div>
    <div class="log" ref=${frame} onScroll=${onScroll} tabindex="0" role="log" aria-live="off" aria-label="Lines of the log">
      ${lines.length ? lines.map((l, i) => html`${i > 0 && l.attempt !== lines[i - 1].attempt && html`<div class="log-break" key=${'a' + l.seq}>next attempt</div>`}<div class="log-line" key=${l.seq}><time datetime=${l.at} title=${l.at} class="num">${exact(Date.parse(l.at), clock).slice(11)}</time><span>${l.line}</span></div>`)
    : html`<${Empty} icon="task" title=${find ? 'No line has that' : 'No lines yet'}><p>${find ? '' : 'What the task writes appears here as it is written.'}</p></${Empty}>`}
    </div></section>`;
}

function Attempts({ t, e }) {
  const history = [...(t.history || [])].reverse();
  const time = (at) => at && html`<${Time} at=${at} />`;
  return html`<${Card} title="Facts"><${Rows} of=${{ Pool: t.pool || 'nodes', Priority: html`<span class="num">${t.priority || 5}</span>`, Attempt: t.attempt && html`<span class="num">${t.attempt} of ${t.attempts || t.most || 3}</span>`, Started: time(t.startedAt), Ended: e.state !== 'running' && time(t.endedAt),
      'Runs after': t.runAfter?.join(', '), 'Next run': time(t.nextRun) }} /></${Card}>
    ${history.length > 0 && html`<${Card} title="Attempts that ended"><ul class="attempts">${history.map((h) => html`<li key=${h.id}><${Mark} ...${h.outcome === 'succeeded' ? { kind: 'steady', icon: 'check' } : { kind: ['failed', 'timeout', 'stuck'].includes(h.outcome) ? 'failed' : 'ended' }}>${h.outcome}</${Mark}>
      <span class="small faint"><${Time} at=${h.endedAt} />, took ${duration(Date.parse(h.endedAt) - Date.parse(h.startedAt))}${h.worker && html` · ${h.worker}`}</span>${h.message && html`<p class="small wrap">${h.message}</p>`}</li>`)}</ul></${Card}>`}`;
}

function Documents({ path, ns, t }) {
  const list = t.result?.documents || [];
  if (!t.result) return null;
  return html`<${Card} title="Result">${t.result.summary && html`<p>${t.result.summary}</p>`}
    ${list.length > 0 && html`<ul class="stack">${list.map((d) => html`<li key=${d.name} class="small"><a href=${`${path}/document?namespace=${encodeURIComponent(ns)}&name=${encodeURIComponent(d.name)}`} target="_blank" rel="noopener">${d.name.split('/').pop()}<${Icon} name="out" /></a> <span class="faint num">${bytes(d.size || 0)}</span></li>`)}</ul>`}</${Card}>`;
}
