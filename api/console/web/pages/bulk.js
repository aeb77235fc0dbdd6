// One command for many entities: those that are selected, or all that match the filters. It becomes a batch (/v1/batches), which can be rehearsed, is watched as it goes, and can be stopped.
import { html, useEffect, useState } from '../app/base.js';
import { commandSchema, entityURL, get, Key, may, ofKey, send } from '../app/api.js';
import { Dialog, open } from '../app/dialog.js';
import { blank, Form, written } from '../app/form.js';
import { Failure } from '../app/parts.js';
import { every, useResource } from '../app/store.js';
import { count } from '../app/time.js';
import { toast } from '../app/toast.js';

const mostKeys = 500; // that a batch takes

export function Bulk({ m, filter, selected, matching, rows, clear }) {
  const some = selected.size > 0;
  const over = selected.size > mostKeys;
  if (!rows.length) return null;
  const commands = m.commands.filter((c) => !c.report && !c.birth && may(c.admin ? 'admin' : 'operate'));
  const ask = (command) => open(BatchDialog, { m, command, filter, keys: some ? [...selected] : undefined, matching }).then((op) => {
    if (!op) return;
    clear();
    if (!op.done) toast(`${command.name} goes on.`, 'good', { href: operationURL(op.name), text: 'See how far it is' });
  });
  return html`<div class="bulk" role="group" aria-label="Commands for many">
    <b class="num">${some ? `${count(selected.size)} selected` : matching !== undefined ? `All ${count(matching)}` : 'All that match'}</b>
    ${over ? html`<span class="small">A command goes to ${mostKeys} that are selected at most. Select fewer, or filter the list and send it to all that match.</span>` : html`<label class="order">Send <select class="input" value="" onChange=${(e) => { const c = commands.find((c) => c.name === e.target.value); e.target.value = ''; if (c) ask(c); }}>
      <option value="">a command…</option>${commands.map((c) => html`<option value=${c.name}>${c.name}</option>`)}</select></label>`}
    ${some && html`<button type="button" class="button button-quiet small" onClick=${clear}>Clear</button>`}
  </div>`;
}

function BatchDialog({ m, command, filter, keys, matching, close }) {
  const [form, setForm] = useState();
  const [value, setValue] = useState();
  const [reason, setReason] = useState('');
  const [typed, setTyped] = useState('');
  const [plan, setPlan] = useState();
  const [sent, setSent] = useState();
  const [stuckSince] = useState(() => filter.stuck && new Date(Date.now() - filter.stuck * 60000).toISOString()); // once: what is sent again has to be the same
  const [error, setError] = useState();
  const [busy, setBusy] = useState(false);
  const [keyed] = useState({}); // of what was sent, by its text: the same goes again under its key, or a lost answer would do it twice. For whatever reason: that makes no other batch
  useEffect(() => { commandSchema(m.name, command.name).then((f) => { setForm(f); if (f.schema) setValue(blank(f.schema, f.schemas) ?? {}); }, setError); }, []);
  const request = (dryRun) => ({
    machine: m.name, command: command.name, ...(dryRun && { dryRun: true }), ...(form.schema && { body: value }),
    filter: { namespace: filter.namespace, ...(filter.parent && { parent: filter.parent }), ...(filter.idPrefix && { idPrefix: filter.idPrefix }), ...(keys && { keys }), ...(filter.state.length && { states: filter.state }), ...(filter.label.length && { labels: filter.label }), ...(stuckSince && { sinceBefore: stuckSince }) }, // also of those that are selected: by its turn one may be what it was selected for no more
  });
  const go = async (dryRun) => {
    setBusy(true);
    setError(undefined);
    const key = keyed[JSON.stringify(request(false))] ??= new Key();
    try {
      const { data, status } = await send('POST', '/v1/batches', { json: written(request(dryRun)), headers: dryRun ? {} : { 'Idempotency-Key': key.value, ...(reason && { 'Instar-Reason': reason }) } });
      if (dryRun) setPlan(data); else { key.after({ status }); setSent(data); operation.reload(); }
    } catch (e) {
      setError(e);
      if (!dryRun) key.after(e);
    } finally { setBusy(false); }
  };
  const operation = useOperation(sent?.name, true); // nobody can end the pause from within a dialog
  const op = operation.data || sent;
  const word = `${command.name} ${keys ? keys.length : matching ?? 'all'}`;
  const ready = form && (!command.destructive || typed === word);
  const what = keys ? `${keys.length} selected ${m.plural}` : matching !== undefined ? `all ${matching} ${m.plural} that match` : `all ${m.plural} that match`;
  return html`<${Dialog} title=${`${command.name}: ${what}`} wide onClose=${() => close(op)}>
    ${op ? html`<${Progress} op=${op} total=${plan?.matched ?? keys?.length ?? matching} m=${m} />
      <${Failure} error=${operation.error || error} small />
      <footer class="dialog-foot">${op.metadata.step === 'stalled' && html`<button type="button" class="button" disabled=${busy} onClick=${() => go(false)}>Go on with it</button>`}<${Stop} op=${op} reload=${operation.reload} />
        <button type="button" class="button button-main" onClick=${() => close(op)}>${op.done ? 'Close' : 'Leave it running'}</button></footer>`
    : html`<form autocapitalize="none" onSubmit=${(e) => { e.preventDefault(); if (ready && !busy) go(false); }}>
      ${command.doc && html`<p class="sub">${command.doc}</p>`}
      ${form?.replaces && html`<p class="bad">This replaces what each of them has: what is left empty here is removed, unless its text says otherwise.</p>`}
      ${form?.schema && value !== undefined && html`<${Form} schema=${form.schema} schemas=${form.schemas} value=${value} onChange=${(v) => setValue(v ?? {})} errors=${error?.errors} whole=${form.replaces} />`}
      <label class="field"><span class="field-name">Reason</span><input class="input" maxlength="1024" placeholder="Shown in the timelines" value=${reason} onInput=${(e) => setReason(e.target.value)} /></label>
      ${command.destructive && html`<label class="field"><span class="field-name">This cannot be undone. Type <b class="mono">${word}</b> to confirm</span><input class="input mono" autocomplete="off" value=${typed} onInput=${(e) => setTyped(e.target.value)} /></label>`}
      <footer class="dialog-foot"><${Failure} error=${error} small />
        ${plan && html`<div class="plan" role="status"><b>Dry run: ${count(plan.matched)} match now. Nothing was sent.</b><p class="small mono">${plan.keys.slice(0, 12).join(', ')}${plan.matched > 12 ? ' …' : ''}</p></div>`}
        <button type="button" class="button" disabled=${!form || busy} onClick=${(e) => e.target.form.reportValidity() && go(true)}>Dry run</button><button type="button" class="button" onClick=${() => close()}>Cancel</button>
        <button type="submit" class=${'button ' + (command.destructive ? 'button-danger' : 'button-main')} disabled=${!ready || busy}>Send</button></footer></form>`}
  </${Dialog}>`;
}

/** operationURL is the page of a batch. */
export const operationURL = (name) => '/ui/operations/' + encodeURIComponent(name);

/** useOperation follows a batch by its name until it has ended, also while the page is paused if it is always: a resource. */
export function useOperation(name, always) {
  const it = useResource((signal) => (name ? get('/v1/operations/' + encodeURIComponent(name), {}, signal).then(({ data }) => data) : Promise.resolve(undefined)), [name]);
  const ended = !name || it.data?.done || it.error?.status === 404;
  return every(it, ended ? 0 : it.error || it.data?.metadata.step === 'stalled' ? 3000 : 400, always);
}

/** Stop ends a batch; what was sent is not taken back. */
export function Stop({ op, reload }) {
  const stop = () => send('POST', `/v1/operations/${encodeURIComponent(op.name)}/cancel`).then(reload, (e) => toast(`It could not be stopped: ${e.message}`, 'bad'));
  return !op.done && may('operate') && html`<button type="button" class="button button-danger" disabled=${op.metadata.step === 'cancelling'} onClick=${stop}>Stop</button>`;
}

/** Progress shows how a batch stands, how it ended, and what was refused. */
export function Progress({ op, total, m }) {
  const p = op.metadata.progress || op.response || {};
  const done = p.matched || 0;
  const whole = op.response ? Math.max(done, 1) : total && Math.max(total, done);
  const how = { stalled: '. It has stalled: its process is gone, or commands failed.', cancelling: '. It is being stopped…' }[op.metadata.step] || (op.response ? '. Done.' : op.error ? '.' : '…');
  const parts = [`${p.applied || 0} applied`, `${p.unchanged || 0} unchanged`, `${p.refused || 0} refused`, p.stored && `${p.stored} stored and not answered yet`, p.failed && `${p.failed} failed`].filter(Boolean).join(', ');
  return html`<div class="progress">${(whole || !op.done) && html`<progress max=${whole || undefined} value=${whole ? done : undefined} aria-label="Progress"></progress>`}
    <p role="status"><b class="num">${count(done)}</b>${total ? ` of ${count(total)}` : ''} · ${parts}${how}</p>
    ${op.error && html`<p class="bad"><b>${op.error.code}</b>: ${op.error.message}.</p>`}
    ${p.failures?.length > 0 && html`<table class="plain-table"><thead><tr><th scope="col">Entity</th><th scope="col">Why not</th></tr></thead><tbody>${p.failures.map((f) => html`<tr key=${f.key}><td><a href=${entityURL(m, ofKey(f.key))}>${f.key}</a></td><td>${f.detail || f.code}</td></tr>`)}</tbody></table>`}
    ${(p.refused || 0) + (p.failed || 0) > (p.failures?.length || 0) && html`<p class="faint small">These are the first ${p.failures?.length || 0}.</p>`}</div>`;
}
