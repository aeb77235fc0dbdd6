// Where the states of a machine are drawn. layout(nodes, edges) places them in columns from left to right: nodes is [{id, width, height}], edges [{from, to}], the first
// node is the beginning. The answer is {width, height, nodes: Map(id → {x, y, width, height}), edges: [{from, to, d, mid: {x, y}}]}, d being the path of an edge with its
// end at the border of its node. Edges that lead back are turned round, edges over several columns get places in between, the order within columns
// is improved until fewer lines cross, and then everything is moved towards its neighbours (Sugiyama's method).

const gapX = 68;
const gapY = 24;
const gapLines = 4; // between an edge that passes and what is beside it

export function layout(nodes, edges) {
  const byId = new Map(nodes.map((n) => [n.id, { ...n, out: [], in: [] }]));
  const links = edges.filter((e) => e.from !== e.to && byId.has(e.from) && byId.has(e.to)).map((e) => ({ from: e.from, to: e.to }));
  turnBack(byId, links);
  const columns = rank(byId, links);
  const lines = split(byId, links, columns);
  order(columns);
  place(columns);
  return finish(byId, columns, lines);
}

/** turnBack marks the edges that close a cycle, as seen from the beginning. */
function turnBack(byId, links) {
  const state = new Map();
  const outOf = (id) => links.filter((l) => l.from === id);
  const visit = (id) => {
    state.set(id, 1);
    for (const l of outOf(id)) {
      if (state.get(l.to) === 1) l.back = true;
      else if (!state.has(l.to)) visit(l.to);
    }
    state.set(id, 2);
  };
  for (const id of byId.keys()) if (!state.has(id)) visit(id);
}

/** rank gives each node a column: one behind the last of those that lead to it. */
function rank(byId, links) {
  const before = new Map([...byId.keys()].map((id) => [id, []]));
  for (const l of links) (l.back ? before.get(l.from) : before.get(l.to)).push(l.back ? l.to : l.from);
  const known = new Map();
  const of = (id) => {
    if (!known.has(id)) {
      known.set(id, 0); // a cycle cannot be, but must not hang
      known.set(id, before.get(id).reduce((n, p) => Math.max(n, of(p) + 1), 0));
    }
    return known.get(id);
  };
  const columns = [];
  for (const [id, n] of byId) {
    n.column = of(id);
    (columns[n.column] ||= []).push(n);
  }
  return columns;
}

/** split puts a place into each column that an edge passes. */
function split(byId, links, columns) {
  return links.map((l) => {
    const [a, b] = l.back ? [byId.get(l.to), byId.get(l.from)] : [byId.get(l.from), byId.get(l.to)];
    const points = [a];
    for (let c = a.column + 1; c < b.column; c++) {
      const p = { passing: true, width: 0, height: 14, column: c, out: [], in: [] };
      columns[c].push(p);
      points.push(p);
    }
    points.push(b);
    for (let i = 1; i < points.length; i++) {
      points[i - 1].out.push(points[i]);
      points[i].in.push(points[i - 1]);
    }
    return { ...l, points };
  });
}

function crossings(columns) {
  let n = 0;
  for (const col of columns) {
    const ends = [];
    col.forEach((a, i) => a.out.forEach((b) => ends.push([i, b.index])));
    for (let i = 0; i < ends.length; i++) for (let j = i + 1; j < ends.length; j++) if ((ends[i][0] - ends[j][0]) * (ends[i][1] - ends[j][1]) < 0) n++;
  }
  return n;
}

function order(columns) {
  const number = () => columns.forEach((col) => col.forEach((n, i) => { n.index = i; }));
  number();
  let best = columns.map((c) => [...c]);
  let fewest = crossings(columns);
  for (let turn = 0; turn < 16 && fewest > 0; turn++) {
    const down = turn % 2 === 0;
    for (const col of down ? columns : [...columns].reverse()) {
      for (const n of col) {
        const near = down ? n.in : n.out;
        n.want = near.length ? near.reduce((s, m) => s + m.index, 0) / near.length : n.index;
      }
      col.sort((a, b) => a.want - b.want || a.index - b.index);
      col.forEach((n, i) => { n.index = i; });
    }
    const now = crossings(columns);
    if (now < fewest) { fewest = now; best = columns.map((c) => [...c]); }
  }
  best.forEach((c, i) => { columns[i] = c; });
  number();
}

function place(columns) {
  let x = 0;
  for (const col of columns) {
    const width = Math.max(...col.map((n) => n.width));
    let y = 0;
    for (const n of col) {
      n.x = x + width / 2;
      n.y = y + n.height / 2;
      y += n.height + gapY;
    }
    x += width + gapX;
  }
  const tallest = Math.max(...columns.map((col) => col[col.length - 1].y + col[col.length - 1].height / 2));
  for (const col of columns) {
    const last = col[col.length - 1];
    const shift = (tallest - (last.y + last.height / 2)) / 2;
    for (const n of col) n.y += shift;
  }
  for (let turn = 0; turn < 12; turn++) {
    for (const col of turn % 2 ? [...columns].reverse() : columns) {
      for (const n of col) {
        const near = [...n.in, ...n.out];
        if (near.length) n.y += (near.reduce((s, m) => s + m.y, 0) / near.length - n.y) * (n.passing ? 0.9 : 0.6);
      }
      apart(col);
    }
  }
}

const between = (a, b) => (a.passing || b.passing ? gapLines : gapY);

/** apart moves what overlaps: downwards from above, then the same upwards, and takes the middle. */
function apart(col) {
  const down = col.map((n) => n.y);
  const up = [...down];
  const room = (i) => col[i - 1].height / 2 + col[i].height / 2 + between(col[i - 1], col[i]);
  for (let i = 1; i < col.length; i++) down[i] = Math.max(down[i], down[i - 1] + room(i));
  for (let i = col.length - 1; i > 0; i--) up[i - 1] = Math.min(up[i - 1], up[i] - room(i));
  col.forEach((n, i) => { n.y = (down[i] + up[i]) / 2; });
}

function finish(byId, columns, lines) {
  const all = columns.flat();
  const minY = Math.min(...all.map((n) => n.y - n.height / 2));
  const maxY = Math.max(...all.map((n) => n.y + n.height / 2));
  const maxX = Math.max(...all.map((n) => n.x + n.width / 2));
  const pad = 20;
  for (const n of all) { n.x += pad; n.y += pad - minY; }
  ports(lines);
  return {
    width: maxX + 2 * pad, height: maxY - minY + 2 * pad,
    nodes: new Map([...byId].map(([id, n]) => [id, { x: n.x, y: n.y, width: n.width, height: n.height }])),
    edges: lines.map(draw),
  };
}

/** ports spreads the ends of edges over the sides of their nodes, in the order in which they arrive. */
function ports(lines) {
  const sides = new Map();
  const add = (n, side, line, end, to) => {
    const key = n.id + ' ' + side;
    if (!sides.has(key)) sides.set(key, { n, ends: [] });
    sides.get(key).ends.push({ line, end, y: to.y });
  };
  for (const l of lines) {
    const p = l.points;
    add(p[0], 'right', l, 'first', p[1]);
    add(p[p.length - 1], 'left', l, 'last', p[p.length - 2]);
  }
  for (const { n, ends } of sides.values()) {
    ends.sort((a, b) => a.y - b.y || !!a.line.back - !!b.line.back);
    const step = Math.min(12, (n.height - 12) / Math.max(1, ends.length));
    ends.forEach((e, i) => { e.line[e.end] = n.y + (i - (ends.length - 1) / 2) * step; });
  }
}

function draw(l) {
  const a = l.points[0];
  const b = l.points[l.points.length - 1];
  const way = [{ x: a.x + a.width / 2, y: l.first }, ...l.points.slice(1, -1).map((p) => ({ x: p.x, y: p.y })), { x: b.x - b.width / 2, y: l.last }];
  if (l.back) way.reverse();
  let d = `M${r(way[0].x)} ${r(way[0].y)}`;
  for (let i = 1; i < way.length; i++) {
    const half = (way[i].x - way[i - 1].x) / 2;
    d += `C${r(way[i - 1].x + half)} ${r(way[i - 1].y)} ${r(way[i].x - half)} ${r(way[i].y)} ${r(way[i].x)} ${r(way[i].y)}`;
  }
  const m = way.length >> 1;
  const mid = way.length % 2 ? way[m] : { x: (way[m - 1].x + way[m].x) / 2, y: (way[m - 1].y + way[m].y) / 2 };
  return { from: l.from, to: l.to, d, mid, back: !!l.back };
}

const r = (n) => Math.round(n * 10) / 10;
