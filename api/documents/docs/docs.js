// Draws /openapi.json and /docs/machines.json with the DOM alone: no text becomes markup, nothing is fetched from elsewhere.
"use strict";

const SVG = "http://www.w3.org/2000/svg";

function el(tag, attrs, ...children) {
  const node = document.createElement(tag);
  for (const [k, v] of Object.entries(attrs || {})) if (v !== undefined && v !== null) node.setAttribute(k, v);
  node.append(...children.filter((c) => c !== null && c !== undefined));
  return node;
}

function svg(tag, attrs, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [k, v] of Object.entries(attrs || {})) node.setAttribute(k, v);
  node.append(...children);
  return node;
}

let spec;

function resolve(schema) {
  while (schema && schema.$ref) schema = spec.components.schemas[schema.$ref.split("/").pop()];
  return schema || {};
}

function typeName(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  const type = [].concat(schema.type || "any").filter((t) => t !== "null").join(" or ");
  if (type === "array") return "list of " + typeName(schema.items);
  if (type === "object" && schema.additionalProperties && schema.additionalProperties !== true) return "map to " + typeName(schema.additionalProperties);
  return type + (schema.format ? " (" + schema.format + ")" : "");
}

function rules(schema) {
  const s = schema || {}, out = [];
  if (s.enum) out.push("one of " + s.enum.join(", "));
  if (s.minimum !== undefined) out.push("≥ " + s.minimum);
  if (s.maximum !== undefined) out.push("≤ " + s.maximum);
  if (s.minLength) out.push("at least " + s.minLength + " characters");
  if (s.maxLength) out.push("at most " + s.maxLength + " characters");
  if (s.pattern) out.push(s.pattern);
  if (s.default !== undefined) out.push("default " + s.default);
  return out.join("; ");
}

// rows lists the members of a schema, down to the bottom, as dotted paths.
function rows(schema, path, required, out, seen) {
  const s = resolve(schema);
  const inner = s.items ? resolve(s.items) : typeof s.additionalProperties === "object" ? resolve(s.additionalProperties) : s;
  if (path) out.push([path, typeName(schema), required, [schema.description || s.description, rules(s)].filter(Boolean).join(" — ")]);
  if (!inner.properties || seen.includes(inner)) return out;
  const mark = s.items ? "[]" : inner !== s ? ".*" : "";
  for (const [name, member] of Object.entries(inner.properties)) {
    rows(member, (path ? path + mark + "." : "") + name, (inner.required || []).includes(name), out, seen.concat([inner]));
  }
  return out;
}

function table(head, body) {
  return el("table", {}, el("thead", {}, el("tr", {}, ...head.map((h) => el("th", { scope: "col" }, h)))),
    el("tbody", {}, ...body.map((r) => el("tr", {}, el("th", { scope: "row" }, r[0]), ...r.slice(1).map((c) => el("td", {}, c))))));
}

function schemaTable(schema) {
  const list = rows(schema, "", false, [], []);
  if (!list.length) return el("p", {}, typeName(schema));
  return table(["Member", "Type", "", ""], list.map((r) => [r[0], r[1], r[2] ? "required" : "", r[3]]));
}

// example makes a value that the schema takes.
function example(schema, depth) {
  const s = resolve(schema);
  if (s.examples) return s.examples[0];
  if (s.default !== undefined) return s.default;
  if (s.enum) return s.enum[0];
  const type = [].concat(s.type || "object")[0];
  if (type === "string") return s.format === "date-time" ? "2026-01-01T00:00:00Z" : "text";
  if (type === "integer" || type === "number") return Math.max(s.minimum || 0, 1);
  if (type === "boolean") return true;
  if (type === "array") return depth > 4 ? [] : [example(s.items, depth + 1)];
  const out = {};
  for (const name of s.required || []) if (depth < 5) out[name] = example(s.properties[name], depth + 1);
  return out;
}

function curl(path, method, op) {
  const at = location.origin + path.replace(/\{(\w+)\}/g, (_, name) => (name === "seq" ? "1" : name === "machine" ? Object.values(spec.tags)[0].name : "web"));
  const lines = ["curl"];
  if (op.responses["200"] && op.responses["200"].content && op.responses["200"].content["text/event-stream"]) lines[0] += " -N";
  if (method !== "get") lines[0] += " -X " + method.toUpperCase();
  lines[0] += " '" + at + "'";
  if (op.security) lines.push("-H \"Authorization: Bearer $INSTAR_TOKEN\"");
  if (op.requestBody) {
    lines.push("-H 'Content-Type: application/json'");
    lines.push("-d '" + JSON.stringify(example(op.requestBody.content["application/json"].schema, 0)).replaceAll("'", "'\\''") + "'");
  }
  return lines.join(" \\\n  ");
}

function copyable(text) {
  const button = el("button", { class: "copy", type: "button" }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not possible here";
    }
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
  return el("div", {}, button, el("pre", { tabindex: "0" }, text));
}

function problemLinks(description) {
  const p = el("td", {});
  for (const part of description.split(/(\([a-z-]+\))/)) {
    const code = part.match(/^\(([a-z-]+)\)$/);
    p.append(code && document.getElementById("problem-" + code[1]) ? el("a", { href: "#problem-" + code[1] }, part) : part);
  }
  return p;
}

function detail(path, method, op) {
  const box = el("div", {}, op.description ? el("p", {}, op.description) : null, copyable(curl(path, method, op)));
  if (op.parameters && op.parameters.length) {
    box.append(el("h4", {}, "Parameters"), table(["Name", "In", "Type", ""], op.parameters.map((p) => [p.name, p.in, typeName(p.schema), [p.required ? "required" : "", p.description, rules(p.schema)].filter(Boolean).join(" — ")])));
  }
  if (op.requestBody) box.append(el("h4", {}, "Body"), schemaTable(op.requestBody.content["application/json"].schema));
  box.append(el("h4", {}, "Answers"));
  const answers = el("tbody", {});
  for (const [status, r] of Object.entries(op.responses)) {
    answers.append(el("tr", {}, el("th", { scope: "row" }, status), problemLinks(r.description || ""), el("td", {}, Object.keys(r.content || {}).join(", "))));
  }
  box.append(el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Status"), el("th", { scope: "col" }, ""), el("th", { scope: "col" }, "Type"))), answers));
  const good = op.responses["200"] && op.responses["200"].content && op.responses["200"].content["application/json"];
  if (good && (good.schema.$ref || good.schema.properties)) box.append(el("details", {}, el("summary", {}, "Members of the answer"), schemaTable(good.schema)));
  return box;
}

function operation(path, method, op) {
  const id = "op-" + op.operationId;
  const head = el("summary", {}, el("span", { class: "method " + method }, method.toUpperCase()), el("code", {}, path), " ", op.summary || "",
    el("span", { class: "role" }, op["x-role"] ? "needs " + op["x-role"] : "open"), op["x-destructive"] ? el("span", { class: "flag" }, "destructive") : null);
  const box = el("details", { class: "operation", id, "data-text": (path + " " + method + " " + (op.summary || "") + " " + op.operationId).toLowerCase() }, head);
  box.addEventListener("toggle", () => { if (box.open && box.childElementCount === 1) box.append(detail(path, method, op)); });
  return box;
}

// methods are the operations that a path can have.
const methods = ["get", "head", "post", "put", "patch", "delete", "options", "trace"];

// groups are the tags of the document, and those that it has forgotten to explain.
function groups() {
  const tags = [...(spec.tags || [])];
  for (const item of Object.values(spec.paths)) {
    for (const method of methods) {
      for (const name of (item[method] && item[method].tags) || []) if (!tags.some((t) => t.name === name)) tags.push({ name });
    }
  }
  return tags;
}

function drawOperations() {
  const section = document.getElementById("operations"), contents = document.getElementById("contents");
  document.getElementById("about").append(...spec.info.description.split("\n\n").map((p) => el("p", {}, p)));
  for (const tag of groups()) {
    const title = el("h2", { id: "tag-" + tag.name.replaceAll(" ", "-") }, tag.name);
    section.append(title, el("p", {}, tag.description || ""));
    contents.append(el("li", {}, el("a", { href: "#" + title.id }, tag.name)));
    for (const [path, item] of Object.entries(spec.paths)) {
      for (const method of methods) {
        const op = item[method];
        if (op && (op.tags || []).includes(tag.name)) section.append(operation(path, method, op));
      }
    }
  }
  document.getElementById("search").addEventListener("input", (e) => {
    const words = e.target.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const box of section.querySelectorAll(".operation")) box.hidden = !words.every((w) => box.dataset.text.includes(w));
  });
}

// layers puts each state as far right as its shortest way from the birth is long.
function layers(graph) {
  const layer = new Map([["", 0]]);
  for (let changed = true; changed;) {
    changed = false;
    for (const e of graph.edges) {
      if (layer.has(e.from) && !layer.has(e.to)) {
        layer.set(e.to, layer.get(e.from) + 1);
        changed = true;
      }
    }
  }
  return layer;
}

function drawMachine(graph, box) {
  const layer = layers(graph), rowsOf = {}, at = new Map(), width = 150, height = 34, gapX = 130, gapY = 54;
  for (const s of [{ name: "" }].concat(graph.states)) {
    const l = layer.get(s.name) || 0;
    rowsOf[l] = (rowsOf[l] || 0) + 1;
    at.set(s.name, { x: 20 + l * (width + gapX) - (l ? width - 20 : 0), y: 40 + (rowsOf[l] - 1) * (height + gapY), w: s.name ? width : 14, h: s.name ? height : 14 });
  }
  const maxX = Math.max(...[...at.values()].map((p) => p.x + p.w)) + 60, maxY = Math.max(...[...at.values()].map((p) => p.y + p.h)) + 60;
  const root = svg("svg", { width: maxX, height: maxY, viewBox: `0 0 ${maxX} ${maxY}`, role: "img", "aria-label": "States of " + graph.name + "; the table below has the same" });
  const arrow = "arrow-" + graph.name;
  root.append(svg("defs", {}, svg("marker", { id: arrow, viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse" }, svg("path", { d: "M0 0 8 4 0 8z" }))));
  const merged = new Map();
  for (const e of graph.edges) {
    if (e.noop || e.from === e.to) continue;
    const key = e.from + "\n" + e.to;
    if (!merged.has(key)) merged.set(key, { from: e.from, to: e.to, labels: [] });
    const label = e.on + (e.if ? " [" + e.if + "]" : "");
    if (!merged.get(key).labels.includes(label)) merged.get(key).labels.push(label);
  }
  let n = 0;
  for (const e of merged.values()) {
    const a = at.get(e.from), b = at.get(e.to), forward = b.x > a.x;
    const x1 = forward ? a.x + a.w : a.x + a.w / 2, y1 = a.y + a.h / 2 + (forward ? 0 : a.h / 2);
    const x2 = forward ? b.x : b.x + b.w / 2, y2 = b.y + b.h / 2 + (forward ? 0 : b.y > a.y ? -b.h / 2 : b.h / 2);
    const bend = forward ? 50 : 30 + (n++ % 4) * 8;
    const d = forward ? `M${x1} ${y1} C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}` : `M${x1} ${y1} C${x1 + bend} ${y1 + bend} ${x2 + bend} ${y2 + (b.y > a.y ? -bend : bend)} ${x2} ${y2}`;
    const line = svg("path", { d, "marker-end": `url(#${arrow})` });
    line.append(svg("title", {}, `${e.from || "(none)"} → ${e.to}: ${e.labels.join(", ")}`));
    const text = e.labels.length > 1 ? e.labels[0] + " +" + (e.labels.length - 1) : e.labels[0];
    root.append(line, svg("text", { class: "label", x: (x1 + x2) / 2 + (forward ? -40 : bend / 2), y: (y1 + y2) / 2 - 4 }, text));
  }
  for (const s of graph.states) {
    const p = at.get(s.name), kind = [s.terminal && "terminal", s.transitional && "transitional", s.failed && "failed"].filter(Boolean).join(" ");
    const name = s.name.length > 20 ? s.name.slice(0, 19) + "…" : s.name;
    root.append(svg("g", { class: kind }, svg("title", {}, s.name + (s.doc ? ": " + s.doc : "")), svg("rect", { x: p.x, y: p.y, width: p.w, height: p.h, rx: 6 }), svg("text", { x: p.x + p.w / 2, y: p.y + 21, "text-anchor": "middle" }, name)));
  }
  root.append(svg("circle", { cx: 27, cy: 47, r: 7, fill: "currentColor" }));
  box.append(root);
}

// show opens and scrolls to what the address names: the page grew after the browser had looked for it.
function show() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  if (target.tagName === "DETAILS") target.open = true;
  target.scrollIntoView();
}

async function main() {
  try {
    const [doc, machines] = await Promise.all(["/openapi.json", "/docs/machines.json"].map(async (path) => {
      const res = await fetch(path);
      if (!res.ok) throw new Error(path + " answers " + res.status);
      return res.json();
    }));
    spec = doc;
    drawOperations();
    for (const graph of machines.items) {
      const box = document.querySelector(`.diagram[data-machine="${CSS.escape(graph.name)}"]`);
      if (box) drawMachine(graph, box);
    }
  } catch (err) {
    document.getElementById("operations").append(el("p", { role: "alert" }, "The documents cannot be read: " + err.message));
  }
  show();
  addEventListener("hashchange", show);
}

main();
