// The model: a tree of items. An item is an operator (`operator`) or a box (`children`). The layout gives each a place.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = id => document.getElementById(id);
// Positions in an operator's list; all but MACS and REASONS are indices of texts.
const [NAME, KIND, OPERATOR, MODULE, SOURCE, TAKER, KERNEL, VALUES, MACS, REASONS] = Array(10).keys();
const START = 60, INSIDE = 40, FEW = 12;     // boxes and operators that are shown by default
const PAD = 14, HEAD = 28, ROW = 30, GAP = 16, RAIL = 10;
const TALL = 1600, GUTTER = 44, SHAPE = 1.7; // a taller box gets columns: room between them, width by height of all
const COLORS = 5;

const said = (item, column) => data.texts[item.operator[column]];
const takers = [...new Set(data.methods.flatMap(method => method.operators.map(each => data.texts[each[TAKER]])))].filter(Boolean);
const takerClass = taker => `taker-${takers.indexOf(taker) % COLORS}`;
const short = name => name.replace(/^aten\./, "").replace(/\.default$/, "");
const plural = (count, what) => `${count.toLocaleString("en")} ${what}${count === 1 ? "" : "s"}`;
const isWork = item => said(item, KIND) === "operator";
const isLeft = item => isWork(item) && !said(item, TAKER);

function kindOf(item) {
  if (said(item, KIND) !== "operator") return "plain";
  return said(item, TAKER) ? takerClass(said(item, TAKER)) : said(item, KERNEL) ? "runtime" : "nothing";
}

function human(value, unit) {
  const scaled = (number, steps) => {
    const [scale, name] = steps.find(([least]) => number >= least) ?? steps.at(-1);
    return `${(number / scale).toLocaleString("en", { maximumSignificantDigits: 3 })} ${name}`;
  };
  if (unit === "s") return scaled(value, [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]);
  if (unit === "B") return scaled(value, [[1 << 30, "GiB"], [1 << 20, "MiB"], [1 << 10, "KiB"], [1, "B"]]);
  if (unit === "bound") return value > 1 ? "beyond" : `${(100 * value).toLocaleString("en", { maximumSignificantDigits: 2 })} % of bound`;
  return scaled(value, [[1e12, `T${unit}`], [1e9, `G${unit}`], [1e6, `M${unit}`], [1e3, `k${unit}`], [1, unit]]);
}

function model(method) {
  const leaves = [], boxes = [];
  const build = (source, parent) => {
    const depth = parent ? parent.depth + 1 : 0;
    if (typeof source === "number") {
      const item = { parent, depth, operator: method.operators[source], place: parent.children.length, number: source };
      item.label = said(item, KIND) === "operator" ? short(said(item, OPERATOR)) : `${said(item, KIND)}: ${said(item, NAME)}`;
      if (said(item, KIND) === "output") item.label = "output";
      item.class = kindOf(item);
      item.heat = method.measures.map(each => each.values[source] ?? null);
      leaves[source] = item;
      measure(item);
      return item;
    }
    const box = { parent, depth, children: [], open: !parent, links: new Map(), lines: [], place: parent ? parent.children.length : 0 };
    box.kind = source.kind ?? "module";
    box.label = parent ? data.texts[source.label] : method.name;
    if (source.delegate !== undefined) {
      box.note = method.notes[source.delegate] ?? "";
      box.label = `delegate ${source.delegate}: ${box.label}`;
    }
    for (const inner of source.items) box.children.push(build(inner, box));
    box.tally = new Map();
    for (const inner of box.children)
      for (const [name, count] of inner.operator ? (isWork(inner) ? [[inner.class, 1]] : []) : inner.tally)
        box.tally.set(name, (box.tally.get(name) ?? 0) + count);
    box.count = [...box.tally.values()].reduce((sum, count) => sum + count, 0);
    box.class = box.tally.size === 1 ? [...box.tally.keys()][0] : "plain";
    box.heat = method.measures.map((each, which) => {
      const own = source.delegate === undefined ? undefined : each.delegates[source.delegate];
      const inner = box.children.map(item => item.heat[which]).filter(value => value !== null);
      if (own !== undefined || !inner.length) return own ?? null;
      return each.sums ? inner.reduce((sum, value) => sum + value, 0) : inner.reduce((most, value) => Math.max(most, value));
    });
    box.peak = method.measures.map((_, which) => Math.max(...box.children.map(item => (item.peak ?? item.heat)[which] ?? 0)));
    boxes.push(box);
    measure(box);
    return box;
  };
  const measure = item => {  // its numbers in words, and a mark if one is beyond its limit
    item.told = method.measures.map((each, which) => item.heat[which] === null ? "" : human(item.heat[which], each.unit));
    item.mark = method.measures.some((each, which) => each.limit && item.heat[which] > 1) ? "✕ " : "";
  };
  const root = build({ items: method.items }, null);
  const arrows = [];
  for (let at = 0; at < method.arrows.length; at += 2) {
    const from = leaves[method.arrows[at]], to = leaves[method.arrows[at + 1]];
    let a = from, b = to;  // climb to the children of the box that has both
    while (a.depth > b.depth) a = a.parent;
    while (b.depth > a.depth) b = b.parent;
    while (a.parent !== b.parent) { a = a.parent; b = b.parent; }
    a.parent.links.set(`${a.place} ${b.place}`, [a.place, b.place]);
    arrows.push({ from, to, a, b });
  }
  return { root, leaves, boxes, arrows, method };
}

const shown = box => box.open ? box.children.reduce((sum, item) => sum + (item.children ? shown(item) : 1), 0) : 1;

function openSome(box, most, delegates) {
  // Boxes inside, the outer ones first, as long as not too much is shown.
  let count = shown(box);
  for (let wave = box.children; wave.length; wave = wave.filter(item => item.open).flatMap(item => item.children))
    for (const item of wave)
      if (item.children && !item.open && (delegates || item.kind !== "delegate") && count + item.children.length <= most) {
        item.open = true;
        count += item.children.length;
      }
}

// The layout: each open box arranges its items in layers; long arrows get rails; tall boxes get columns.

const ruler = document.createElement("canvas").getContext("2d");
const FONT = getComputedStyle(document.body).fontFamily;
const widths = new Map();
function wide(text, size) {
  const key = `${size} ${text}`;
  let found = widths.get(key);
  if (found === undefined) {
    ruler.font = `${size}px ${FONT}`;
    widths.set(key, found = 18 + ruler.measureText(text).width);
  }
  return found;
}
const cut = (text, most) => text.length > most ? `${text.slice(0, most - 1)}…` : text;
const first = item => item.open ? `− ${cut(item.label, 60)}` : cut(item.children ? `+ ${item.label}` : item.label, 38);
const second = item => cut(item.children ? plural(item.count, "operator") : said(item, VALUES), 38);

function spread(row, wanted) {
  // Centers as near to the desired ones as the order and the gaps allow: neighbors that collide move as one.
  const blocks = [];
  row.forEach((cell, at) => {
    let block = { first: at, shift: 0, weight: 0, sum: 0, width: 0 };
    const weight = cell.rail ? 3 : 1;
    block.sum = weight * (wanted[at] - cell.w / 2); block.weight = weight; block.width = cell.w + GAP;
    while (blocks.length) {
      const last = blocks.at(-1);
      if (last.sum / last.weight + last.width <= block.sum / block.weight) break;
      blocks.pop();
      block = { first: last.first, weight: last.weight + block.weight, sum: last.sum + block.sum - block.weight * last.width, width: last.width + block.width };
    }
    blocks.push(block);
  });
  blocks.forEach((block, number) => {
    let x = block.sum / block.weight;
    const end = blocks[number + 1]?.first ?? row.length;
    for (let at = block.first; at < end; at++) { row[at].x = x; x += row[at].w + GAP; }
  });
}

function arrange(box, shape = SHAPE) {
  const cells = box.children, links = [...box.links.values()];
  for (const item of cells) {
    if (item.open) { arrange(item); continue; }
    item.w = Math.max(70, wide(`${item.mark}${first(item)}`, 12), wide(second(item), 10), ...item.told.map(words => wide(words, 10)));
    item.h = 40;
  }
  const rows = layered(cells, links);
  let y = HEAD, tallest = 0, left = Infinity, right = 0;
  for (const row of rows) {
    row.height = Math.max(0, ...row.map(cell => cell.h));
    tallest = Math.max(tallest, row.height + ROW);
    y += row.height + ROW;
    for (const cell of row) { left = Math.min(left, cell.x); right = Math.max(right, cell.x + cell.w); }
  }
  const wanted = y > TALL ? Math.round(Math.sqrt(shape * y / (right - left + GUTTER))) : 1;
  const most = Math.min(wanted, Math.floor((y - HEAD) / tallest));
  box.columns = balanced(rows, Math.max(1, most), tallest, y);
  let x = PAD;
  box.columns.forEach((column, number) => {
    const least = Math.min(...column.rows.flatMap(row => row.map(cell => cell.x)), Infinity);
    let down = HEAD, width = 0;
    for (const row of column.rows) {
      for (const cell of row) {
        cell.x += x - least; cell.y = down; cell.column = number;
        if (cell.rail) cell.h = row.height;
        width = Math.max(width, cell.x + cell.w - x);
      }
      down += row.height + ROW;
    }
    column.x = x; column.end = down - ROW; column.right = x + width;
    x += width + GUTTER;
  });
  const end = box.columns.at(-1).right + PAD;
  box.w = Math.max(end, wide(first(box), 12) + 2 * PAD);
  for (const row of rows) for (const cell of row) cell.x += (box.w - end) / 2;
  box.h = Math.max(...box.columns.map(column => column.end)) + PAD;
}

function balanced(rows, most, low, high) {
  // The rows in at most so many columns, the tallest of them as short as can be.
  const fill = limit => {
    const columns = [{ rows: [], height: 0 }];
    for (const row of rows) {
      if (columns.at(-1).height && columns.at(-1).height + row.height > limit) columns.push({ rows: [], height: 0 });
      columns.at(-1).rows.push(row);
      columns.at(-1).height += row.height + ROW;
    }
    return columns;
  };
  if (most === 1) return fill(Infinity);
  for (let turn = 0; turn < 16; turn++) {
    const middle = (low + high) / 2;
    if (fill(middle).length <= most) high = middle;
    else low = middle;
  }
  return fill(1.06 * high);  // a little more: then a small item does not begin a column alone
}

function layered(cells, links) {
  // Rows of cells and rails, with their places from left to right.
  const layer = cells.map(() => 0), before = cells.map(() => []), after = cells.map(() => []);
  for (const [a, b] of links) { before[b].push(a); after[a].push(b); }
  if (!links.length) {  // nothing is known of their order but that one follows the other: a grid
    const across = Math.ceil(Math.sqrt(cells.length / 2.5));
    cells.forEach((_, at) => { layer[at] = Math.floor(at / across); });
  }
  cells.forEach((_, at) => { for (const other of before[at]) layer[at] = Math.max(layer[at], layer[other] + 1); });
  for (let at = cells.length - 1; at >= 0; at--)  // sources are placed just before their first reader
    if (!before[at].length && after[at].length) layer[at] = Math.max(0, Math.min(...after[at].map(other => layer[other])) - 1);
  const rows = [];
  cells.forEach((item, at) => { item.layer = layer[at]; item.up = []; item.down = []; item.rails = []; (rows[layer[at]] ??= []).push(item); });
  cells.forEach((item, at) => {
    const last = Math.max(-1, ...after[at].map(other => layer[other]));
    let above = item;
    for (let row = layer[at] + 1; row < last; row++) {
      const rail = { rail: true, w: RAIL, h: 0, up: [above], down: [] };
      above.down.push(rail); item.rails[row] = rail; (rows[row] ??= []).push(rail); above = rail;
    }
    for (const other of after[at]) {
      const from = layer[other] === layer[at] + 1 ? item : item.rails[layer[other] - 1];
      from.down.push(cells[other]); cells[other].up.push(from);
    }
  });
  for (let row = 0; row < rows.length; row++) rows[row] ??= [];
  for (const row of rows) { let x = 0; for (const cell of row) { cell.x = x; x += cell.w + GAP; } }
  const center = cell => cell.x + cell.w / 2;
  const mean = list => {  // rails weigh as much as in `spread`: otherwise what has a line beside it drifts from row to row
    const weight = list.reduce((sum, cell) => sum + (cell.rail ? 3 : 1), 0);
    return list.reduce((sum, cell) => sum + center(cell) * (cell.rail ? 3 : 1), 0) / weight;
  };
  const place = (row, side) => {
    const wanted = new Map(row.map(cell => [cell, cell[side].length ? mean(cell[side]) : center(cell)]));
    row.sort((one, other) => wanted.get(one) - wanted.get(other));
    spread(row, row.map(cell => wanted.get(cell)));
  };
  if (!links.length) return rows;
  for (let turn = 0; turn < 3; turn++) {
    for (const row of rows) place(row, "up");
    for (const row of [...rows].reverse()) place(row, "down");
  }
  for (const row of rows) place(row, "up");
  return rows;
}

function settle(box, x, y) {
  box.X = x; box.Y = y;
  if (!box.open) return;
  for (const item of box.children) {
    settle(item, x + item.x, y + item.y);
    for (const rail of item.rails.filter(Boolean)) { rail.X = x + rail.x; rail.Y = y + rail.y; }
  }
}

function visible(item) {
  // The item itself, or the outermost closed box that it is in.
  let found = item;
  for (let box = item.parent; box; box = box.parent) if (!box.open) found = box;
  return found;
}

function route(arrow, from, to) {
  // The corners of a line: from the bottom of one item to the top of another, along rails and between columns.
  const { a, b } = arrow, box = a.parent, points = [[from.X + from.w / 2, from.Y + from.h]];
  let column = a.column;
  const cross = (next, x, y) => {
    for (; column < next; column++) {
      const here = box.columns[column], lane = 8 + (a.place * 7) % 28;
      const gutter = box.X + here.right + lane, [lastX] = points.at(-1), low = box.Y + here.end + 8, high = box.Y + HEAD - 8;
      points.push([lastX, low], [gutter, low], [gutter, high]);
      if (column + 1 === next) points.push([x, high]);
    }
    points.push([x, y]);
  };
  if (from !== a) points.push([points[0][0], a.Y + a.h]);
  for (let row = a.layer + 1; row < b.layer; row++) {
    const rail = a.rails[row];
    cross(rail.column, rail.X + RAIL / 2, rail.Y);
    points.push([rail.X + RAIL / 2, rail.Y + rail.h]);
  }
  const end = to.X + to.w / 2;
  if (to !== b) cross(b.column, end, b.Y);
  else cross(b.column, end, to.Y);
  if (to !== b) points.push([end, to.Y]);
  return points;
}

function connect(graph) {
  // The lines between what is shown, each kept by the box that has both of its ends; and the ends of each item.
  const lines = new Map(), known = new Set();
  for (const box of graph.boxes) box.lines = [];
  for (const arrow of graph.arrows) {
    const from = visible(arrow.from), to = visible(arrow.to);
    if (from === to) continue;
    const key = `${from.X} ${from.Y} ${to.X} ${to.Y}`;
    if (known.has(key)) continue;
    known.add(key);
    const points = route(arrow, from, to), xs = points.map(([x]) => x), ys = points.map(([, y]) => y);
    const line = { ends: [from, to], points, left: Math.min(...xs), right: Math.max(...xs), top: Math.min(...ys), bottom: Math.max(...ys) };
    arrow.a.parent.lines.push(line);
    for (const end of line.ends) (lines.get(end) ?? lines.set(end, []).get(end)).push(line);
  }
  return lines;
}

function lay(graph, shape) {
  arrange(graph.root, shape);
  settle(graph.root, 0, 0);
  return connect(graph);
}
