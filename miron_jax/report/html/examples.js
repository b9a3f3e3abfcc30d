// The list of examples draws what is seen, from chunks that are inflated when they are; an opened example shows two runs
// beside each other.
{
  const ROW = 26, MOST_PIXELS = 8000000;
  const PROMPT = 300, SHOWN = 160;  // characters of a prompt's end, and of those that a row shows
  const MARKS = { 1: "✓", 0: "✗", "-": "·" }, CLASSES = { 1: "right", 0: "wrong", "-": "" };
  const { tasks: index, texts, reasons } = JSON.parse($("index").textContent);
  const inflated = new Map();
  let task = null, run = null, other = null, order = [], chosen = -1;  // other: the run beside, or null

  // Examples of a run: `place` counts from 0 in the run, an id is the same in all runs.

  // Columns of a chunk (chunks.py) -> its examples.  Of an option: text, log-probability, those of its tokens, whether it is
  // greedy, and of each token its bytes, id and rank; an empty list where the run has not kept them.
  const examplesIn = ({ each, metrics, options, texts, sums, sizes, greedy, tokens, lengths, ids, ranks }) => {
    const nats = (hundredths) => (hundredths === null ? null : hundredths / -100);
    const kept = (column) => (column[0] === null ? [] : column);
    let option = 0, token = 0;
    return options.map((count, i) => {
      const example = { gold: null, prediction: null, margin: null, also: [], generated: [], accepted: [], options: [], metrics: {} };
      for (const [name, column] of Object.entries(each)) if (column[i] !== null) example[name] = column[i];
      for (const [name, column] of Object.entries(metrics)) if (column[i] !== false) example.metrics[name] = column[i];
      for (const end = option + count; option < end; option++) {
        const stop = token + sizes[option], of = (column) => column.slice(token, stop);
        example.options.push([texts[option], nats(sums[option]), of(tokens).map(nats), greedy[option], kept(of(lengths)), kept(of(ids)), kept(of(ranks))]);
        token = stop;
      }
      example.margin = example.metrics.choice_margin ?? null;
      return example;
    });
  };
  const chunkOf = (number) => {
    if (!inflated.has(number)) {
      inflated.set(number, (async () => {
        const bytes = Uint8Array.from(atob($(`chunk-${number}`).textContent), (c) => c.charCodeAt(0));
        const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
        const chunk = JSON.parse(await new Response(stream).text());
        return Array.isArray(chunk) ? chunk : examplesIn(chunk);  // texts before questions, or examples
      })());
    }
    return inflated.get(number);
  };
  const at = async (of, place) => (await chunkOf(of.first + Math.floor(place / of.size)))[place % of.size];
  const allOf = async (of) => {
    const numbers = Array.from({ length: Math.ceil(of.marks.length / of.size) }, (_, i) => of.first + i);
    return (await Promise.all(numbers.map(chunkOf))).flat();
  };
  // The same example in the run beside; undefined: it is not there.
  const placeBeside = (place) => {
    if (!other) return undefined;
    const id = run.ids ? run.ids[place] : place;
    if (!other.places) other.places = other.ids && new Map(other.ids.map((each, i) => [each, i]));
    const there = other.places ? other.places.get(id) : id;
    return there < other.marks.length ? there : undefined;
  };

  // The list

  // The beginning of the last paragraph, which is the question behind its shots; where it began earlier, its last words.
  const question = (prompt) => {
    const end = prompt.trimEnd(), last = end.split(/\n\s*\n/).pop(), words = last.trim().replace(/\s+/g, " ");
    if (last.length < end.length || prompt.length < PROMPT) return words.slice(0, SHOWN);
    return `… ${words.slice(-SHOWN).replace(/^\S*\s/, "")}`;
  };
  const short = (text) => visible((text || "").trim().replace(/\s+/g, " ").slice(0, 80));
  const saidIn = (example) => (example.options[example.prediction] || example.generated)[0];
  // Of the right choice, of a continuation, or of the first accepted answer.
  const rightIn = (example) => {
    const option = example.options[example.gold ?? (example.options.length === 1 ? 0 : -1)];
    return option ? option[0] : example.accepted[0];
  };
  const cells = (example, mark) => {
    const said = saidIn(example), right = rightIn(example), asked = make("span", visible(question(example.prompt.slice(-PROMPT))));
    const parts = [make("span", example.row, "note"), asked];
    if (said === undefined) asked.className = "unsaid";  // it has the room of what was said
    else parts.push(make("span", `→ ${short(said)}`));
    parts.push(make("span", right === undefined || (mark === "1" && said !== undefined) ? "" : `right: ${short(right)}`));
    parts.push(make("span", example.margin === null ? "" : example.margin.toFixed(2), "number note"));
    return parts;
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
      const place = order[i], of = run, mark = of.marks[place], beside = placeBeside(place);
      const button = make("button", "…");
      button.type = "button";
      button.dataset.place = place;
      button.style.top = `${i * ROW - top + list.scrollTop}px`;
      button.setAttribute("aria-pressed", String(place === chosen));
      const marks = make("span", MARKS[mark], CLASSES[mark]);
      if (other) marks.append(make("span", beside === undefined ? " " : MARKS[other.marks[beside]], beside === undefined ? "" : CLASSES[other.marks[beside]]));
      at(of, place).then((example) => { if (of === run) button.replaceChildren(marks, ...cells(example, mark)); });
      buttons.push(button);
    }
    spacer.replaceChildren(...buttons);
  };
  // Scroll so far that the i-th row is seen.
  const show = (i) => {
    const list = $("list"), total = order.length * ROW, height = Math.min(total, MOST_PIXELS);
    const scale = height > list.clientHeight ? (total - list.clientHeight) / (height - list.clientHeight) : 1;
    const top = list.scrollTop * scale;
    if (i * ROW < top) list.scrollTop = (i * ROW) / scale;
    else if ((i + 1) * ROW > top + list.clientHeight) list.scrollTop = ((i + 1) * ROW - list.clientHeight) / scale;
    draw();
  };

  // One example

  const counted = (count, name) => `${count.toLocaleString("en")} ${name}${count === 1 ? "" : "s"}`;
  // The prompt as the model read it; what stands before the question is folded, and inflated once it is opened.
  const promptOf = ({ prompt, contexts = [prompt], before, shots, dropped, cut, why, options }) => {
    const parts = [], gap = before ? /^\n*/.exec(contexts[0])[0] : "";  // which ends the last of the texts before
    if (before) {
      const fold = make("details");
      fold.append(make("summary", `${shots ? counted(shots, "few-shot example") : "Text"} before the question`));
      fold.addEventListener("toggle", async () => {
        const each = await Promise.all(before.map((place) => at(texts, place)));
        fold.append(...each.map((text, i) => make("pre", visible(text) + (i + 1 < each.length ? "" : gap))));
      }, { once: true });
      parts.push(fold);
    }
    contexts.forEach((text, i) => {
      if (contexts.length > 1 && contexts.length === options.length) parts.push(make("div", `before choice ${String.fromCharCode(65 + (i % 26))}`, "note"));
      parts.push(make("pre", visible(text.slice(gap.length))));
    });
    if (cut) parts.push(make("p", `Its first ${counted(cut, "character")} are not in this page.`, "note"));
    if (dropped) parts.push(make("p", `Its first ${counted(dropped, "few-shot example")} had no room in the length limit: the model did not read them.`, "note"));
    if (why !== undefined) parts.push(make("p", `Not shown whole: ${visible(reasons[why])}.`, "note"));
    return parts;
  };
  // Tokens as their letters, or as blocks where a run has not kept which letters they are: the fuller, the less probable.
  const surprise = (logprob) => (logprob === null ? 0 : 1 - Math.exp(logprob / 3));
  const lettersOf = (text, lengths) => {
    const bytes = new TextEncoder().encode(text), decoder = new TextDecoder();
    let start = bytes.length - lengths.reduce((sum, length) => sum + length, 0);
    return lengths.map((length) => visible(decoder.decode(bytes.slice(Math.max(0, start), Math.max(0, start += length)))));
  };
  // Under them stands the dearest; where the arrow keys or a pointer rest on another, that one.
  const tokensOf = ([text, , logprobs, , lengths, ids, ranks], beside) => {
    const letters = lengths.length ? lettersOf(text, lengths) : [];
    const box = make("div", undefined, letters.length ? "tokens letters" : "tokens"), said = make("div", undefined, "note");
    const least = logprobs.reduce((smallest, logprob) => Math.min(smallest, logprob ?? Infinity), Infinity), dearest = logprobs.length > 1 ? logprobs.indexOf(least) : -1;
    logprobs.forEach((logprob, i) => {
      const token = make("span", letters[i] || "");
      token.style.setProperty("--surprise", `${(100 * surprise(logprob)).toFixed(0)}%`);
      token.title = `${letters[i] ? `“${letters[i]}”, ` : ""}${logprob === null ? "no value" : `${logprob} nats`}`;
      if (ids[i] !== undefined) token.title += `, id ${ids[i]}`;
      if (ranks[i] !== undefined) token.title += `, rank ${ranks[i]}`;
      const before = beside && beside[2].length === logprobs.length ? beside[2][i] : null;
      if (before !== null && logprob !== null) {
        const change = logprob - before;
        token.title += `, ${change < 0 ? "" : "+"}${change.toFixed(2)} to the run beside`;
        if (Math.abs(change) > 0.5) token.className = change > 0 ? "gained" : "lost";
      }
      if (i === dearest) token.classList.add("dearest");
      box.append(token);
    });
    const each = [...box.children];
    let at = -1;  // the token that the keys have come to
    const tell = (i) => {
      each[at]?.classList.remove("at");
      at = i;
      each[at]?.classList.add("at");
      const where = each.length > 1 ? `token ${at + 1} of ${each.length}: ` : "";
      said.textContent = at >= 0 ? where + each[at].title : dearest >= 0 ? `dearest: ${each[dearest].title}` : "";
    };
    if (each.length) Object.assign(box, { tabIndex: 0, role: "group", ariaLabel: "Tokens: arrow keys read them" });
    said.setAttribute("aria-live", "polite");
    box.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!by || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      tell(Math.min(each.length - 1, Math.max(0, at < 0 ? Math.max(dearest, 0) : at + by)));
    });
    box.addEventListener("mouseover", (event) => { if (event.target !== box) tell(each.indexOf(event.target)); });
    for (const name of ["blur", "mouseleave"]) box.addEventListener(name, () => tell(-1));
    tell(-1);
    return [box, said];
  };
  const shares = (options) => {  // of the probability among the choices, by sums
    const largest = Math.max(...options.map((option) => option[1] ?? -Infinity));
    const each = options.map((option) => (option[1] === null ? 0 : Math.exp(option[1] - largest)));
    const sum = each.reduce((total, value) => total + value, 0);
    return each.map((value) => (sum ? value / sum : 0));
  };
  const barOf = (share) => {
    const box = make("span", undefined, "bar");
    const filled = make("span");
    filled.style.width = `${(100 * share).toFixed(1)}%`;
    box.append(filled);
    return box;
  };
  // What all options begin with, to a word's end: the question, where choices are scored with it.
  const commonStart = (options) => {
    if (options.length < 2) return 0;
    const [first, ...rest] = options.map((option) => option[0]);
    let length = 0;
    while (length < first.length && rest.every((text) => text[length] === first[length])) length++;
    const start = first.slice(0, length);
    return start.trim() ? Math.max(start.lastIndexOf(" "), start.lastIndexOf("\n")) + 1 : 0;
  };
  const choicesOf = (views) => {
    const [{ example }] = views, table = make("table", undefined, "options"), head = make("tr"), start = commonStart(example.options);
    head.append(make("td"), make("th", "choice"));
    for (const view of views) head.append(make("th", views.length > 1 ? view.label : "share, sum in nats"));
    table.append(head);
    const parts = views.map((view) => shares(view.example.options));
    example.options.forEach(([text], i) => {
      const row = make("tr"), isRight = example.gold === i || example.also.includes(i);
      const letter = make("th", example.options.length > 1 ? String.fromCharCode(65 + (i % 26)) : "");
      if (isRight) letter.append(make("div", "right answer", "right"));
      const said = make("td");
      said.append(make("pre", visible(text.slice(start))));
      row.append(letter, said);
      views.forEach((view, which) => {
        const option = view.example.options[i], cell = make("td");
        row.append(cell);
        if (!option) return;
        const [, logprob, tokens, greedy] = option;
        if (view.example.options.length > 1) cell.append(barOf(parts[which][i]), ` ${(100 * parts[which][i]).toFixed(0)} %`);
        if (view.example.prediction === i) cell.append(" ", make("span", "chosen", isRight ? "right" : "wrong"));
        const sum = logprob === null ? "no log-probability" : `${logprob} nats, ${tokens.length} ${tokens.length === 1 ? "token" : "tokens"}${greedy ? ", greedy" : ""}`;
        cell.append(make("div", sum, "note"), ...tokensOf(option, which ? views[0].example.options[i] : undefined));
      });
      table.append(row);
    });
    return table;
  };
  const textsOf = (views) => {
    const box = make("div", undefined, "texts"), [{ example }] = views;
    if (example.accepted.length) {
      const one = make("div");
      one.append(make("div", example.accepted.length > 1 ? `accepted (${example.accepted.length})` : "accepted", "note"));
      for (const text of example.accepted.slice(0, 8)) one.append(make("pre", visible(text)));
      box.append(one);
    }
    for (const view of views) {
      for (const text of view.example.generated) {
        const one = make("div"), mark = view.mark;
        one.append(make("div", `${views.length > 1 ? `${view.label}: ` : ""}generated ${MARKS[mark]}`, CLASSES[mark] || "note"));
        const accepted = view.example.accepted[0];
        one.append(accepted && accepted !== text ? differing([...text].slice(0, 400), [...accepted].slice(0, 400)) : make("pre", visible(text)));
        box.append(one);
      }
    }
    return box;
  };
  const metricsOf = (views) => {
    const table = make("table", undefined, "metrics"), names = new Set(views.flatMap((view) => Object.keys(view.example.metrics)));
    if (views.length > 1) {
      const head = make("tr");
      head.append(make("th", "metric"), ...views.map((view) => make("th", view.label)));
      table.append(head);
    }
    for (const name of names) {
      const row = make("tr");
      row.append(make("th", name), ...views.map((view) => make("td", view.example.metrics[name] ?? "none", "number")));
      table.append(row);
    }
    return table;
  };
  const open = async (place) => {
    chosen = place;
    const example = await at(run, place), beside = placeBeside(place), detail = $("detail");
    const views = [{ label: run.label, mark: run.marks[place], example }];
    if (beside !== undefined) views.push({ label: other.label, mark: other.marks[beside], example: await at(other, beside) });
    if (chosen !== place) return;  // another was opened meanwhile
    const group = example.group ? `, ${example.group}` : "";
    detail.replaceChildren(make("h3", `${task.name}, row ${example.row}${group}`));
    detail.append(...promptOf(example));
    if (views.some((view) => view.example.same !== example.same)) detail.append(make("p", "The two runs asked this example otherwise: the prompt is that of the first.", "wrong"));
    const box = make("div", undefined, "wide");
    if (example.options.length) Object.assign(box, { tabIndex: 0, role: "region", ariaLabel: "Choices" });
    if (example.options.length) box.append(choicesOf(views));
    detail.append(box);
    if (example.generated.length || example.accepted.length) detail.append(textsOf(views));
    detail.append(metricsOf(views));
    if (example.truncated) detail.append(make("p", "The model read only the end of this prompt, which is longer than the length limit.", "note"));
    for (const view of views) if (view.example.reason) detail.append(make("p", visible(view.example.reason), "note"));
    show(order.indexOf(place));
  };
  const step = (by) => {
    const i = order.indexOf(chosen);
    const next = i < 0 ? 0 : i + by;
    if (order[next] !== undefined) open(order[next]);
  };

  // What is chosen

  const textOf = (example) => [example.prompt, ...example.options.map((option) => option[0]), ...example.generated, ...example.accepted].join("\n").toLowerCase();
  const ORDERS = {
    ties: (example) => Math.abs(example.margin ?? Infinity),
    longest: (example) => -example.options.reduce((sum, option) => sum + option[2].length, example.generated.join("").length),
  };
  const CHOSEN = {  // besides the examples of one mark
    "": () => true,
    truncated: (place, example) => example.truncated,
    flipped: (place) => {
      const beside = placeBeside(place);
      return beside !== undefined && other.marks[beside] !== run.marks[place];
    },
  };
  let asked = 0;
  const choose = async () => {
    const now = ++asked, which = $("which").value, group = $("group").value, wanted = $("search").value.toLowerCase();
    const sorted = ORDERS[$("order").value];
    const of = run, every = (group || wanted || sorted || which === "truncated") && of ? await allOf(of) : [];
    if (now !== asked) return;  // something else was chosen meanwhile
    const isShown = CHOSEN[which] || ((place) => of.marks[place] === which);
    order = [];
    for (let place = 0; of && place < of.marks.length; place++) {
      if (!isShown(place, every[place])) continue;
      if (group && every[place].group !== group) continue;
      if (wanted && !textOf(every[place]).includes(wanted)) continue;
      order.push(place);
    }
    if (sorted) order.sort((a, b) => sorted(every[a]) - sorted(every[b]));
    chosen = -1;
    $("detail").replaceChildren();
    $("count").textContent = of ? `${order.length} of ${of.marks.length} examples` : "no samples";
    $("list").scrollTop = 0;
    draw();
  };
  const fill = (id, choices) => {
    $(id).replaceChildren(...choices.map(([value, text]) => {
      const option = make("option", text);
      option.value = value;
      return option;
    }));
    $(id).parentElement.hidden = choices.length < 2;
  };
  const chooseRun = () => {
    run = task && task.runs[Number($("run").value)];
    const others = task ? task.runs.map((each, i) => [i, each.label]).filter(([i]) => task.runs[i] !== run) : [];
    fill("beside", [...others, ["", "none"]]);
    chooseBeside();
  };
  const chooseBeside = () => {
    const number = $("beside").value;
    other = task && number !== "" ? task.runs[Number(number)] : null;
    for (const option of $("which").options) if (option.value === "flipped") option.hidden = option.disabled = !other;
    if (!other && $("which").value === "flipped") $("which").value = "";
    choose();
  };
  const chooseTask = () => {
    task = index[Number($("task").value)] || null;
    fill("run", task ? task.runs.map((each, i) => [i, each.label]) : []);
    fill("group", [["", "all"], ...(task ? task.groups.map((name) => [name, name]) : [])]);
    chooseRun();
  };
  fill("task", index.map((each, i) => [i, each.name]));
  $("task").parentElement.hidden = false;
  $("task").addEventListener("change", chooseTask);
  $("run").addEventListener("change", chooseRun);
  $("beside").addEventListener("change", chooseBeside);
  for (const id of ["which", "group", "order"]) $(id).addEventListener("change", choose);
  $("search").addEventListener("input", choose);
  $("list").addEventListener("scroll", () => requestAnimationFrame(draw));
  $("list").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) open(Number(button.dataset.place));
  });
  document.addEventListener("click", (event) => {  // from a task's row to its examples
    const link = event.target.closest("[data-examples]");
    if (!link) return;
    $("task").value = index.findIndex((each) => each.name === link.dataset.examples);
    chooseTask();
  });
  document.addEventListener("keydown", (event) => {
    if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
    const fold = $("detail").querySelector("details");
    if (event.key === "j") step(1);
    else if (event.key === "k") step(-1);
    else if (event.key === "s" && fold) fold.open = !fold.open;
    else if (event.key === "/") $("search").focus();
    else return;
    event.preventDefault();
  });
  chooseTask();
}
