"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const byId = id => document.getElementById(id);
const view = byId("view"), drawing = byId("drawing"), facts = byId("facts"), tip = byId("tip");
// Positions in an operator's list; all but REASONS are indices of texts.
const [NAME, KIND, OPERATOR, MODULE, SOURCE, TAKER, KERNEL, VALUES, WEIGHTS, REASONS] = Array(10).keys();
const START = 60, INSIDE = 40, FEW = 12;     // boxes and operators that are shown by default
const PAD = 14, HEAD = 28, ROW = 30, GAP = 16, RAIL = 10;
const COLORS = 5;

// The model: a tree of items. An item is an operator (`operator`) or a box (`children`).

const said = (item, column) => data.texts[item.operator[column]];
const takers = [...new Set(data.methods.flatMap(method => method.operators.map(each => data.texts[each[TAKER]])))].filter(Boolean);
const takerClass = taker => `taker-${takers.indexOf(taker) % COLORS}`;
const short = name => name.replace(/^aten\./, "").replace(/\.default$/, "");
const plural = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;

function kindOf(item) {
  if (said(item, KIND) !== "operator") return "plain";
  return said(item, TAKER) ? takerClass(said(item, TAKER)) : said(item, KERNEL) ? "runtime" : "nothing";
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
      leaves[source] = item;
      return item;
    }
    const box = { parent, depth, children: [], open: !parent, links: new Map(), place: parent ? parent.children.length : 0 };
    box.kind = source.kind ?? "module";
    box.label = parent ? data.texts[source.label] : method.name;
    if (source.delegate !== undefined) {
      box.note = method.notes[source.delegate] ?? "";
      box.label = `delegate ${source.delegate}: ${box.label}`;
    }
    for (const inner of source.items) box.children.push(build(inner, box));
    box.tally = new Map();
    for (const inner of box.children)
      for (const [name, count] of inner.operator ? (said(inner, KIND) === "operator" ? [[inner.class, 1]] : []) : inner.tally)
        box.tally.set(name, (box.tally.get(name) ?? 0) + count);
    box.count = [...box.tally.values()].reduce((sum, count) => sum + count, 0);
    box.class = box.tally.size === 1 ? [...box.tally.keys()][0] : "plain";
    boxes.push(box);
    return box;
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
  return { root, leaves, boxes, arrows };
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

// The layout: each open box arranges its items in layers; long arrows get rails.

const ruler = document.createElement("canvas").getContext("2d");
const FONT = getComputedStyle(document.body).fontFamily;
function wide(text, size) {
  ruler.font = `${size}px ${FONT}`;
  return 18 + ruler.measureText(text).width;
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

function arrange(box) {
  const cells = box.children, links = [...box.links.values()];
  for (const item of cells) {
    if (item.open) { arrange(item); continue; }
    item.w = Math.max(70, wide(first(item), 12), wide(second(item), 10));
    item.h = 40;
  }
  const layer = cells.map(() => 0), before = cells.map(() => []), after = cells.map(() => []);
  for (const [a, b] of links) { before[b].push(a); after[a].push(b); }
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
  const mean = list => list.reduce((sum, cell) => sum + center(cell), 0) / list.length;
  const place = (row, side) => {
    const wanted = new Map(row.map(cell => [cell, cell[side].length ? mean(cell[side]) : center(cell)]));
    row.sort((one, other) => wanted.get(one) - wanted.get(other));
    spread(row, row.map(cell => wanted.get(cell)));
  };
  for (let turn = 0; turn < 3; turn++) {
    for (const row of rows) place(row, "up");
    for (const row of [...rows].reverse()) place(row, "down");
  }
  for (const row of rows) place(row, "up");
  let left = Infinity, right = 0, y = HEAD;
  for (const row of rows) for (const cell of row) left = Math.min(left, cell.x);
  for (const row of rows) {
    const height = Math.max(0, ...row.map(cell => cell.h));
    for (const cell of row) { cell.x += PAD - left; cell.y = y; if (cell.rail) cell.h = height; right = Math.max(right, cell.x + cell.w); }
    y += height + ROW;
  }
  box.w = Math.max(right + PAD, wide(first(box), 12) + 2 * PAD);
  for (const row of rows) for (const cell of row) cell.x += (box.w - right - PAD) / 2;
  box.h = y - ROW + PAD;
}

function settle(box, x, y) {
  box.X = x; box.Y = y;
  if (!box.open) return;
  for (const item of box.children) {
    settle(item, x + item.x, y + item.y);
    for (const rail of item.rails.filter(Boolean)) { rail.X = x + rail.x; rail.Y = y + rail.y; }
  }
}

// Drawing.

const SVG = "http://www.w3.org/2000/svg";
function element(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
function html(name, attributes, ...children) {
  const made = document.createElement(name);
  Object.assign(made, attributes);
  made.append(...children);
  return made;
}

let now, zoom = 1, chosen = null, current = null, matches = [];
const elements = new Map(), paths = new Map();

function visible(item) {
  // The item itself, or the outermost closed box that it is in.
  let found = item;
  for (let box = item.parent; box; box = box.parent) if (!box.open) found = box;
  return found;
}

function who(item) {
  if (said(item, TAKER)) return `runs on ${said(item, TAKER)}`;
  return said(item, KERNEL) ? `left to the runtime (${said(item, KERNEL)})` : "nothing runs it";
}
const reasons = item => {
  const numbers = item.operator[REASONS], found = [];
  for (let at = 0; at < numbers.length; at += 2) found.push([data.texts[numbers[at]], data.texts[numbers[at + 1]]]);
  return found;
};
function tallied(box) {
  const names = { runtime: "the runtime", nothing: "nothing" };
  return [...box.tally].map(([name, count]) => `${names[name] ?? takers.filter(taker => takerClass(taker) === name).join(" or ")} ${count}`).join(", ");
}
function words(item) {
  if (item.children) return [item.label, item.note, `${plural(item.count, "operator")}: ${tallied(item)}`].filter(Boolean).join("\n");
  if (said(item, KIND) !== "operator") return `${item.label}\n${said(item, VALUES)}`;
  const lines = [said(item, OPERATOR), who(item), ...reasons(item).map(([name, why]) => `${name}: ${why}`), said(item, VALUES)];
  return [...lines, [said(item, MODULE), said(item, SOURCE)].filter(Boolean).join(", ")].filter(Boolean).join("\n");
}

function face(item) {
  const made = element("g", {
    class: `item ${item.class} ${item.kind === "delegate" ? "delegate" : ""} ${item.open ? "opened" : ""}`,
    transform: `translate(${item.X} ${item.Y})`, role: "button", tabindex: -1, "aria-label": words(item).replaceAll("\n", "; "),
  });
  if (item.children) made.setAttribute("aria-expanded", String(item.open));
  made.append(element("rect", { class: "face", width: item.w, height: item.h, rx: item.children ? 8 : 4 }));
  const text = (x, y, content, kind = "") => made.append(element("text", { x, y, class: kind }, content));
  if (item.open) text(10, 19, first(item));
  else {
    text(8, 17, first(item));
    text(8, 31, second(item), "small");
    if (item.tally?.size > 1) {  // shares of the runners of its operators
      let x = 4;
      for (const [name, count] of item.tally) {
        const width = (item.w - 8) * count / item.count;
        made.append(element("rect", { x, y: item.h - 6, width, height: 4, class: `${name} part` }));
        x += width;
      }
    }
  }
  made.item = item;
  elements.set(item, made);
  return made;
}

function path(arrow, from, to) {
  const { a, b } = arrow, points = [[from.X + from.w / 2, from.Y + from.h]];
  if (from !== a) points.push([points[0][0], a.Y + a.h]);
  for (let row = a.layer + 1; row < b.layer; row++) {
    const rail = a.rails[row];
    points.push([rail.X + RAIL / 2, rail.Y], [rail.X + RAIL / 2, rail.Y + rail.h]);
  }
  const end = to.X + to.w / 2;
  if (to !== b) points.push([end, b.Y]);
  points.push([end, to.Y]);
  let line = `M${points[0]}`;
  for (let at = 1; at < points.length; at++) {
    const [[x, y], [nextX, nextY]] = [points[at - 1], points[at]], middle = (y + nextY) / 2;
    line += x === nextX ? `V${nextY}` : `C${x} ${middle} ${nextX} ${middle} ${nextX} ${nextY}`;
  }
  return line;
}

function draw() {
  arrange(now.root);
  settle(now.root, 0, 0);
  elements.clear(); paths.clear();
  const under = element("g", {}), lines = element("g", {}), over = element("g", {});
  const add = item => {
    (item.open ? under : over).append(face(item));
    if (item.open) item.children.forEach(add);
  };
  now.root.children.forEach(add);
  const known = new Set();
  for (const arrow of now.arrows) {
    const from = visible(arrow.from), to = visible(arrow.to);
    if (from === to) continue;
    const key = `${from.X} ${from.Y} ${to.X} ${to.Y}`;
    if (known.has(key)) continue;
    known.add(key);
    const line = element("path", { d: path(arrow, from, to) });
    line.ends = [from, to];
    for (const end of line.ends) paths.set(end, [...(paths.get(end) ?? []), line]);
    lines.append(line);
  }
  drawing.replaceChildren(under, lines, over);
  drawing.setAttribute("viewBox", `0 0 ${now.root.w} ${now.root.h}`);
  scale(zoom);
  mark();
}

function scale(value) {
  zoom = Math.min(3, Math.max(0.05, value));
  drawing.setAttribute("width", now.root.w * zoom);
  drawing.setAttribute("height", now.root.h * zoom);
}

function mark() {
  for (const made of drawing.querySelectorAll(".chosen, .near, .match")) made.classList.remove("chosen", "near", "match");
  for (const item of matches) elements.get(visible(item))?.classList.add("match");
  for (const made of drawing.querySelectorAll('[tabindex="0"]')) made.setAttribute("tabindex", -1);
  current = elements.has(current) ? current : now.root.children.find(item => elements.has(item));
  elements.get(current)?.setAttribute("tabindex", 0);
  if (!elements.has(chosen)) return;
  elements.get(chosen).classList.add("chosen");
  for (const line of paths.get(chosen) ?? []) line.classList.add("near");
}

function keeping(item, change) {
  // Redraw with the item at its place on the screen.
  const left = item.X * zoom - view.scrollLeft, top = item.Y * zoom - view.scrollTop;
  change();
  draw();
  view.scrollTo(item.X * zoom - left, item.Y * zoom - top);
}

function toggle(box) {
  keeping(box, () => {
    box.open = !box.open;
    if (box.open) openSome(box, INSIDE, true);
  });
}

function choose(item, focus = false) {
  chosen = current = item;
  mark();
  tell(item);
  if (focus) elements.get(item)?.focus({ preventScroll: true });
}

function reveal(item) {
  for (let box = item.parent; box; box = box.parent) box.open = true;
  draw();
  choose(item);
  view.scrollTo(item.X * zoom - (view.clientWidth - item.w * zoom) / 2, item.Y * zoom - (view.clientHeight - item.h * zoom) / 2);
}

// The panel beside the graph.

function tell(item) {
  const list = html("dl", {});
  const fact = (name, ...values) => { if (values.some(Boolean)) list.append(html("dt", { textContent: name }), ...values.map(value => typeof value === "string" ? html("dd", { textContent: value }) : value)); };
  if (item.children) {
    fact("What", item.kind === "delegate" ? "a delegate" : item.kind === "range" ? "neighbors, as one box" : `a ${item.kind}`);
    fact("Cost", item.note ?? "");
    fact("Who runs it", `${plural(item.count, "operator")}: ${tallied(item)}`);
  } else {
    const operator = said(item, KIND) === "operator";
    fact("Node", said(item, NAME));
    if (operator) fact("Who runs it", who(item));
    for (const [name, why] of reasons(item)) fact(`Why not ${name}`, why);
    fact("Makes", said(item, VALUES));
    fact("Weights", said(item, WEIGHTS));
    fact("Module", said(item, MODULE));
    fact("Source", said(item, SOURCE));
    const jump = other => html("button", { textContent: other.label, onclick: () => reveal(other) });
    const near = others => others.length ? html("dd", {}, ...others.map(jump)) : "";
    fact("Reads", near(now.arrows.filter(arrow => arrow.to === item).map(arrow => arrow.from)));
    fact("Is read by", near(now.arrows.filter(arrow => arrow.from === item).map(arrow => arrow.to)));
  }
  const title = item.children || said(item, KIND) !== "operator" ? item.label : said(item, OPERATOR);
  facts.replaceChildren(html("h3", { textContent: title }), list);
  if (item.children) facts.append(html("p", {}, html("button", { textContent: item.open ? "Close" : "Open", onclick: () => { toggle(item); choose(item); } })));
}

function hint(item, x, y) {
  tip.textContent = words(item);
  tip.hidden = false;
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - tip.offsetWidth - 4))}px`;
  tip.style.top = `${Math.max(4, y + 18 + tip.offsetHeight > innerHeight ? y - tip.offsetHeight - 10 : y + 18)}px`;
}

// Events.

const itemOf = event => event.target.closest?.(".item")?.item;
drawing.addEventListener("click", event => {
  const item = itemOf(event);
  if (!item || dragged) return;
  if (item.children) toggle(item);
  choose(item, true);
});
drawing.addEventListener("pointermove", event => { const item = itemOf(event); item && event.pointerType === "mouse" ? hint(item, event.clientX, event.clientY) : tip.hidden = true; });
drawing.addEventListener("pointerleave", () => { tip.hidden = true; });
drawing.addEventListener("focusin", event => {
  const item = itemOf(event);
  if (!item || !elements.get(item).matches(":focus-visible")) return;
  const place = elements.get(item).getBoundingClientRect();
  hint(item, place.left, place.bottom);
});
drawing.addEventListener("focusout", () => { tip.hidden = true; });
drawing.addEventListener("keydown", event => {
  const item = itemOf(event);
  if (!item) return;
  const go = other => {
    if (!other) return;
    choose(other, true);
    elements.get(other).scrollIntoView({ block: "nearest", inline: "nearest" });
  };
  const ends = side => (paths.get(item) ?? []).map(line => line.ends).filter(pair => pair[1 - side] === item).map(pair => pair[side]);
  const beside = step => { const all = [...elements.keys()].sort((one, other) => one.Y - other.Y || one.X - other.X); return all[all.indexOf(item) + step]; };
  if (event.key === "Enter" || event.key === " ") { if (item.children) toggle(item); choose(item, true); }
  else if (event.key === "ArrowDown") go(item.open ? item.children[0] : ends(1)[0]);
  else if (event.key === "ArrowUp") go(ends(0)[0] ?? (item.parent !== now.root ? item.parent : null));
  else if (event.key === "ArrowRight") go(beside(1));
  else if (event.key === "ArrowLeft") go(beside(-1));
  else if (event.key === "Escape") tip.hidden = true;
  else return;
  event.preventDefault();
});

let grip = null, dragged = false;
view.addEventListener("pointerdown", event => {
  dragged = false;
  if (event.pointerType === "mouse" && event.button === 0) grip = { x: event.clientX, y: event.clientY, left: view.scrollLeft, top: view.scrollTop };
});
addEventListener("pointermove", event => {
  if (!grip) return;
  const [x, y] = [event.clientX - grip.x, event.clientY - grip.y];
  if (Math.abs(x) + Math.abs(y) > 6) dragged = true;
  if (dragged) view.scrollTo(grip.left - x, grip.top - y);
});
addEventListener("pointerup", () => { grip = null; });

function zoomAt(value, x, y) {
  const left = (view.scrollLeft + x) / zoom, top = (view.scrollTop + y) / zoom;
  scale(value);
  view.scrollTo(left * zoom - x, top * zoom - y);
}
view.addEventListener("wheel", event => {
  if (!event.ctrlKey) return;
  event.preventDefault();
  const place = view.getBoundingClientRect();
  zoomAt(zoom * (event.deltaY < 0 ? 1.15 : 1 / 1.15), event.clientX - place.left, event.clientY - place.top);
}, { passive: false });
byId("larger").onclick = () => zoomAt(zoom * 1.25, view.clientWidth / 2, view.clientHeight / 2);
byId("smaller").onclick = () => zoomAt(zoom / 1.25, view.clientWidth / 2, view.clientHeight / 2);
byId("fit").onclick = () => { scale(Math.min(1, view.clientWidth / now.root.w, view.clientHeight / now.root.h)); view.scrollTo(0, 0); };
byId("open").onclick = () => { for (const box of now.boxes) box.open = true; draw(); };
byId("fold").onclick = () => { for (const box of now.boxes) box.open = box === now.root; draw(); view.scrollTo(0, 0); };

function step(items, by) {
  // The next of the items after the chosen one, in the order of execution.
  if (!items.length) return;
  const at = chosen?.operator ? chosen.number : -1;
  const later = items.filter(item => by > 0 ? item.number > at : item.number < at);
  reveal(by > 0 ? later[0] ?? items[0] : later.at(-1) ?? items.at(-1));
  byId("found").textContent = items === matches ? `${items.indexOf(chosen) + 1} of ${items.length}` : "";
}
byId("find").addEventListener("input", event => {
  const wanted = event.target.value.trim().toLowerCase();
  const text = item => [NAME, OPERATOR, MODULE, TAKER, KERNEL, VALUES, SOURCE].map(column => said(item, column)).concat(reasons(item).flat()).join("\n").toLowerCase();
  matches = wanted ? now.leaves.filter(item => text(item).includes(wanted)) : [];
  byId("found").textContent = wanted ? plural(matches.length, "match").replace("matchs", "matches") : "";
  mark();
});
byId("find").addEventListener("keydown", event => { if (event.key === "Enter") step(matches, event.shiftKey ? -1 : 1); });
byId("next").onclick = () => step(matches, 1);
byId("previous").onclick = () => step(matches, -1);
byId("left-next").onclick = () => step(now.leaves.filter(item => said(item, KIND) === "operator" && !said(item, TAKER)), 1);

const models = [];
function show(number) {
  now = models[number] ??= model(data.methods[number]);
  if (!now.begun) {
    openSome(now.root, START, false);
    if (shown(now.root) < FEW) openSome(now.root, INSIDE, true);
  }
  now.begun = true;
  chosen = current = null; matches = []; byId("find").value = ""; byId("found").textContent = "";
  byId("left-next").disabled = !now.leaves.some(item => said(item, KIND) === "operator" && !said(item, TAKER));
  zoom = 1;
  draw();
  view.scrollTo(Math.max(0, (now.root.w - view.clientWidth) / 2), 0);
}

const legend = [...takers.map(taker => [takerClass(taker), taker]), ["runtime", "left to the runtime"], ["nothing", "nothing runs it"]];
const used = new Set(data.methods.flatMap(method => method.operators.map(operator => kindOf({ operator }))));
byId("legend").replaceChildren(...legend.filter(([name]) => used.has(name)).map(([name, label]) => html("li", { className: name }, html("i", {}), label)));
byId("method").replaceChildren(...data.methods.map((method, number) => html("option", { value: number, textContent: method.name })));
byId("method").onchange = event => show(Number(event.target.value));
document.querySelector(".several").hidden = data.methods.length < 2;
document.querySelector(".tools").hidden = byId("stage").hidden = false;
show(0);
})();
