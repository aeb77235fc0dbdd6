// Forms that are made from JSON schemas. Form({schema, schemas, value, onChange, errors, whole}) shows fields for a value of the schema; schemas has what $refs name; whole says that
// what is left out is not there afterwards, rather than as it was: of all if it is 'new', else not of a group of the body that is left out as a whole, which may stay. errors
// are those of a problem ({location: 'body.spec.image', message}) and are shown at their fields. blank(schema, schemas) is a value to begin with. A number that JavaScript would round is a
// text in such values, which read makes of JSON, and written makes JSON of.
import { createContext, html, useContext, useRef, useState } from './base.js';
import { Icon } from './icons.js';

/** resolve follows a $ref. */
export function resolve(schema, schemas) {
  for (let i = 0; schema?.$ref && i < 10; i++) schema = { ...schemas?.[schema.$ref.split('/').pop()] };
  return schema || {};
}

/** plain is a number without what texts of the same one may differ in: its sign and digits, and where its point is. */
function plain(text) {
  const [, sign, whole = '', part = '', e = 0] = /^(-?)(\d+)(?:\.(\d+))?(?:e([+-]?\d+))?$/i.exec(text) || [];
  const digits = (whole + part).replace(/^0+/, '');
  return digits && [sign, digits.replace(/0+$/, ''), whole.length + Number(e) - (whole + part).length + digits.length].join(' ');
}

const mark = `number ${crypto.getRandomValues(new Uint32Array(2)).join('-')} `; // which no text of an entity begins with
const exact = (text) => (plain(text) && plain(text) !== plain(String(Number(text))) ? mark + text : undefined);
const shown = (value) => (typeof value === 'string' && value.startsWith(mark) ? value.slice(mark.length) : value);

/** read is the value of a text of JSON. */
export const read = (json) => JSON.parse(json.replace(/"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*/g, (t) => (exact(t) ? JSON.stringify(exact(t)) : t)));

/** written is the JSON of a value. */
export const written = (value, indent) => JSON.stringify(value, null, indent)?.replace(new RegExp(`"${mark}([^"]+)"`, 'g'), '$1');

const typeOf = (s) => (Array.isArray(s.type) ? s.type.find((t) => t !== 'null') : s.type) || (s.properties ? 'object' : undefined);

/** blank is what a form begins with: defaults, and what is required and can be empty. */
export function blank(schema, schemas, deep = 0) {
  const s = resolve(schema, schemas);
  if (s.default !== undefined) return s.default;
  const type = typeOf(s);
  if (type === 'boolean') return false;
  if (type === 'array') return [];
  if (type !== 'object' || deep > 6) return undefined;
  const v = {};
  for (const name of s.required || []) {
    const inner = blank(s.properties?.[name], schemas, deep + 1);
    if (inner !== undefined) v[name] = inner;
  }
  return v;
}

const Whole = createContext(false);

export function Form({ schema, schemas, value, onChange, errors = [], whole }) {
  return html`<${Whole.Provider} value=${whole}><${Field} schema=${schema} schemas=${schemas} value=${value} onChange=${onChange} errors=${errors} at="body" name="" depth=${0} required /></${Whole.Provider}>`;
}

function Field(props) {
  const s = resolve(props.schema, props.schemas);
  const type = typeOf(s);
  if (s.enum || (type !== 'object' && type !== 'array' && type)) return html`<${Scalar} ...${props} s=${s} type=${type} />`;
  if (type === 'object' && s.properties && Object.keys(s.properties).length) return html`<${ObjectField} ...${props} s=${s} />`;
  if (type === 'object' && s.additionalProperties && typeof s.additionalProperties === 'object') return html`<${MapField} ...${props} s=${s} />`;
  if (type === 'array' && s.items) return html`<${ListField} ...${props} s=${s} />`;
  return html`<${AnyField} ...${props} s=${s} />`;
}

const words = (name) => name.replace(/([a-z0-9])([A-Z])/g, '$1 $2').replace(/^./, (c) => c.toUpperCase());

function Frame({ name, at, s, required, errors, children, group }) {
  const wrong = errors.filter((e) => e.location === at);
  const hint = s.description && html`<span class="field-hint">${s.description}</span>`;
  const said = wrong.map((e) => html`<span class="field-error" role="alert">${e.message}</span>`);
  if (group) return html`<fieldset class="field-group">${name && html`<legend>${words(name)}${!required && html`<span class="faint"> optional</span>`}</legend>`}${hint}${children}${said}</fieldset>`;
  return html`<label class="field"><span class="field-name">${words(name || 'value')}${required && html`<span class="required" aria-hidden="true">*</span>`}</span>${children}${hint}${said}</label>`;
}

function Scalar({ s, type, name, value, onChange, required, errors, at }) {
  const invalid = errors.some((e) => e.location === at);
  const whole = useContext(Whole);
  const number = type === 'integer' || type === 'number';
  const [had] = useState(value);
  const none = had && whole && whole !== 'new' && type === 'string' && !s.enum && !s.pattern && !s.minLength && !s.format ? '' : undefined; // what is taken away from what is there is said, where it may be
  const valueOf = (text) => (text === '' ? none : number && Number.isFinite(Number(text)) ? exact(text) || Number(text) : text);
  const [typed, setTyped] = useState(''); // as it is in the field: 0.0 is 0, and on the way to 0.05
  const set = (text) => { setTyped(text); onChange(valueOf(text)); };
  const about = { required, 'aria-invalid': invalid || undefined };
  let input;
  if (s.enum) {
    input = html`<select class="input" value=${value ?? ''} onChange=${(e) => set(e.target.value)} ...${about}><option value="">${required ? 'Choose…' : whole ? 'Default' : 'As it is'}</option>${s.enum.map((v) => html`<option value=${v}>${v}</option>`)}</select>`;
  } else if (type === 'boolean') {
    return html`<div class="field"><label class="check"><input type="checkbox" checked=${!!value} onChange=${(e) => onChange(e.target.checked || (required ? false : undefined))} /><span>${words(name)}</span></label>${s.description && html`<span class="field-hint">${s.description}</span>`}</div>`;
  } else if (type === 'string' && (s.maxLength > 1000 || s.contentMediaType)) {
    input = html`<textarea class="input mono" rows="4" value=${value ?? ''} onInput=${(e) => set(e.target.value)} ...${about}></textarea>`;
  } else {
    const example = s.examples?.[0] ?? s.example;
    input = html`<input class="input" type=${number ? 'number' : /secret|password|token/i.test(name) ? 'password' : 'text'} step=${type === 'integer' ? 1 : 'any'} min=${s.minimum} max=${s.maximum}
      maxlength=${s.maxLength} pattern=${s.pattern} placeholder=${example !== undefined ? 'e.g. ' + example : undefined} autocomplete="off" spellcheck=${false} value=${valueOf(typed) === value ? typed : shown(value)} onInput=${(e) => set(e.target.value)} ...${about} />`;
  }
  return html`<${Frame} ...${{ name, at, s, required, errors }}>${input}</${Frame}>`;
}

function ObjectField({ s, schemas, name, value, onChange, required, errors, at, depth }) {
  const must = s.required || [];
  const names = Object.keys(s.properties).filter((n) => n !== '$schema').sort((a, b) => must.includes(b) - must.includes(a));
  const [open, setOpen] = useState(depth < 1 || required || value !== undefined);
  const [had] = useState(required || value); // then nothing is something, too: a group without what was in it
  const whole = useContext(Whole);
  const group = useRef();
  const fold = () => { // what is wrong in a field would not be seen any more, and the value before it would be sent
    const wrong = open && [...group.current.querySelectorAll('input, textarea')].find((f) => f.validity.customError);
    if (wrong) wrong.reportValidity(); else setOpen(!open);
  };
  const change = (n, v) => {
    const next = { ...value };
    if (v === undefined) delete next[n]; else next[n] = v;
    onChange(Object.keys(next).length || had ? next : undefined);
  };
  const fields = names.map((n) => html`<${Field} key=${n} schema=${s.properties[n]} schemas=${schemas} name=${n} value=${value?.[n]} onChange=${(v) => change(n, v)} required=${must.includes(n)} errors=${errors} at=${at + '.' + n} depth=${depth + 1} />`);
  if (depth === 0) return html`<div class="fields">${fields}</div>`;
  return html`<${Frame} group ...${{ name, at, s, required, errors }}>
    ${!required && html`<button type="button" class="button button-quiet small" aria-expanded=${open} onClick=${fold}><${Icon} name=${open ? 'down' : 'right'} />${open ? 'Hide' : 'Show'} fields</button>`}
    ${open && html`<${Whole.Provider} value=${whole === 'new' || depth > 1 || required || value !== undefined ? whole : false}><div class="fields" ref=${group}>${fields}</div></${Whole.Provider}>`}
  </${Frame}>`;
}

let made = 0;

/** useNames are names for n rows, which keep theirs while others are taken away: what a row has of its own, as a text that is no JSON yet, goes with it. */
function useNames(n) {
  const names = useRef([]).current;
  while (names.length < n) names.push(++made);
  return names;
}

function MapField({ s, schemas, name, value, onChange, required, errors, at, depth }) {
  const [had] = useState(required || value); // as above
  const rows = useRef(Object.entries(value || {}));
  const put = (next) => {
    rows.current = next;
    const v = Object.fromEntries(next.filter(([k]) => k !== ''));
    onChange(Object.keys(v).length || had ? v : undefined);
  };
  const inner = resolve(s.additionalProperties, schemas);
  const names = useNames(rows.current.length);
  return html`<${Frame} group ...${{ name, at, s, required, errors }}>
    ${rows.current.map(([k, v], i) => html`<div class="pair" key=${names[i]}>
      <input class="input mono" aria-label="Name" placeholder="name" required=${!!v} ref=${(at) => at?.setCustomValidity(k && rows.current.some((r, n) => n < i && r[0] === k) ? 'This name is there twice' : '')} value=${k} onInput=${(e) => put(rows.current.map((r, n) => (n === i ? [e.target.value, r[1]] : r)))} />
      ${typeOf(inner) === 'string' ? html`<input class="input mono" aria-label="Value" placeholder="value" value=${v} onInput=${(e) => put(rows.current.map((r, n) => (n === i ? [r[0], e.target.value] : r)))} />`
    : html`<${Field} schema=${inner} schemas=${schemas} name=${k || 'value'} value=${v} onChange=${(x) => put(rows.current.map((r, n) => (n === i ? [r[0], x] : r)))} errors=${errors} at=${at + '.' + k} depth=${depth + 1} />`}
      <button type="button" class="button button-quiet" aria-label="Remove" onClick=${() => { names.splice(i, 1); put(rows.current.filter((_, n) => n !== i)); }}><${Icon} name="close" /></button></div>`)}
    <button type="button" class="button small" onClick=${() => put([...rows.current, ['', typeOf(inner) === 'string' ? '' : undefined]])}>Add</button>
  </${Frame}>`;
}

function ListField({ s, schemas, name, value, onChange, required, errors, at, depth }) {
  const [had] = useState(required || value);
  const items = value || [];
  const names = useNames(items.length);
  const put = (next) => onChange(next.length || had ? next : undefined);
  return html`<${Frame} group ...${{ name, at, s, required, errors }}>
    ${items.map((v, i) => html`<div class="pair" key=${names[i]}><${Field} schema=${s.items} schemas=${schemas} name=${String(i + 1)} value=${v} onChange=${(x) => put(items.map((o, n) => (n === i ? x : o)))} required errors=${errors} at=${`${at}[${i}]`} depth=${depth + 1} />
      <button type="button" class="button button-quiet" aria-label="Remove" onClick=${() => { names.splice(i, 1); put(items.filter((_, n) => n !== i)); }}><${Icon} name="close" /></button></div>`)}
    <button type="button" class="button small" onClick=${() => put([...items, blank(s.items, schemas) ?? ''])}>Add</button>
  </${Frame}>`;
}

function AnyField({ s, name, value, onChange, required, errors, at }) {
  const [text, setText] = useState(value === undefined ? '' : written(value, 2));
  const [wrong, setWrong] = useState('');
  const set = ({ target }) => {
    const t = target.value;
    let problem = '';
    setText(t);
    try {
      onChange(t.trim() ? read(t) : undefined);
    } catch (e) { problem = 'Not JSON yet: ' + e.message; }
    setWrong(problem);
    target.setCustomValidity(problem); // else the value before would be sent
  };
  return html`<${Frame} ...${{ name, at, s, required, errors }}><textarea class="input mono" rows="5" placeholder="JSON" value=${text} onInput=${set}></textarea>${wrong && html`<span class="field-error">${wrong}</span>`}</${Frame}>`;
}
