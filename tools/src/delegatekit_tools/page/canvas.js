// Draws what can be seen of the graph on a canvas, in less detail the smaller it is.

const TINY = 26, READABLE = 5;  // pixels: of a box whose inside is no longer drawn, of text that is

let palette = {};
function readPalette() {
  const style = getComputedStyle(document.documentElement);
  const color = name => style.getPropertyValue(`--${name}`).trim();
  palette = { names: {} };
  for (const name of ["page", "surface", "text", "muted", "line", "accent", "cold", "warm", "hot"]) palette[name] = color(name);
  for (const name of ["runtime", "nothing", "plain", ...Array.from({ length: COLORS }, (_, at) => `taker-${at}`)])
    palette.names[name] = { back: color(name), on: color(`on-${name}`), edge: color(`edge-${name}`) };
  for (const each of Object.values(palette.names)) each.veil = mix(each.back, palette.surface, 0.65);
  heats.clear();
}

const parts = color => [1, 3, 5].map(start => parseInt(color.slice(start, start + 2), 16));
function mix(one, other, share) {
  const [a, b] = [parts(one), parts(other)];
  return `#${a.map((value, at) => Math.round(value + (b[at] - value) * share).toString(16).padStart(2, "0")).join("")}`;
}
const luminance = color => {
  const [red, green, blue] = parts(color).map(value => value / 255).map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
};

// Heat: an item's color by one of the measures. Of measures with a limit 1 is the limit; what exceeds it is wrong.

const heats = new Map();
function heatColor(share) {
  const step = Math.round(share * 40);
  let found = heats.get(step);
  if (!found) {
    const back = step < 20 ? mix(palette.cold, palette.warm, step / 20) : mix(palette.warm, palette.hot, (step - 20) / 20);
    const light = luminance(back);
    const on = (light + 0.05) / 0.05 > 1.05 / (light + 0.05) ? "#000000" : "#ffffff";
    heats.set(step, found = { back, on, edge: mix(back, palette.text, 0.45), veil: mix(back, palette.surface, 0.5) });
  }
  return found;
}
function heatShare(value, measure, top) {
  if (measure.limit) return value <= 0 ? 0 : Math.min(1, Math.max(0, 1 + Math.log10(value) / 4));
  return top > 0 ? Math.sqrt(Math.min(1, value / top)) : 0;
}
function colorsOf(item, graph) {
  if (graph.heat === null) return palette.names[item.class];
  const measure = graph.method.measures[graph.heat], value = item.open ? item.peak[graph.heat] : item.heat[graph.heat];
  if (value === null) return palette.names.plain;
  if (measure.limit && value > 1) return palette.names.nothing;
  return heatColor(heatShare(value, measure, graph.top));
}
const isWrong = (item, graph) => graph.heat !== null && graph.method.measures[graph.heat].limit && item.heat[graph.heat] > 1;

function paintGraph(context, graph, area, zoom, marks) {
  // `area` is the visible part in the graph's own units; the context already has its scale and place.
  const outside = item => item.X > area.right || item.Y > area.bottom || item.X + item.w < area.left || item.Y + item.h < area.top;
  const open = [], faces = [];
  const collect = item => {
    if (outside(item)) return;
    if (!item.open || (item.parent && item.w * zoom < TINY && item.h * zoom < TINY)) { faces.push(item); return; }
    if (item.parent) open.push(item);
    for (const inner of item.children) collect(inner);
  };
  collect(graph.root);
  const hair = 1 / zoom, texts = 12 * zoom >= READABLE, round = 5 * zoom > 1.5;
  const fill = (item, color, radius) => {
    context.fillStyle = color;
    if (!round) { context.fillRect(item.X, item.Y, item.w, item.h); return; }
    context.beginPath();
    context.roundRect(item.X, item.Y, item.w, item.h, radius);
    context.fill();
  };
  const isMarked = item => marks.chosen === item || marks.focused === item || marks.matches.has(item) || isWrong(item, graph);
  const border = (item, colors) => {  // of the path that was filled last
    const chosen = marks.chosen === item || marks.focused === item, match = marks.matches.has(item), wrong = isWrong(item, graph);
    const dashed = (item.class === "runtime" || item.class === "nothing") && !chosen && zoom > 0.25;
    context.strokeStyle = chosen || match ? palette.accent : colors.edge;
    const width = chosen ? 3 : match || wrong || item.kind === "delegate" ? 2.5 : 1.25;
    context.lineWidth = Math.max(width, (chosen || match ? 2 : 0.5) * hair);
    if (dashed) context.setLineDash([5, 3]);
    if (round) context.stroke();
    else context.strokeRect(item.X, item.Y, item.w, item.h);
    if (dashed) context.setLineDash([]);
  };
  for (const item of open) {
    const colors = graph.heat === null || isWrong(item, graph) ? colorsOf(item, graph) : palette.names.plain;  // its items have the heat
    fill(item, colors.veil, 8);
    border(item, colors);
    if (texts) {
      context.fillStyle = palette.text;
      context.font = `12px ${FONT}`;
      context.fillText(first(item), item.X + 10, item.Y + 19);
    }
  }
  paintLines(context, [graph.root, ...open], area, zoom, marks);
  for (const item of faces) paintFace(context, item, graph, { zoom, texts, fill, border, isMarked });
}

function paintLines(context, boxes, area, zoom, marks) {
  const least = 3 / zoom, simple = zoom < 0.3;
  context.setLineDash([]);
  context.strokeStyle = palette.muted;
  context.globalAlpha = 0.55;
  context.lineWidth = Math.max(1.2, 0.6 / zoom);
  let batch = 0;
  context.beginPath();
  for (const box of boxes)
    for (const line of box.lines) {
      if (line.left > area.right || line.right < area.left || line.top > area.bottom || line.bottom < area.top) continue;
      if (line.bottom - line.top < least && line.right - line.left < least) continue;
      trace(context, line.points, simple);
      if (++batch % 64 === 0) { context.stroke(); context.beginPath(); }
    }
  context.stroke();
  context.globalAlpha = 1;
  context.strokeStyle = palette.accent;
  context.lineWidth = Math.max(2.2, 1.5 / zoom);
  context.beginPath();
  for (const line of marks.near) trace(context, line.points, simple);
  context.stroke();
}

function trace(context, points, simple) {
  context.moveTo(...points[0]);
  for (let at = 1; at < points.length; at++) {
    const [[x, y], [nextX, nextY]] = [points[at - 1], points[at]];
    if (simple || x === nextX || y === nextY) context.lineTo(nextX, nextY);
    else context.bezierCurveTo(x, (y + nextY) / 2, nextX, (y + nextY) / 2, nextX, nextY);
  }
}

function paintFace(context, item, graph, look) {
  const colors = colorsOf(item, graph);
  if (item.h * look.zoom < 9 && !look.isMarked(item)) {
    context.fillStyle = graph.heat === null ? colors.edge : colors.back;
    context.fillRect(item.X, item.Y, item.w, item.h);
    return;
  }
  look.fill(item, colors.back, item.children ? 8 : 4);
  look.border(item, colors);
  if (graph.heat === null && item.tally?.size > 1) {  // shares of the runners of its operators
    let x = item.X + 4;
    for (const [name, count] of item.tally) {
      const width = (item.w - 8) * count / item.count;
      context.fillStyle = palette.names[name].edge;
      context.fillRect(x, item.Y + item.h - 6, width, 4);
      x += width;
    }
  }
  if (!look.texts || item.open) return;
  context.fillStyle = colors.on;
  context.font = `12px ${FONT}`;
  context.fillText(isWrong(item, graph) ? item.mark + first(item) : first(item), item.X + 8, item.Y + 17);
  context.font = `10px ${FONT}`;
  context.fillText((graph.heat !== null && item.told[graph.heat]) || second(item), item.X + 8, item.Y + 31);
}

function paintMap(context, graph, scale) {
  // The whole graph in little: colors alone.
  const rect = item => context.fillRect(item.X * scale, item.Y * scale, Math.max(1, item.w * scale), Math.max(1, item.h * scale));
  const draw = item => {
    const colors = colorsOf(item, graph);
    const small = item.w * scale < 3 && item.h * scale < 3;
    if (item.open && item.parent) { context.fillStyle = small ? colors.edge : graph.heat === null ? colors.veil : palette.names.plain.veil; rect(item); }
    if (item.open && !small) { item.children.forEach(draw); return; }
    if (!item.open) { context.fillStyle = graph.heat === null ? colors.edge : colors.back; rect(item); }
  };
  draw(graph.root);
}
