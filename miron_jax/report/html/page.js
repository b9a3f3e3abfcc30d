"use strict";
// The table sorts and filters; the list of examples draws what is seen, from chunks that are inflated when they are.
// Whatever comes from a run is set as text, never as HTML.
(() => {
  const $ = (id) => document.getElementById(id);
  const make = (name, text, className) => {
    const element = document.createElement(name);
    if (text !== undefined) element.textContent = text;
    if (className) element.className = className;
    return element;
  };
  const visible = (text) => text.replace(/[\u0000-\u0008\u000b-\u001f\u007f]/g, (c) => String.fromCharCode(0x2400 + (c.charCodeAt(0) & 0x3f)))
    .replace(/[\u202a-\u202e\u2066-\u2069]/g, "\u2423");

  // Table of tasks

  const table = $("all"), groups = [];  // of bodies: a suite's heading, then its tasks
  for (const body of table.tBodies) body.className === "suite" ? groups.push([body]) : groups.at(-1).push(body);
  const heads = [...table.tHead.rows[0].cells];
  const cellsOf = (body) => [...body.rows[0].cells];
  const compare = (column, sign) => (a, b) => {
    const [x, y] = [a, b].map((body) => cellsOf(body)[column].dataset.value);
    if (x === "" || y === "") return (x === "") - (y === "");  // what has no value comes last
    const [p, q] = [Number(x), Number(y)];
    return sign * (Number.isNaN(p) || Number.isNaN(q) ? x.localeCompare(y) : p - q);
  };
  heads.forEach((head, column) => head.addEventListener("click", () => {
    const ascending = head.getAttribute("aria-sort") !== "ascending";
    heads.forEach((other) => other.setAttribute("aria-sort", "none"));
    head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    for (const group of groups) {
      const [suite, ...tasks] = group;
      group.splice(1, tasks.length, ...tasks.sort(compare(column, ascending ? 1 : -1)));
      table.append(...group);
    }
  }));
  const filter = () => {
    const wanted = $("filter").value.toLowerCase();
    let shown = 0, all = 0;
    for (const [suite, ...tasks] of groups) {
      for (const body of tasks) body.hidden = !body.textContent.toLowerCase().includes(wanted);
      const seen = tasks.filter((body) => !body.hidden).length;
      suite.hidden = !seen;
      shown += seen;
      all += tasks.length;
    }
    $("shown").textContent = `${shown} of ${all}`;
  };
  $("filter").addEventListener("input", filter);
  filter();

  // What is shown of the table, as text for other programs; where the clipboard is closed it is there to be selected.
  const forms = {
    markdown: ([head, ...rows]) => [head, head.map(() => "---"), ...rows]
      .map((row) => `| ${row.map((text) => text.replace(/\|/g, "\\|")).join(" | ")} |`),
    csv: (rows) => rows.map((row) => row.map((text) => `"${text.replace(/"/g, '""')}"`).join(",")),
  };
  document.querySelectorAll("[data-copy]").forEach((button) => button.addEventListener("click", async () => {
    $("copied").replaceChildren();
    const bodies = groups.flatMap((group) => group.slice(1)).filter((body) => !body.hidden);
    const rows = bodies.map((body) => cellsOf(body).map((cell) => (cell.querySelector("summary") || cell).textContent.trim()));
    const text = forms[button.dataset.copy]([heads.map((head) => head.textContent), ...rows]).join("\n");
    try {
      await navigator.clipboard.writeText(text);
      $("copied").textContent = `copied: ${rows.length}`;
    } catch {
      const box = make("textarea", text);
      box.setAttribute("aria-label", "The table as text");
      $("copied").replaceChildren(box);
      box.select();
    }
  }));

  // Examples

  const ROW = 26, MOST_PIXELS = 8000000;
  const PROMPT = 240, SHOWN = 160;  // characters of a prompt that examples.py keeps, and of those that a row shows
  const index = JSON.parse($("index").textContent);
  const inflated = new Map();
  let task = null, order = [], chosen = -1;

  const chunkOf = (number) => {
    if (!inflated.has(number)) {
      inflated.set(number, (async () => {
        const bytes = Uint8Array.from(atob($(`chunk-${number}`).textContent), (c) => c.charCodeAt(0));
        const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
        return JSON.parse(await new Response(stream).text());
      })());
    }
    return inflated.get(number);
  };
  const exampleAt = async (place) => (await chunkOf(task.first + Math.floor(place / task.size)))[place % task.size];
  const markOf = (place) => task.marks[place];
  // The beginning of the last paragraph, which is the question behind its shots; where it began earlier, its last words.
  const question = (prompt) => {
    const end = prompt.trimEnd(), last = end.split(/\n\s*\n/).pop(), words = last.trim().replace(/\s+/g, " ");
    if (last.length < end.length || prompt.length < PROMPT) return words.slice(0, SHOWN);
    return `… ${words.slice(-SHOWN).replace(/^\S*\s/, "")}`;
  };
  const line = (example) => {
    const short = (text) => text.trim().replace(/\s+/g, " ").slice(0, 80);
    const gold = example.options[example.gold];
    const right = gold && example.prediction !== example.gold ? `  right: ${short(gold[0])}` : "";
    const margin = example.margin === null ? "" : `  margin ${example.margin}`;
    return visible(`${example.row}  ${question(example.prompt)}  →  ${short(example.said)}${right}${margin}`);
  };

  const draw = () => {
    const list = $("list"), spacer = $("spacer"), total = order.length * ROW;
    const height = Math.min(total, MOST_PIXELS);  // browsers bound the height of an element
    spacer.style.height = `${height}px`;
    const scale = height > list.clientHeight ? (total - list.clientHeight) / (height - list.clientHeight) : 1;
    const top = list.scrollTop * scale;
    const first = Math.max(0, Math.floor(top / ROW) - 2);
    const last = Math.min(order.length, first + Math.ceil(list.clientHeight / ROW) + 4);
    const buttons = [];
    for (let i = first; i < last; i++) {
      const place = order[i], mark = markOf(place);
      const button = make("button", "…", mark === "1" ? "right" : mark === "0" ? "wrong" : "");
      button.type = "button";
      button.dataset.place = place;
      button.style.top = `${i * ROW - top + list.scrollTop}px`;
      button.setAttribute("aria-pressed", String(place === chosen));
      const of = task;
      exampleAt(place).then((example) => { if (of === task) button.textContent = `${mark === "1" ? "✓" : mark === "0" ? "✗" : "·"} ${line(example)}`; });
      buttons.push(button);
    }
    spacer.replaceChildren(...buttons);
  };

  // Tokens as blocks: the fuller, the less probable; a title holds log p in nats.
  const NAMESPACE = "http://www.w3.org/2000/svg";
  const blocks = (logprobs) => {
    const box = make("div", undefined, "tokens");
    for (const logprob of logprobs) {
      const svg = document.createElementNS(NAMESPACE, "svg"), rect = document.createElementNS(NAMESPACE, "rect");
      const title = document.createElementNS(NAMESPACE, "title");
      svg.setAttribute("width", "14"); svg.setAttribute("height", "14");
      rect.setAttribute("width", "14"); rect.setAttribute("height", "14"); rect.setAttribute("fill", "currentColor");
      rect.setAttribute("fill-opacity", logprob === null ? "0" : (1 - Math.exp(logprob / 3)).toFixed(3));
      rect.setAttribute("stroke", "currentColor"); rect.setAttribute("stroke-opacity", ".3");
      title.textContent = logprob === null ? "no value" : `${logprob} nats`;
      rect.append(title); svg.append(rect); box.append(svg);
    }
    return box;
  };

  const open = async (place) => {
    const example = await exampleAt(place), detail = $("detail");
    chosen = place;
    detail.replaceChildren(make("h3", `${task.name}, row ${example.row}${example.category ? `, ${visible(example.category)}` : ""}`));
    detail.append(make("pre", visible(example.prompt)));
    example.options.forEach(([text, logprob, tokens, greedy], i) => {
      const box = make("div", undefined, "option"), marks = [];
      if (example.gold === i) marks.push("right answer");
      if (example.prediction === i) marks.push("chosen");
      if (greedy) marks.push("greedy");
      const sum = logprob === null ? "no log-probability" : `${logprob} nats, ${tokens.length} tokens`;
      box.append(make("pre", visible(text)));
      box.append(make("div", [...marks, sum].join(", "), marks.length && example.prediction === i ? (example.gold === i ? "right" : "wrong") : "note"));
      box.append(blocks(tokens));
      detail.append(box);
    });
    for (const text of example.generated) detail.append(make("div", "generated", "note"), make("pre", visible(text)));
    const numbers = Object.entries(example.metrics).map(([name, value]) => `${name} ${value === null ? "none" : value}`);
    detail.append(make("p", numbers.join(", "), "note"));
    if (example.reason) detail.append(make("p", visible(example.reason), "note"));
    draw();
  };

  const choose = () => {
    task = index[Number($("task").value)];
    const which = $("which").value;
    order = [];
    for (let place = 0; task && place < task.marks.length; place++) if (!which || markOf(place) === which) order.push(place);
    chosen = -1;
    $("detail").replaceChildren();
    $("count").textContent = task ? `${order.length} of ${task.marks.length} examples` : "no samples";
    $("list").scrollTop = 0;
    if (task) draw();
  };
  $("task").append(...index.map((own, i) => {
    const option = make("option", own.name);
    option.value = i;
    return option;
  }));
  $("task").addEventListener("change", choose);
  $("which").addEventListener("change", choose);
  $("list").addEventListener("scroll", () => requestAnimationFrame(draw));
  $("list").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) open(Number(button.dataset.place));
  });
  choose();
})();
