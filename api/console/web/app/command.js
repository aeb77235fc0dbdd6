// Sending commands. openCommand({m, command, entity, etag}) shows the form of a command, made from its schema, and sends it: for an entity, or for a new one where the command
// begins a life. It can be rehearsed first (?dryRun), is sent with If-Match of what was seen and under a key that makes it safe to send twice, and asks for the name of the
// thing where it destroys something. It answers true when it was sent. Actions are the buttons of an entity's commands, with the reason why some cannot be sent now.
import { html, useEffect, useRef, useState } from './base.js';
import { commandSchema, entityPath, entityURL, get, Key, keyOf, living, may, optional, own, Problem, send } from './api.js';
import { Dialog, open } from './dialog.js';
import { Icon } from './icons.js';
import { blank, Form, read, resolve, written } from './form.js';
import { Failure, Loading, State } from './parts.js';
import { navigate } from './router.js';
import { toast } from './toast.js';
import { namespace } from './frame.js';

/** commandsOf is [{command, why}] of an entity, without those that who looks may not send; why says why it cannot be sent now, and is empty for one that can. */
function commandsOf(m, entity) {
  return m.commands.filter((c) => !c.report && may(c.admin ? 'admin' : 'operate') && !(c.birth && !entity.allowedCommands.includes(c.name))).map((command) => {
    let why = entity.forbiddenCommands?.[command.name];
    if (!entity.allowedCommands.includes(command.name)) {
      const from = command.from.filter(Boolean);
      why = from.length ? `Not in ${entity.state}: it is taken in ${from.slice(0, 4).join(', ')}${from.length > 4 ? ' and others' : ''}.` : `Not in ${entity.state}.`;
    }
    return { command, why };
  });
}

/** Actions are the commands: those that can be sent now, the first four as buttons, and under More those that cannot, with the reason. done is called when the form of one is closed. */
export function Actions({ m, e, etag, done }) {
  const [more, setMore] = useState(false);
  const all = commandsOf(m, e);
  const now = all.filter((c) => !c.why);
  const send = (command) => { setMore(false); openCommand({ m, command, entity: e, etag }).then(done); };
  const rest = [...now.slice(4), ...all.filter((c) => c.why)];
  return html`${now.slice(0, 4).map(({ command }, i) => html`<button key=${command.name} type="button" class=${'button' + (command.destructive ? ' button-warn' : i ? '' : ' button-main')} title=${command.doc} onClick=${() => send(command)}>${command.name}</button>`)}
    ${rest.length > 0 && html`<div class="menu"><button type="button" class="button" aria-expanded=${more} onClick=${() => setMore(!more)}>More<${Icon} name="down" /></button>
      ${more && html`<ul class="menu-list" onKeyDown=${(k) => k.key === 'Escape' && setMore(false)}>${rest.map(({ command, why }) => html`<li key=${command.name}>
        <button type="button" class="menu-item" disabled=${!!why} onClick=${() => send(command)}><b>${command.name}</b><span class="small">${why || command.doc}</span></button></li>`)}</ul>`}</div>`}`;
}

export const openCommand = (props) => open(CommandDialog, props);

function CommandDialog({ m, command, entity, etag, close }) {
  const [form, setForm] = useState();
  const [value, setValue] = useState();
  const [id, setId] = useState('');
  const [parent, setParent] = useState('');
  const [ns, setNs] = useState(own() || (namespace.get() === '*' ? 'default' : namespace.get()));
  const [reason, setReason] = useState('');
  const [typed, setTyped] = useState('');
  const [guard, setGuard] = useState(true);
  const [plan, setPlan] = useState();
  const [error, setError] = useState();
  const [busy, setBusy] = useState('');
  const [key] = useState(() => new Key());
  const seen = useRef({ etag, is: '' }); // what the mark is about
  const about = (f, e, had) => written([e.state, e.since, e.createdAt, f.replaces && f.schema && begin(f, had)]); // a state that was left and entered again, as by an approval, has another since
  useEffect(() => {
    const load = async () => {
      const f = await commandSchema(m.name, command.name);
      const had = f.replaces && f.schema && entity && read((await get(await entityPath(m, entity), { namespace: entity.namespace })).text); // with the numbers that the page has rounded
      if (entity) seen.current.is = about(f, entity, had);
      setForm(f);
      if (f.schema) setValue(begin(f, had));
    };
    load().catch(setError);
  }, []);
  const target = entity || { id, parent: parent || undefined, namespace: ns || own() || 'default' };
  const danger = command.destructive && entity;
  const ready = form && target.id && (!m.parent || target.parent) && (!danger || typed === entity.id);
  /** made reports whether it was sent under this key before, and decided, though the answer was lost. A step that is stored may be that of another command. */
  const made = async () => ![undefined, 'stored'].includes((await optional(`/v1/operations/${m.name}.${keyOf(target)}.${key.value}`))?.metadata.step);
  /** same reports whether what has changed is neither the state nor what the form began with, as progress is; then its revision is that of now. */
  const same = async (path) => {
    const now = await get(path, { namespace: target.namespace });
    return about(form, now.data, read(now.text)) === seen.current.is && now.etag;
  };
  const go = async (dryRun) => {
    setBusy(dryRun ? 'dry' : 'send');
    setError(undefined);
    setPlan(undefined);
    try {
      const path = await entityPath(m, target);
      const sent = async (tries, tag = seen.current.etag) => {
        const headers = { ...(reason && { 'Instar-Reason': reason }), ...(!dryRun && { 'Idempotency-Key': key.value }), ...(entity && etag && guard && { 'If-Match': tag }) };
        try {
          return await send('POST', `${path}/${command.name}`, { json: form.schema && written(value), headers, query: { namespace: target.namespace, ...(dryRun && { dryRun: 'true' }) } });
        } catch (e) {
          if (!dryRun) key.after(e);
          const again = e.status === 412 && tries > 0 && !key.lost && await same(path);
          if (!again) throw e;
          if (!dryRun) seen.current.etag = again; // which goes with the key: what is sent again after an answer that was lost has to be the same
          return sent(tries - 1, again);
        }
      };
      if (!entity && form.replaces && living(m).includes((await optional(path, { namespace: target.namespace }))?.state) && !(await made())) throw new Problem(409, { title: 'It is there', detail: `${target.id} exists: change it on its page.` });
      const { data, status } = await sent(3);
      if (dryRun) { setPlan(data); return; }
      const url = entityURL(m, target);
      toast(status === 202 ? `${command.name} of ${target.id} is stored and will be decided soon.` : data.outcome === 'applied' ? `${command.name}: ${target.id} is ${data.state}.` : `${command.name} changed nothing: ${target.id} is ${data.state}.`, 'good', entity ? undefined : { href: url, text: 'Open it' });
      close(true);
      if (!entity) navigate(url);
    } catch (e) {
      setError(e);
    } finally {
      setBusy('');
    }
  };
  return html`<${Dialog} title=${entity ? `${command.name} ${m.name} ${entity.id}` : `New ${m.name}: ${command.name}`} wide=${!!form?.schema} onClose=${() => close(false)}>
    <form autocapitalize="none" onSubmit=${(e) => { e.preventDefault(); if (ready && !busy) go(false); }}>
      ${command.doc && html`<p class="sub">${command.doc}</p>`}
      ${!form && !error && html`<${Loading} rows=${2} />`}
      ${!entity && html`<div class="fields">
        ${m.parent && html`<label class="field"><span class="field-name">${m.parent}<span class="required" aria-hidden="true">*</span></span><input class="input mono" required value=${parent} onInput=${(e) => setParent(e.target.value)} /></label>`}
        <label class="field"><span class="field-name">Id<span class="required" aria-hidden="true">*</span></span><input class="input mono" required autofocus pattern="[a-z0-9]([a-z0-9\\-]{0,61}[a-z0-9])?" value=${id} onInput=${(e) => setId(e.target.value)} /><span class="field-hint">Small letters, digits and dashes, up to 63</span></label>
        <label class="field"><span class="field-name">Namespace</span><input class="input mono" value=${ns} readonly=${!!own()} onInput=${(e) => setNs(e.target.value)} /></label></div>`}
      ${form?.schema && value !== undefined && html`<${Form} schema=${form.schema} schemas=${form.schemas} value=${value} onChange=${(v) => setValue(v ?? {})} errors=${error?.errors} whole=${command.birth ? 'new' : form.replaces} />`}
      <label class="field"><span class="field-name">Reason</span><input class="input" maxlength="1024" placeholder="Shown in the timeline" value=${reason} onInput=${(e) => setReason(e.target.value)} /></label>
      ${entity && html`<label class="check"><input type="checkbox" checked=${guard} onChange=${(e) => setGuard(e.target.checked)} /><span>Only if nothing has changed since I looked: its state${form?.replaces && ', and what this form began with'}</span></label>`}
      ${danger && html`<label class="field"><span class="field-name">This cannot be undone. Type <b class="mono">${entity.id}</b> to confirm</span><input class="input mono" autocomplete="off" value=${typed} onInput=${(e) => setTyped(e.target.value)} /></label>`}
      <footer class="dialog-foot">
        <${Failure} error=${error} small />
        ${plan && html`<${Plan} plan=${plan} m=${m} />`}
        <button type="button" class="button" disabled=${!form || !target.id || !!busy} onClick=${(e) => e.target.form.reportValidity() && go(true)}>${busy === 'dry' ? 'Rehearsing…' : 'Dry run'}</button>
        <button type="button" class="button" onClick=${() => close(false)}>Cancel</button>
        <button type="submit" class=${'button ' + (danger ? 'button-danger' : 'button-main')} disabled=${!ready || !!busy}>${busy === 'send' ? 'Sending…' : danger ? `${command.name} ${entity.id}` : command.name}</button>
      </footer>
    </form>
  </${Dialog}>`;
}

/** begin is what a form begins with: of a command that replaces what there is, what the entity has that it is given, so that one changes it rather than writes it anew. */
function begin(f, entity) {
  const value = blank(f.schema, f.schemas) ?? {};
  const had = entity && { labels: entity.labels, ...entity.data };
  for (const name in had) if (had[name] !== undefined && name in resolve(f.schema, f.schemas).properties) value[name] = had[name];
  return value;
}

/** Plan shows what a rehearsal has said. */
function Plan({ plan, m }) {
  const d = plan.dryRun || {};
  return html`<div class="plan" role="status"><b>Dry run: nothing was stored.</b>
    <p>${plan.outcome === 'applied' ? html`${d.from ? html`<${State} m=${m} state=${d.from} /> would become ` : 'It would begin as '}<${State} m=${m} state=${plan.state} />` : 'It would change nothing.'}</p>
    ${d.events?.length > 0 && html`<p class="small">Events: <span class="mono">${d.events.join(', ')}</span></p>`}
    ${d.effects?.length > 0 && html`<p class="small">Starts: <span class="mono">${d.effects.join(', ')}</span></p>`}</div>`;
}
