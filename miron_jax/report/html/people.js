// The page of people's work: rows, an entry of the annotator for each, which is kept at every change.

{
  const sheet = JSON.parse($("sheet").textContent), { texts } = sheet;
  const rows = sheet.rows.map(([cells, label, shown, options, right, text]) => ({ cells, label, shown, options, right, text: texts[text] }));
  const judges = sheet.kind !== "answers", corrects = sheet.kind === "corrections";
  const reasons = new Map(sheet.reasons);
  const valuesOf = (row) => judges ? [sheet.usable, sheet.unusable] : row.options.map((text, k) => sheet.places ? String(k) : texts[text]);
  // The key of each option: the option itself where all are letters or digits, so that 2 never chooses what reads 3.
  const keysOf = (row) => {
    const words = row.options.map((text) => texts[text].toLowerCase());
    if (words.every((word) => /^[0-9a-z]$/.test(word) && !"jkuxslw".includes(word)) && new Set(words).size === words.length) return words;
    return [...words.some((word) => /^[0-9]$/.test(word)) ? "abcdefghi" : "1234567890"];
  };
  const unkept = new Map();  // what this browser refused to keep, by its name
  const unsaved = new Set();  // annotators of whom a saved state lacks such an entry
  const say = (text) => {
    const lost = unsaved.size ? "This browser does not keep your answers: save a state (s) before you close the page, and load it when you go on. " : "";
    $("said").textContent = lost + text;
  };

  let who = "", current = 0, openedAt = "";
  let erased;  // the entry that Delete, pressed again, erases with what is written
  let work = [];  // of the annotator, by row: { answer, reasons, text, note, started, submitted }, or undefined

  // What this browser keeps, an item a row, so that a change writes one row alone.
  const nameOf = (...parts) => `miron-people ${sheet.id} ${JSON.stringify(parts)}`;
  const stored = (name) => {
    if (unkept.has(name)) return unkept.get(name);
    try { return localStorage.getItem(name); } catch { return null; }
  };
  const keep = (name, value) => {
    try {
      if (value === undefined) localStorage.removeItem(name);
      else localStorage.setItem(name, value);
      unkept.delete(name);
    } catch {
      unkept.set(name, value);
      if (who) unsaved.add(who);
    }
  };
  addEventListener("beforeunload", (event) => {
    if (unsaved.size && [...unkept.keys()].some((name) => name !== nameOf())) event.preventDefault();
  });
  const isEntry = (entry, row) => entry && typeof entry === "object"
    && ["answer", "text", "note", "started", "submitted"].every((name) => ["string", "undefined"].includes(typeof entry[name]))
    && (entry.reasons === undefined || Array.isArray(entry.reasons) && entry.reasons.every((reason) => reasons.has(reason)))
    && (!entry.answer || !valuesOf(row).length || valuesOf(row).includes(entry.answer));
  const readEntry = (i) => {
    try {
      const entry = JSON.parse(stored(nameOf(who, i)));
      return isEntry(entry, rows[i]) ? entry : undefined;
    } catch {
      return undefined;
    }
  };

  // The list of rows, of which Tab reaches the current one.
  const buttons = rows.map((row, i) => {
    const button = make("button");
    button.type = "button";
    button.tabIndex = -1;
    button.append(make("span", String(i + 1)), make("span"), make("span", visible(texts[row.label])));
    button.addEventListener("click", () => { button.blur(); open(i); });
    return button;
  });
  $("rows").append(...buttons);
  const isDone = (entry) => Boolean(entry && entry.answer && entry.answer.trim());
  const mark = (i) => {
    const entry = work[i], box = buttons[i].children[1];
    box.textContent = !entry ? "" : !isDone(entry) ? "\u2026" : entry.answer === sheet.unusable && judges ? "\u2717" : "\u2713";
  };
  const count = () => {
    const done = work.filter(isDone).length, begun = work.filter(Boolean).length - done;
    $("count").textContent = `${done} of ${rows.length} done${begun ? `, ${begun} begun` : ""}`;
  };

  const change = (part, i = current) => {
    const entry = { started: openedAt, ...work[i], ...part, submitted: new Date().toISOString() };
    work[i] = part && entry;
    keep(nameOf(who, i), part && JSON.stringify(entry));
    mark(i);
    count();
    say("");
  };
  const go = (i) => {
    if (i < rows.length) open(Math.max(0, i));
    else say(work.every(isDone) ? "All rows are done: x exports them." : "This is the last row: u opens the next one that is open.");
  };
  const goOpen = () => {
    const order = [...rows.keys()].map((i) => (current + 1 + i) % rows.length);
    const next = order.find((i) => !isDone(work[i]));
    if (next === undefined) go(rows.length);
    else open(next);
  };
  const choose = (answer, part) => { change({ answer, ...part }); go(current + 1); };
  const toggle = (reason) => {
    const before = work[current]?.reasons || [];
    const after = before.includes(reason) ? before.filter((other) => other !== reason) : [...before, reason];
    change({ reasons: [...reasons.keys()].filter((name) => after.includes(name)), answer: after.length ? sheet.unusable : "" });
    press();
  };

  // The opened row.
  const pick = (key, text, pressed, act) => {
    const button = make("button");
    button.type = "button";
    button.append(make("kbd", key), make("span", visible(text)));
    button.isPressed = pressed;
    button.addEventListener("click", act);
    return button;
  };
  const press = () => document.querySelectorAll(".pick button").forEach((button) => button.setAttribute("aria-pressed", String(button.isPressed())));
  const field = (id, title, value, act) => {
    const label = make("label", title), box = make("textarea");
    box.id = id;
    box.rows = 2;
    box.value = value;
    box.setAttribute("dir", "auto");
    box.addEventListener("input", () => act(box.value));
    label.append(box);
    return label;
  };
  const marked = (text) => {
    const box = make("pre"), parts = sheet.mark ? text.split(sheet.mark) : [text];
    parts.forEach((part, i) => box.append(...i ? [make("mark", sheet.mark)] : [], visible(part)));
    return box;
  };
  const differences = () => {
    const [before, after] = [rows[current].text, work[current]?.text ?? rows[current].text].map((text) => text.split(/(\s+)/));
    if (before.length * after.length > 2e7) return make("p", "These texts are too long to be compared here.", "note");
    return differing(after, before);
  };
  const open = (i) => {
    current = i;
    erased = undefined;
    openedAt = new Date().toISOString();
    const isListed = $("rows").contains(document.activeElement);  // then its arrow keys go on
    const row = rows[i], detail = $("detail"), title = make("h2", `Row ${i + 1} of ${rows.length}`);
    title.tabIndex = -1;
    detail.replaceChildren(title);
    for (const [heading, text] of row.shown) {
      if (texts[heading]) detail.append(make("h3", visible(texts[heading])));
      detail.append(marked(texts[text]));
    }
    const box = make("div", undefined, judges ? "pick reasons" : "pick");
    const answer = (value) => () => work[current]?.answer === value;
    if (judges) {
      if (row.options.length) {
        const list = make("ul", undefined, "options");
        for (const option of row.options) {
          const isRight = option === row.right;
          list.append(make("li", `${visible(texts[option])}${isRight ? " (right)" : ""}`, isRight ? "right" : ""));
        }
        detail.append(list);
      }
      if (corrects) {
        detail.append(field("text", "The story, to be mended", work[i]?.text ?? row.text, (text) => {
          change({ text });
          clearTimeout(field.later);
          field.later = setTimeout(() => $("changes").replaceChildren(differences()), 300);
        }));
      }
      const act = () => choose(sheet.usable, { reasons: [], ...corrects && { text: work[current]?.text ?? rows[current].text } });
      box.append(pick("g", "Usable", answer(sheet.usable), act));
      [...reasons].forEach(([name, words], k) => box.append(
        pick(String(k + 1), words, () => Boolean(work[current]?.reasons?.includes(name)), () => toggle(name))));
      detail.append(box, field("note", "Note (n)", work[i]?.note ?? "", (note) => change({ note })));
      if (corrects) {
        const changes = make("div");
        changes.id = "changes";
        changes.append(differences());
        detail.append(make("h3", "Before and after"), changes);
      }
    } else if (row.options.length) {
      valuesOf(row).forEach((value, k) => box.append(
        pick(keysOf(row)[k] ?? "", texts[row.options[k]], answer(value), () => choose(value))));
      detail.append(box);
    } else {
      detail.append(field("text", "Answer", work[i]?.answer ?? "", (text) => change({ answer: text })));
    }
    press();
    buttons.forEach((button, k) => {
      button.tabIndex = k === i ? 0 : -1;
      if (k === i) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
    });
    buttons[i].scrollIntoView({ block: "nearest" });
    detail.inert = !who;
    if (!who) $("who").focus();
    else if (isListed) buttons[i].focus();
    else if (!judges && !row.options.length) $("text").focus();
    else title.focus();
    if (detail.getBoundingClientRect().top < 0) scrollTo(0, 0);
  };

  const enter = (name) => {
    who = name.trim();
    $("who").value = who;
    keep(nameOf(), who);
    work = rows.map((_, i) => who ? readEntry(i) : undefined);
    rows.forEach((_, i) => mark(i));
    count();
    say(who ? "" : "Say who answers: your name, or a number that you were given.");
    const next = work.findIndex((entry) => !isDone(entry));
    open(next < 0 ? 0 : next);
  };
  $("who").addEventListener("change", () => enter($("who").value));
  addEventListener("storage", (event) => {  // of another tab with this page
    const i = rows.findIndex((_, k) => event.key === nameOf(who, k));
    if (i < 0) return;
    work[i] = readEntry(i);
    mark(i);
    count();
    if (i === current) open(i);
  });

  // Files: a state, which this page reads again, and the table of what is done.
  const download = (end, type, text) => {
    const link = make("a");
    link.download = `${sheet.title}-${who}`.replace(/[^\p{L}\p{N}._-]+/gu, "-") + end;
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  };
  const save = () => {
    const entries = Object.fromEntries(work.map((entry, i) => [i, entry]).filter(([, entry]) => entry));
    download(".state.json", "application/json", JSON.stringify({ page: sheet.id, title: sheet.title, annotator: who, entries }));
    unsaved.delete(who);
    say("");
  };
  const load = (text) => {
    let state;
    try { state = JSON.parse(text); } catch { state = null; }
    if (!state || typeof state.annotator !== "string" || !state.annotator.trim() || !state.entries) {
      say("This file is no saved state: nothing was loaded.");
      return;
    }
    if (state.page !== sheet.id) {
      say("This state is of another page, which asks other rows: nothing was loaded.");
      return;
    }
    for (const [i, entry] of Object.entries(state.entries)) {
      const row = /^\d+$/.test(i) && rows[i];
      if (!row || !isEntry(entry, row)) {
        say(`${row ? `Row ${Number(i) + 1}` : i.slice(0, 40)} of this state is no answer to a row: nothing was loaded.`);
        return;
      }
    }
    enter(state.annotator);
    const newer = Object.entries(state.entries).filter(([i, entry]) => !((work[i]?.submitted ?? "") >= (entry.submitted ?? "")));
    for (const [i, entry] of newer) keep(nameOf(who, Number(i)), JSON.stringify(entry));
    enter(who);
    say(`Loaded ${newer.length} rows of ${who}${newer.length < Object.keys(state.entries).length ? "; the others are newer here" : ""}.`);
  };
  const crc32 = (text) => {
    let value = ~0;
    for (const byte of new TextEncoder().encode(text)) {
      value ^= byte;
      for (let bit = 0; bit < 8; bit++) value = value >>> 1 ^ (value & 1 ? 0xedb88320 : 0);
    }
    return ~value;
  };
  const table = () => {
    const done = [...rows.keys()].filter((i) => isDone(work[i]));
    const lines = done.map((i) => {
      const entry = work[i], row = rows[i];
      const line = new Map(sheet.inputs.map((name, k) => [name, texts[row.cells[k]]]));
      line.set(sheet.output, entry.answer);
      if (sheet.golden) line.set(sheet.golden, texts[row.right]);
      const more = [(entry.reasons || []).join(";"), entry.answer === sheet.usable ? entry.text ?? "" : "", entry.note ?? ""];
      sheet.more.forEach((name, k) => line.set(name, more[k]));
      line.set("ASSIGNMENT:worker_id", who).set("ASSIGNMENT:started", entry.started).set("ASSIGNMENT:submitted", entry.submitted);
      line.set("PAGE:id", sheet.id);
      let check = 0;
      for (const [name, text] of line) check += crc32(`${name}\0${text}`);
      return line.set("PAGE:check", (check >>> 0).toString(16).padStart(8, "0"));
    });
    const cell = (text) => /["\t\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
    return [[...lines[0].keys()], ...lines.map((line) => [...line.values()])].map((line) => `${line.map(cell).join("\t")}\n`).join("");
  };
  const takeBack = () => {
    const entry = work[current], row = rows[current], isText = !judges && !row.options.length;
    if (!entry || entry === erased || (entry.text ?? row.text) === row.text && !entry.note && !(isText && entry.answer)) {
      change(undefined);
      open(current);
      return;
    }
    const hasVerdict = judges && entry.answer;
    if (hasVerdict) {
      change({ answer: "", reasons: [] });
      open(current);
    }
    erased = work[current];
    say(`${hasVerdict ? "The verdict is taken back. " : ""}Delete once more erases what is written.`);
  };
  const exportTable = () => {
    if (work.some(isDone)) download(".tsv", "text/tab-separated-values", table());
    else say("No row is done: there is nothing to export.");
  };
  const actions = { open: goOpen, export: exportTable, save, load: () => $("file").click() };
  for (const [id, act] of Object.entries(actions)) $(id).addEventListener("click", act);
  $("file").addEventListener("change", async () => {
    const [file] = $("file").files;
    $("file").value = "";
    if (file) load(await file.text());
  });

  // Keys by their letter, or by their place where the keyboard writes another alphabet.
  const keyOf = (event) => /^[a-z0-9]$/i.test(event.key) || event.key.length > 1 ? event.key.toLowerCase() : event.code.replace(/^(Key|Digit|Numpad)/, "").toLowerCase();
  const keys = {
    j: () => go(current + 1), k: () => go(current - 1),
    u: goOpen, x: exportTable, s: save, l: actions.load, w: () => $("who").focus(),
    delete: takeBack,
    g: () => document.querySelector(".pick button:first-child").click(), n: () => $("note").focus(), e: () => $("text").focus(),
  };
  const openKeys = judges ? ["g", "n", ...corrects ? ["e"] : []] : rows.some((row) => !row.options.length) ? ["e"] : [];
  document.addEventListener("keydown", (event) => {
    const isField = event.target.matches("input, textarea"), key = keyOf(event);
    if (event.isComposing || event.altKey || event.metaKey || event.ctrlKey && key !== "enter") return;
    if (isField) {
      if (key === "escape") { event.target.blur(); $("detail").querySelector("h2").focus(); }
      else if (key === "enter" && event.target.id === "who") enter($("who").value);
      else if (key === "enter" && event.target.id === "text" && (corrects ? event.ctrlKey : !event.shiftKey)) {
        if (corrects) keys.g();
        else go(current + 1);
      } else return;
      event.preventDefault();
      return;
    }
    const step = { arrowdown: 1, arrowup: -1 }[key];
    const place = judges ? /^[1-9]$/.test(key) ? Number(key) : -1 : keysOf(rows[current]).indexOf(key);
    const picked = document.querySelectorAll(".pick button")[place];
    if (picked && who) picked.click();
    else if (step && event.target.closest("#rows")) go(current + step);
    else if (key in keys && (!["g", "n", "e"].includes(key) || openKeys.includes(key) && who)) keys[key]();
    else return;
    event.preventDefault();
  });

  enter(stored(nameOf()) ?? "");
}
