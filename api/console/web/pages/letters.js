// Dead letters: messages that no code could handle, put together by their cause, so that one mends the cause and sends all of it again. What they hold is shown as it is.
import { html, useMemo, useState } from '../app/base.js';
import { atLeast, entityURL, get, may, ofKey, send } from '../app/api.js';
import { Dialog, open } from '../app/dialog.js';
import { Icon } from '../app/icons.js';
import { Card, Command, Empty, Failure, Heading, Json, Loading } from '../app/parts.js';
import { useQuery } from '../app/router.js';
import { every, useResource } from '../app/store.js';
import { Time, count } from '../app/time.js';
import { toast } from '../app/toast.js';

const page = 500; // what a page of the API holds, and what one request redrives
const most = 2500; // that are read

const letters = (signal) => atLeast(most, '/v1/dead-letters', {}, signal, 'after');

/** cause is a reason without what differs from one letter to the next: its entity, names in quotes, ids, numbers. */
function cause({ reason, key }) {
  const plain = key ? reason.split(key).join('…') : reason;
  return plain.replace(/"[^"]*"|'[^']*'/g, '…').replace(/[0-9a-f]{8}-[0-9a-f-]{27}/gi, '…').replace(/\b[0-9a-f]*\d[0-9a-f]*\b/gi, '…');
}

/** placeOf is the page of what a letter is about, if it says that. */
const placeOf = (l) => (l.key && l.machine && l.machine !== 'unknown' ? entityURL(l.machine, ofKey(l.key)) : undefined);

/** who gave up on a letter: the engine has a consumer for each partition, which are one for a cause. */
const who = (l) => (/^p\d+$/.test(l.consumer) ? 'the engine' : l.consumer);

/** groups are letters with the same cause, those with most letters first. */
function groups(items) {
  const all = new Map();
  for (const l of items) {
    const id = [who(l), l.machine, cause(l)].join('\n');
    if (!all.has(id)) all.set(id, { id, consumer: who(l), machine: l.machine, cause: cause(l), items: [] });
    all.get(id).items.push(l);
  }
  return [...all.values()].sort((a, b) => b.items.length - a.items.length);
}

/** inPages does the same with some letters, as many at a time as one request takes, and hands over each answer. */
async function inPages(what, some, more, answered) {
  for (let i = 0; i < some.length; i += page) {
    const { data } = await send('POST', '/v1/dead-letters/' + what, { body: { seqs: some.slice(i, i + page).map((l) => l.seq), ...more } });
    answered(data);
  }
}

/** bodyOf is the body of a letter as it is stored, to be edited: JSON.parse would round large numbers. It is the last field of the answer, and no text before it can hold its name with plain quotes. */
async function bodyOf(l) {
  if (typeof l.body === 'string') return l.body;
  const { text } = await get('/v1/dead-letters/' + l.seq);
  const at = text.indexOf(',"body":');
  if (at < 0) return '{}';
  const raw = text.slice(at + 8, text.lastIndexOf('}'));
  const value = JSON.parse(raw);
  return JSON.stringify(value) === raw ? JSON.stringify(value, null, 2) : raw;
}

export default function Letters() {
  const [query, setQuery] = useQuery();
  const it = every(useResource(letters, []), 10000);
  const machine = query.get('machine') || '';
  const machines = useMemo(() => [...new Set((it.data?.items || []).map((l) => l.machine))].filter(Boolean).sort(), [it.data]);
  const shown = (it.data?.items || []).filter((l) => !machine || l.machine === machine);
  const all = groups(shown);
  const done = every(useResource((signal) => get('/v1/dead-letters/settled', { machine, limit: 20 }, signal).then(({ data }) => data), [machine]), 10000);
  const reload = () => { it.reload(); done.reload(); };
  const redrive = async (some, reason) => {
    const outcome = { redriven: 0, failed: [] };
    try {
      await inPages('redrive', some, { reason }, (data) => {
        outcome.redriven += data.redriven.length;
        outcome.failed.push(...data.failed);
      });
      const failed = outcome.failed.length;
      toast(failed ? `${outcome.redriven} were sent again, ${failed} were not: ${outcome.failed[0].detail}.` : `${outcome.redriven} sent again. What still cannot be handled comes back here.`, failed ? 'bad' : 'good');
    } catch (e) {
      toast(`${outcome.redriven} were sent again, then: ${e.message}`, 'bad');
    }
    reload();
  };
  const drop = async (some) => {
    const reason = await open(Write, { title: some.length === 1 ? `Drop letter ${some[0].seq}` : `Drop ${count(some.length)} letters`, text: 'Nobody will ever handle what they hold, and nothing brings it back. Who, why and which is recorded.', label: 'Reason', action: 'Drop', tone: 'danger' });
    if (!reason) return;
    let dropped = 0;
    try {
      await inPages('drop', some, { reason }, (data) => { dropped += data.dropped.length; });
      toast(`${count(dropped)} dropped.`, dropped === some.length ? 'good' : 'bad');
    } catch (e) {
      toast(`${count(dropped)} were dropped, then: ${e.message}`, 'bad');
    }
    reload();
  };
  const edit = async (l) => {
    let begin;
    try {
      begin = await bodyOf(l);
    } catch (e) {
      toast(e.message, 'bad');
      return;
    }
    const sent = await open(Write, { title: `Redrive letter ${l.seq} with another body`, text: 'The command is sent with this body, as one of yours. The letter is gone when that was applied, and stays when it was refused.', label: 'Body, as JSON', action: 'Redrive', tone: 'main', begin,
      run: (text) => { JSON.parse(text); return send('POST', `/v1/dead-letters/${l.seq}/redrive`, { json: '{"body":' + text + '}' }); } });
    if (sent) toast('Applied as you wrote it.', 'good');
    reload();
  };
  const redriveAll = async (g) => {
    const n = g.items.length;
    const reason = n > 1 && await open(Write, { title: `Redrive ${count(n)} letters`, text: `Each is sent to its subject again, and leaves the dead letters. What failed for “${g.cause}” fails again unless that was mended.`, label: 'Reason', optional: true, action: `Redrive ${count(n)}`, tone: 'main' });
    if (n === 1 || reason !== undefined) await redrive(g.items, reason || undefined);
  };
  return html`<${Heading} title="Dead letters" sub="Messages that no code could handle. Nothing waits for them, and nothing is lost: redrive sends one to its subject again." />
    <${Failure} error=${it.error} retry=${it.reload} small=${!!it.data} />
    ${machines.length > 1 && html`<div class="chips" role="group" aria-label="Machines"><button type="button" class="chip" aria-pressed=${!machine} onClick=${() => setQuery({ machine: null })}>All</button>
      ${machines.map((m) => html`<button key=${m} type="button" class="chip" aria-pressed=${machine === m} onClick=${() => setQuery({ machine: m })}>${m}</button>`)}</div>`}
    ${!it.data ? !it.error && html`<${Loading} />` : !all.length ? html`<div class="card"><${Empty} icon="letter" title="No dead letters"><p>Everything that was sent could be handled.</p></${Empty}></div>` : html`
      ${it.data.more && html`<p class="faint small">These are the oldest ${count(it.data.items.length)}; newer ones are shown when these are gone.</p>`}
      ${all.map((g) => html`<${Group} key=${g.id} g=${g} acts=${{ redrive, redriveAll, drop, edit }} open=${all.length === 1} />`)}
      <div class="stack"><p class="faint small">The same on the command line:</p><${Command} text="instar dlq ls" /></div>`}
    <${Failure} error=${done.error} small />${done.data?.items.length > 0 && html`<${Done} list=${done.data} />`}`;
}

/** Done is what was done with letters that are gone: by whom, and why. */
function Done({ list }) {
  return html`<${Card} title="What was done with letters" action=${list.nextCursor && html`<span class="faint small">the last ${list.items.length}</span>`}><ul class="letters">${list.items.map((d) => html`<li key=${d.seq + d.time} class="settled">
    <div>${d.action} by <b>${d.actor}</b>${d.why && html`: ${d.why}`}<p class="small faint">letter <span class="num">${d.seq}</span> of <a class="mono" href=${placeOf(d)}>${d.machine} ${d.key}</a>: ${d.reason}</p></div>
    <span class="faint small"><${Time} at=${d.time} /></span></li>`)}</ul></${Card}>`;
}

function Group({ g, acts, open }) {
  const [shown, setShown] = useState(open ? 20 : 0);
  const [busy, setBusy] = useState(false);
  const run = (f) => async () => { setBusy(true); await f(); setBusy(false); };
  const first = g.items[0];
  const last = g.items[g.items.length - 1];
  const n = g.items.length;
  return html`<section class="card letter-group">
    <header class="letter-head"><div><h2 class="wrap">${g.cause || 'No reason is given'}</h2>
      <p class="small faint">${g.machine && html`<b>${g.machine}</b> · `}given up by ${g.consumer} · ${n > 1 ? html`<${Time} at=${first.time} /> to <${Time} at=${last.time} />` : html`<${Time} at=${first.time} />`}</p></div>
      <div class="letter-acts"><span class="badge badge-bad num">${count(n)}</span>
        ${may('admin') && html`<button type="button" class="button" disabled=${busy} onClick=${run(() => acts.redriveAll(g))}>${busy ? 'Sending…' : n === 1 ? 'Redrive' : `Redrive all ${count(n)}`}</button><button type="button" class="button button-warn" disabled=${busy} onClick=${run(() => acts.drop(g.items))}>${n === 1 ? 'Drop' : 'Drop all'}</button>`}</div></header>
    <button type="button" class="button button-quiet small" aria-expanded=${shown > 0} onClick=${() => setShown(shown ? 0 : 20)}><${Icon} name=${shown ? 'down' : 'right'} />${shown ? 'Hide' : 'Show'} ${n === 1 ? 'it' : 'them'}</button>
    ${shown > 0 && html`<ul class="letters">${g.items.slice(0, shown).map((l) => html`<${Letter} key=${l.seq} l=${l} acts=${acts} />`)}</ul>`}
    ${shown > 0 && shown < n && html`<button type="button" class="button small" onClick=${() => setShown(shown + 100)}>Show more (${count(n - shown)})</button>`}
  </section>`;
}

function Letter({ l, acts }) {
  const [busy, setBusy] = useState(false);
  const run = (f) => async () => { setBusy(true); await f(); setBusy(false); };
  return html`<li><details><summary><span class="mono">${l.key || l.subject}</span><span class="faint small"><span class="num">${l.tries}</span> ${l.tries === 1 ? 'delivery' : 'deliveries'} · <${Time} at=${l.time} /></span></summary>
    <div class="stack">
      <p class="wrap">${l.reason}</p>
      <p class="small faint">letter <span class="num">${l.seq}</span> · consumer <span class="mono">${l.consumer}</span> · subject <span class="mono">${l.subject}</span></p>
      ${l.body === undefined ? html`<p class="faint small">Its body is empty.</p>` : html`<${Json} value=${l.body} label=${`Body of the letter ${l.seq}`} />`}
      <div class="chips">${placeOf(l) && html`<a class="button small" href=${placeOf(l)}>Open the ${l.machine}<${Icon} name="right" /></a>`}
        ${may('admin') && html`<button type="button" class="button small" disabled=${busy} onClick=${run(() => acts.redrive([l]))}>Redrive this one</button>
          ${/\.in\.\d/.test(l.subject) && html`<button type="button" class="button small" disabled=${busy} onClick=${run(() => acts.edit(l))}>Edit and redrive</button>`}
          <button type="button" class="button button-warn small" disabled=${busy} onClick=${run(() => acts.drop([l]))}>Drop this one</button>`}</div>
    </div></details></li>`;
}

/** Write asks for a text, and answers it, or nothing where it is cancelled; with run it is sent before, and stays open where that fails. */
function Write({ title, text, label, action, tone, optional, begin = '', run, close }) {
  const [value, set] = useState(begin);
  const [error, setError] = useState();
  const go = async (e) => {
    e.preventDefault();
    try {
      await run?.(value);
      close(value.trim());
    } catch (problem) {
      setError(problem);
    }
  };
  return html`<${Dialog} title=${title} onClose=${() => close()} wide=${!!run}>
    <form autocapitalize="none" onSubmit=${go}><p>${text}</p>
      <label class="field"><span>${label}</span>${run ? html`<textarea class="input mono" rows="12" spellcheck=${false} autofocus value=${value} onInput=${(e) => set(e.target.value)}></textarea>` : html`<input class="input" autocomplete="off" maxlength="1024" autofocus value=${value} onInput=${(e) => set(e.target.value)} />`}</label>
      <${Failure} error=${error} small />
      <footer class="dialog-foot"><button type="button" class="button" onClick=${() => close()}>Cancel</button><button type="submit" class=${'button button-' + tone} disabled=${!optional && !value.trim()}>${action}</button></footer></form>
  </${Dialog}>`;
}
