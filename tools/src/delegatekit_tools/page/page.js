// The graph on the page: what is shown of it, where, and what the user does.

const view = byId("view"), space = byId("space"), canvas = byId("canvas"), drawing = byId("drawing"), map = byId("map");
const facts = byId("facts"), tip = byId("tip");
const MARGIN = 24, LEAST = 0.01, LARGEST = 3;

let now, zoom = 1, chosen = null, current = null, focused = null, matches = [], ends = new Map(), shift = { x: 0, y: 0 };
const elements = new Map();
view.frames = [];  // milliseconds that the latest frames took to draw

// Drawing. The browser scrolls an empty space of the graph's size; the canvas stays where it is and shows the part.

let waiting = false, drawnMap = null;
function repaint() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(paint);
}
function paint() {
  waiting = false;
  const start = performance.now(), sharp = devicePixelRatio, width = view.clientWidth, height = view.clientHeight;
  if (!width) return;
  if (canvas.width !== Math.round(width * sharp) || canvas.height !== Math.round(height * sharp)) {
    canvas.width = Math.round(width * sharp); canvas.height = Math.round(height * sharp);
    canvas.style.width = `${width}px`; canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d"), scale = zoom * sharp;
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.setTransform(scale, 0, 0, scale, (shift.x - view.scrollLeft) * sharp, (shift.y - view.scrollTop) * sharp);
  const left = (view.scrollLeft - shift.x) / zoom, top = (view.scrollTop - shift.y) / zoom;
  const area = { left, top, right: left + width / zoom, bottom: top + height / zoom };
  paintGraph(context, now, area, zoom, { chosen, focused, matches: new Set(matches.map(visible)), near: ends.get(chosen) ?? [] });
  paintMinimap(area);
  view.frames.push(performance.now() - start);
  if (view.frames.length > 240) view.frames.shift();
}
function paintMinimap(area) {
  const whole = area.left <= 0 && area.top <= 0 && area.right >= now.root.w && area.bottom >= now.root.h;
  map.hidden = whole;
  if (whole) return;
  const sharp = devicePixelRatio, context = map.getContext("2d");
  if (drawnMap === null) drawnMap = wholeMap(sharp);
  const { scale, width, height } = drawnMap;
  map.width = drawnMap.image.width;  // which clears it
  context.drawImage(drawnMap.image, 0, 0);
  context.scale(sharp, sharp);
  context.translate((width - now.root.w * scale) / 2, (height - now.root.h * scale) / 2);
  context.strokeStyle = palette.accent;
  context.lineWidth = 2;
  const [x, y] = [Math.max(0, area.left) * scale, Math.max(0, area.top) * scale];
  context.strokeRect(x, y, Math.max(4, Math.min(area.right, now.root.w) * scale - x), Math.max(4, Math.min(area.bottom, now.root.h) * scale - y));
}
function wholeMap(sharp) {
  const scale = Math.min(180 / now.root.w, 150 / now.root.h, 0.3 * view.clientWidth / now.root.w, 0.3 * view.clientHeight / now.root.h);
  const [width, height] = [Math.max(28, now.root.w * scale + 8), Math.max(28, now.root.h * scale + 8)];
  map.style.width = `${width}px`; map.style.height = `${height}px`;
  const image = document.createElement("canvas");
  map.width = image.width = Math.round(width * sharp); map.height = image.height = Math.round(height * sharp);
  const context = image.getContext("2d");
  context.scale(sharp, sharp);
  context.translate((width - now.root.w * scale) / 2, (height - now.root.h * scale) / 2);
  paintMap(context, now, scale);
  return { image, scale, width, height };
}

// For keyboards and screen readers each item is an element too, above the canvas: it has a place and words, no paint.

const SVG = "http://www.w3.org/2000/svg";
function mirror() {
  const held = elements.get(current)?.contains(document.activeElement);
  elements.clear();
  const all = document.createDocumentFragment();
  const add = item => {
    const made = document.createElementNS(SVG, "rect");
    const set = (name, value) => made.setAttribute(name, value);
    set("class", "item"); set("role", "button"); set("tabindex", -1); set("aria-label", words(item, now.method).replaceAll("\n", "; "));
    set("x", item.X); set("y", item.Y); set("width", item.w); set("height", item.h);
    if (item.children) set("aria-expanded", String(item.open));
    made.item = item;
    elements.set(item, made);
    all.append(made);
    if (item.open) item.children.forEach(add);
  };
  now.root.children.forEach(add);
  drawing.replaceChildren(all);
  drawing.setAttribute("width", now.root.w);
  drawing.setAttribute("height", now.root.h);
  return held;
}

function draw() {
  ends = lay(now, Math.max(0.5, view.clientWidth / view.clientHeight));
  const held = mirror();
  heat();
  place();
  mark();
  if (held) elements.get(current)?.focus({ preventScroll: true });
}

function place(soon = true) {
  // The sizes of what scrolls, at the present zoom.
  const [width, height] = [now.root.w * zoom, now.root.h * zoom];
  shift = { x: Math.max(MARGIN, (view.clientWidth - width) / 2), y: Math.max(0, Math.min(MARGIN, (view.clientHeight - height) / 2)) };
  space.style.width = `${width + shift.x + (width + MARGIN > view.clientWidth ? MARGIN : 0)}px`;
  space.style.height = `${height + shift.y}px`;
  clearTimeout(later);
  if (soon) follow();
  else later = setTimeout(follow, 120);
  repaint();
}
let later = 0;
function follow() {
  // The elements take the places of their items. While one zooms they wait: the canvas is what is seen.
  drawing.style.transform = `translate(${shift.x}px, ${shift.y}px) scale(${zoom})`;
}

function scale(value, soon = true) {
  zoom = Math.min(LARGEST, Math.max(LEAST, value));
  place(soon);
}

function mark() {
  for (const made of drawing.querySelectorAll(".chosen")) made.classList.remove("chosen");
  for (const made of drawing.querySelectorAll('[tabindex="0"]')) made.setAttribute("tabindex", -1);
  current = elements.has(current) ? current : now.root.children.find(item => elements.has(item));
  elements.get(current)?.setAttribute("tabindex", 0);
  elements.get(chosen)?.classList.add("chosen");
  repaint();
}

function keeping(item, change) {
  // Redraw with the item at its place on the screen.
  const left = item.X * zoom + shift.x - view.scrollLeft, top = item.Y * zoom + shift.y - view.scrollTop;
  change();
  draw();
  view.scrollTo(item.X * zoom + shift.x - left, item.Y * zoom + shift.y - top);
}

function toggle(box) {
  keeping(box, () => {
    box.open = !box.open;
    if (box.open) openSome(box, INSIDE, true);
  });
}

const doing = { reveal, toggle: item => { toggle(item); choose(item); }, back: () => choose(null) };
function choose(item, focus = false) {
  chosen = item;
  current = item ?? current;
  mark();
  if (item) tell(item, now, facts, doing);
  else summarize(now, facts, reveal);
  if (focus) elements.get(item)?.focus({ preventScroll: true });
}

function reveal(item) {
  let closed = false;
  for (let box = item.parent; box; box = box.parent) { closed ||= !box.open; box.open = true; }
  if (closed) draw();
  if (zoom < 0.5) scale(0.8);
  choose(item);
  view.scrollTo(item.X * zoom + shift.x - (view.clientWidth - item.w * zoom) / 2, item.Y * zoom + shift.y - (view.clientHeight - item.h * zoom) / 2);
}

function hint(item, x, y) {
  tip.textContent = words(item, now.method);
  tip.hidden = false;
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - tip.offsetWidth - 4))}px`;
  tip.style.top = `${Math.max(4, y + 18 + tip.offsetHeight > innerHeight ? y - tip.offsetHeight - 10 : y + 18)}px`;
}

// Events.

function itemAt(event) {
  // The innermost item at the pointer; an open box where nothing in it is.
  const area = view.getBoundingClientRect();
  const x = (event.clientX - area.left + view.scrollLeft - shift.x) / zoom, y = (event.clientY - area.top + view.scrollTop - shift.y) / zoom;
  let found = null, inside = now.root.children;
  for (;;) {
    const next = inside.find(item => x >= item.X && x <= item.X + item.w && y >= item.Y && y <= item.Y + item.h);
    if (!next) return found;
    found = next;
    if (!next.open) return found;
    inside = next.children;
  }
}
const itemOf = event => event.target.closest?.(".item")?.item;
view.addEventListener("click", event => {
  if (dragged) { dragged = false; return; }
  const item = event.detail ? itemAt(event) : itemOf(event);  // without detail: a tool's click, which has no place
  if (!item) { if (event.target === drawing || event.target === space) choose(null); return; }
  if (item.children) toggle(item);
  choose(item, true);
});
view.addEventListener("pointermove", event => {
  const item = grip || event.pointerType !== "mouse" ? null : itemAt(event);
  view.classList.toggle("pointing", Boolean(item));
  item ? hint(item, event.clientX, event.clientY) : tip.hidden = true;
});
view.addEventListener("pointerleave", () => { tip.hidden = true; });
view.addEventListener("focusin", event => {  // not of the drawing: an SVG element that listens to this is a stop of Tab
  const item = itemOf(event);
  if (!item || !elements.get(item).matches(":focus-visible")) return;
  focused = item;
  repaint();
  const place = elements.get(item).getBoundingClientRect();
  hint(item, place.left, place.bottom);
});
view.addEventListener("focusout", () => { tip.hidden = true; focused = null; repaint(); });
drawing.addEventListener("keydown", event => {
  const item = itemOf(event);
  if (!item || event.ctrlKey || event.metaKey || event.altKey) return;
  const go = other => {
    if (!other) return;
    choose(other, true);
    show(other);
  };
  const near = side => (ends.get(item) ?? []).map(line => line.ends).filter(pair => pair[1 - side] === item).map(pair => pair[side]);
  const beside = step => { const all = [...elements.keys()].sort((one, other) => one.Y - other.Y || one.X - other.X); return all[all.indexOf(item) + step]; };
  if (event.key === "Enter" || event.key === " ") { if (item.children) toggle(item); choose(item, true); }
  else if (event.key === "ArrowDown") go(item.open ? item.children[0] : near(1)[0]);
  else if (event.key === "ArrowUp") go(near(0)[0] ?? (item.parent !== now.root ? item.parent : null));
  else if (event.key === "ArrowRight") go(beside(1));
  else if (event.key === "ArrowLeft") go(beside(-1));
  else if (event.key === "+" || event.key === "-") { keeping(item, () => { zoom = Math.min(LARGEST, Math.max(LEAST, zoom * (event.key === "+" ? 1.25 : 0.8))); }); elements.get(item)?.focus({ preventScroll: true }); }
  else if (event.key === "Escape") { if (tip.hidden) choose(null); tip.hidden = true; }
  else return;
  event.preventDefault();
});
function show(item) {
  // Scroll as little as shows the item.
  const [x, y] = [item.X * zoom + shift.x, item.Y * zoom + shift.y], nearest = (at, size, from, room) =>
    at < from ? at - MARGIN : at + size > from + room ? Math.min(at - MARGIN, at + size + MARGIN - room) : from;
  view.scrollTo(nearest(x, item.w * zoom, view.scrollLeft, view.clientWidth), nearest(y, item.h * zoom, view.scrollTop, view.clientHeight));
}

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
view.addEventListener("scroll", repaint);

function zoomAt(value, x, y) {
  const left = (view.scrollLeft + x - shift.x) / zoom, top = (view.scrollTop + y - shift.y) / zoom;
  scale(value, false);
  view.scrollTo(left * zoom + shift.x - x, top * zoom + shift.y - y);
}
view.addEventListener("wheel", event => {
  if (!event.ctrlKey) return;
  event.preventDefault();
  const place = view.getBoundingClientRect();
  zoomAt(zoom * Math.exp(-Math.max(-60, Math.min(60, event.deltaY)) / 400), event.clientX - place.left, event.clientY - place.top);
}, { passive: false });
let pinch = null;
view.addEventListener("touchmove", event => {
  if (event.touches.length !== 2) { pinch = null; return; }
  event.preventDefault();
  const [one, other] = event.touches, place = view.getBoundingClientRect();
  const apart = Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY);
  if (pinch) zoomAt(zoom * apart / pinch, (one.clientX + other.clientX) / 2 - place.left, (one.clientY + other.clientY) / 2 - place.top);
  pinch = apart;
}, { passive: false });
view.addEventListener("touchend", () => { pinch = null; });

function mapTo(event) {
  const area = map.getBoundingClientRect(), { scale, width, height } = drawnMap;
  const x = (event.clientX - area.left - (width - now.root.w * scale) / 2) / scale, y = (event.clientY - area.top - (height - now.root.h * scale) / 2) / scale;
  view.scrollTo(x * zoom + shift.x - view.clientWidth / 2, y * zoom + shift.y - view.clientHeight / 2);
}
map.addEventListener("pointerdown", event => { map.setPointerCapture(event.pointerId); mapTo(event); });
map.addEventListener("pointermove", event => { if (map.hasPointerCapture(event.pointerId)) mapTo(event); });

function fit() {
  scale(Math.min(1, (view.clientWidth - 2 * MARGIN) / now.root.w, (view.clientHeight - MARGIN) / now.root.h));
  view.scrollTo(0, 0);
}
byId("larger").onclick = () => zoomAt(zoom * 1.25, view.clientWidth / 2, view.clientHeight / 2);
byId("smaller").onclick = () => zoomAt(zoom / 1.25, view.clientWidth / 2, view.clientHeight / 2);
byId("fit").onclick = fit;
byId("open").onclick = () => { for (const box of now.boxes) box.open = true; draw(); fit(); };
byId("fold").onclick = () => { for (const box of now.boxes) box.open = box === now.root; draw(); if (zoom < 0.5) scale(1); view.scrollTo(0, 0); };
new ResizeObserver(() => { if (now) { drawnMap = null; place(); } }).observe(view);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readPalette(); drawnMap = null; legend(); repaint(); });

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
byId("left-next").onclick = () => step(now.leaves.filter(isLeft), 1);

// Colors: by the taker, or by one of the measures.

function legend() {
  const list = byId("legend");
  if (now.heat === null) {
    const used = new Set(now.leaves.map(item => item.class));
    const all = [...takers.map(taker => [takerClass(taker), taker]), ["runtime", "left to the runtime"], ["nothing", "nothing runs it"]];
    list.replaceChildren(...all.filter(([name]) => used.has(name)).map(([name, label]) => html("li", { className: name }, html("i", {}), label)));
    return;
  }
  const measure = now.method.measures[now.heat], bar = html("i", { className: "scale" });
  bar.style.background = `linear-gradient(to right, ${[0, 0.25, 0.5, 0.75, 1].map(share => heatColor(share).back).join(", ")})`;
  const [low, high] = measure.limit ? ["0.01 % of the bound", "the bound"] : ["0", human(now.top, measure.unit)];
  const items = [html("li", { className: "heat" }, low, bar, high)];
  if (measure.limit) items.push(html("li", { className: "beyond" }, html("i", {}), "✕ beyond its bound"));
  if (now.leaves.some(item => isWork(item) && item.heat[now.heat] === null)) items.push(html("li", { className: "plain" }, html("i", {}), "not measured"));
  list.replaceChildren(...items, html("li", { className: "muted", textContent: measure.note }));
}
function heat() {
  // The hottest of what is shown: boxes while they are closed, what is in them when they are open.
  now.top = now.heat === null ? 0 : [...elements.keys()].reduce((most, item) => item.open ? most : Math.max(most, item.heat[now.heat] ?? 0), 0);
  drawnMap = null;
  legend();
}
function color(which) {
  now.heat = which;
  heat();
  choose(chosen);
}
byId("color").onchange = event => color(event.target.value === "" ? null : Number(event.target.value));

const models = [];
function begin(number) {
  now = models[number] ??= model(data.methods[number]);
  if (!now.begun) {
    openSome(now.root, START, false);
    if (shown(now.root) < FEW) openSome(now.root, INSIDE, true);
  }
  now.begun = true;
  chosen = current = focused = null; matches = []; byId("find").value = ""; byId("found").textContent = "";
  byId("left-next").disabled = !now.leaves.some(isLeft);
  const measured = now.method.measures.findIndex(each => each.measured);
  const options = now.method.measures.map((each, at) => html("option", { value: at, textContent: each.name, selected: at === measured }));
  byId("color").replaceChildren(html("option", { value: "", textContent: "who runs it" }), ...options);
  zoom = 1;
  now.heat = measured < 0 ? null : measured;
  draw();
  choose(null);
  scale(Math.min(1, Math.max(0.7, (view.clientWidth - 2 * MARGIN) / now.root.w)));
  view.scrollTo(Math.max(0, (space.clientWidth - view.clientWidth) / 2), 0);
}

byId("method").replaceChildren(...data.methods.map((method, number) => html("option", { value: number, textContent: method.name })));
byId("method").onchange = event => begin(Number(event.target.value));
document.querySelector(".several").hidden = data.methods.length < 2;
document.querySelector(".tools").hidden = byId("stage").hidden = false;
readPalette();
begin(0);
