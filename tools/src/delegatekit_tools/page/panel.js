// Words about items: the note at the pointer, and the panel beside the graph.

function html(name, attributes, ...children) {
  const made = document.createElement(name);
  Object.assign(made, attributes);
  made.append(...children);
  return made;
}

const WORST = 8;  // items that the panel names of a kind

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
function heatLines(item, method) {
  return method.measures.map((measure, which) => {
    const value = item.heat[which], note = item.operator ? measure.notes[item.number] : undefined;
    const counts = value !== null && !(value === 0 && measure.hidesZero);
    return counts || note ? [measure.name, [counts ? human(value, measure.unit) : "", note === undefined ? "" : data.texts[note]].filter(Boolean).join("; ")] : null;
  }).filter(Boolean);
}
function words(item, method) {
  const heat = heatLines(item, method).map(([name, value]) => `${name}: ${value}`);
  if (item.children) return [item.label, item.note, `${plural(item.count, "operator")}: ${tallied(item)}`, ...heat].filter(Boolean).join("\n");
  if (!isWork(item)) return `${item.label}\n${said(item, VALUES)}`;
  const lines = [said(item, OPERATOR), who(item), ...reasons(item).map(([name, why]) => `${name}: ${why}`), said(item, VALUES), ...heat];
  return [...lines, [said(item, MODULE), said(item, SOURCE)].filter(Boolean).join(", ")].filter(Boolean).join("\n");
}

function tell(item, graph, panel, { reveal, toggle, back }) {
  const list = html("dl", {});
  const fact = (name, ...values) => { if (values.some(Boolean)) list.append(html("dt", { textContent: name[0].toUpperCase() + name.slice(1) }), ...values.map(value => typeof value === "string" ? html("dd", { textContent: value }) : value)); };
  if (item.children) {
    fact("What", item.kind === "delegate" ? "a delegate" : item.kind === "range" ? "neighbors, as one box" : `a ${item.kind}`);
    fact("Cost", item.note ?? "");
    fact("Who runs it", `${plural(item.count, "operator")}: ${tallied(item)}`);
    for (const [name, value] of heatLines(item, graph.method)) fact(name, value);
  } else {
    fact("Node", said(item, NAME));
    if (isWork(item)) fact("Who runs it", who(item));
    for (const [name, why] of reasons(item)) fact(`Why not ${name}`, why);
    fact("Makes", said(item, VALUES));
    for (const [name, value] of heatLines(item, graph.method)) fact(name, value);
    fact("Module", said(item, MODULE));
    fact("Source", said(item, SOURCE));
    const jump = other => html("button", { textContent: other.label, onclick: () => reveal(other) });
    const near = others => others.length ? html("dd", {}, ...others.map(jump)) : "";
    fact("Reads", near(graph.arrows.filter(arrow => arrow.to === item).map(arrow => arrow.from)));
    fact("Is read by", near(graph.arrows.filter(arrow => arrow.from === item).map(arrow => arrow.to)));
  }
  const title = item.children || !isWork(item) ? item.label : said(item, OPERATOR);
  const buttons = item.children ? [html("button", { textContent: item.open ? "Close" : "Open", onclick: () => toggle(item) })] : [];
  panel.replaceChildren(html("h3", { textContent: title }), list, html("p", {}, ...buttons, html("button", { textContent: "Summary", onclick: back })));
}

function summarize(graph, panel, reveal) {
  // What the panel shows while nothing is chosen: who runs how much, and what is worst.
  const work = graph.leaves.filter(isWork), method = graph.method;
  panel.replaceChildren(html("h3", { textContent: `Method ${method.name}` }));
  const runners = new Map();
  for (const item of work) {
    const name = said(item, TAKER) || (said(item, KERNEL) ? "the runtime" : "nothing");
    const found = runners.get(name) ?? runners.set(name, { count: 0, macs: 0, class: item.class }).get(name);
    found.count += 1; found.macs += item.operator[MACS];
  }
  const macs = [...runners.values()].reduce((sum, each) => sum + each.macs, 0);
  const list = html("ul", { className: "shares" });
  for (const [name, each] of [...runners].sort(([, one], [, other]) => other.count - one.count)) {
    const share = macs ? `, ${(100 * each.macs / macs).toFixed(1)} % of the MACs` : "";
    list.append(html("li", { className: each.class }, html("i", {}), `${name}: ${plural(each.count, "operator")}${share}`));
  }
  panel.append(work.length ? list : html("p", { textContent: "Nothing is computed." }));
  const section = (title, items, value) => {
    if (!items.length) return;
    const row = item => html("li", {}, html("button", { onclick: () => reveal(item) },
      html("b", { textContent: item.label }), ` ${value(item)}`, html("small", { textContent: [said(item, MODULE), said(item, SOURCE).split(": `")[0]].filter(Boolean).join(", ") })));
    panel.append(html("h4", { textContent: title }), html("ol", { className: "worst" }, ...items.slice(0, WORST).map(row)));
    if (items.length > WORST) panel.append(html("p", { className: "muted", textContent: `and ${(items.length - WORST).toLocaleString("en")} more` }));
  };
  const largest = which => graph.leaves.filter(item => isWork(item) && item.heat[which] > 0).sort((one, other) => other.heat[which] - one.heat[which] || one.number - other.number);
  const main = graph.heat ?? method.measures.findIndex(each => each.measured);
  if (main >= 0) section(method.measures[main].worst, largest(main), item => human(item.heat[main], method.measures[main].unit));
  const left = work.filter(isLeft).sort((one, other) => other.operator[MACS] - one.operator[MACS] || one.number - other.number);
  section(`Left to the runtime: ${left.length.toLocaleString("en")}`, left, item => item.operator[MACS] ? human(item.operator[MACS], "MACs") : "");
  method.measures.forEach((measure, which) => {
    if (which !== main && !measure.measured) section(measure.worst, largest(which), item => human(item.heat[which], measure.unit));
  });
  panel.append(html("p", { className: "muted", textContent: "Choose an operator or a box. Boxes open and close; arrow keys follow the data." }));
}
