// Curves over the steps of training: a panel a task and metric, drawn anew on the axis that is chosen.  A point leads to
// its task, and to its examples where the page has them.
if ($("panels")) {
  const WIDTH = 320, HEIGHT = 190, LEFT = 46, RIGHT = 308, TOP = 8, BOTTOM = 158;  // of a panel and of its axes
  const COLORS = ["#2f81f7", "#d4761a", "#3a9d4c", "#b35bd8", "#d9435e", "#7d8590"];  // drawing.py
  const NEAR = 24;  // how far from a point a click may lie
  const NAMESPACE = "http://www.w3.org/2000/svg";
  const { runs, panels } = JSON.parse($("curves-data").textContent);
  const names = [...new Set(panels.flatMap((panel) => panel.lines.map((line) => line.name)))];  // of categories
  const colorOf = (line) => COLORS[(runs.length > 1 ? line.run : names.indexOf(line.name)) % COLORS.length];
  const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 2 }).format;
  const addressOf = (panel) => (panel.task ? `#${encodeURIComponent(panel.task).replaceAll("%2F", "/")}` : "#curves");
  const svg = (name, attributes, ...children) => {
    const element = document.createElementNS(NAMESPACE, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };

  // Axes: a function from numbers to places, and ticks.

  const even = (low, high) => {
    const rough = (high - low) / 5, power = 10 ** Math.floor(Math.log10(rough));
    const size = power * [1, 2, 5, 10].find((each) => each * power >= rough);
    return Array.from({ length: Math.floor(high / size) - Math.ceil(low / size) + 1 }, (_, i) => (Math.ceil(low / size) + i) * size);
  };
  const linear = (values, start, end) => {
    let low = Math.min(...values), high = Math.max(...values);
    const around = high > low ? (high - low) / 20 : Math.abs(high) / 10 || 1;
    low -= around, high += around;
    return { place: (value) => start + (end - start) * (value - low) / (high - low), ticks: even(low, high) };
  };
  const logarithmic = (values, start, end) => {  // 0 stands a little below the least value
    const known = values.filter((value) => value > 0);
    if (!known.length) return linear(values, start, end);
    const low = Math.log10(Math.min(...known)), high = Math.log10(Math.max(...known)), zero = low - ((high - low) / 6 || 1);
    const log = (value) => (value > 0 ? Math.log10(value) : zero);
    const axis = linear(values.map(log), start, end);
    const powers = Array.from({ length: Math.floor(high) - Math.floor(low) + 1 }, (_, i) => 10 ** (Math.floor(low) + i));
    const round = [1, 5, 2].flatMap((digit) => powers.map((power) => digit * power)).filter((each) => log(each) > low - 1e-6 && log(each) < high + 1e-6);
    const ticks = (round.length > 1 ? round : even(10 ** low, 10 ** high)).reduce((kept, tick) => {
      const isFree = kept.every((other) => Math.abs(axis.place(log(tick)) - axis.place(log(other))) > 32);
      return isFree ? [...kept, tick] : kept;
    }, []);
    return { place: (value) => axis.place(log(value)), ticks: known.length < values.length ? [0, ...ticks] : ticks };
  };

  // One panel

  const inputs = runs.map(() => null);  // in which the reader says how many tokens a step of each run has
  const isTokens = () => $("over").value === "training tokens";
  const across = (line, step) => (isTokens() ? step * inputs[line.run].valueAsNumber : step);
  const isKnown = (line) => !isTokens() || inputs[line.run].valueAsNumber > 0;
  const ofRun = (line) => [runs.length > 1 ? runs[line.run].label : "", line.name].filter(Boolean).join(", ");
  const valueOf = ([, value, low, high]) => value.toFixed(4) + (low === undefined ? "" : ` (${low.toFixed(4)} to ${high.toFixed(4)})`);
  const placeOf = (line, [step]) => `step ${step}${isTokens() ? `, ${compact(across(line, step))} tokens` : ""}`;
  const piecesOf = (points) => {  // a step without a value parts two lines
    const pieces = [[]];
    for (const point of points) point.length > 1 ? pieces.at(-1).push(point) : pieces.push([]);
    return pieces.filter((piece) => piece.length);
  };
  const panelOf = (panel) => {
    const { title } = panel, lines = panel.lines.filter(isKnown);
    const drawn = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group", "aria-label": `${title}, over ${$("over").value}` });
    const baselines = [["chance", panel.chance, "6 4"], ["people", panel.people, "2 3"]].filter(([, value]) => value !== null);
    const points = lines.flatMap((line) => piecesOf(line.points).flat().map((point) => ({ panel, line, point })));
    const figure = make("figure"), caption = make("figcaption"), name = make(panel.task ? "a" : "span", title);
    if (panel.task) name.href = addressOf(panel);
    caption.append(name);
    figure.append(caption, drawn);
    if (!points.length) return figure;
    const scale = $("axis").value === "log" ? logarithmic : linear;
    const x = scale(points.map(({ line, point }) => across(line, point[0])), LEFT, RIGHT);
    const y = linear([...points.flatMap(({ point }) => point.slice(1)), ...baselines.map(([, value]) => value)], BOTTOM, TOP);
    for (const tick of y.ticks) {
      drawn.append(svg("path", { d: `M${LEFT} ${y.place(tick)}H${RIGHT}`, class: "grid" }));
      drawn.append(svg("text", { x: LEFT - 5, y: y.place(tick) + 4, "text-anchor": "end" }, String(Number(tick.toPrecision(6)))));
    }
    for (const tick of x.ticks) {
      drawn.append(svg("path", { d: `M${x.place(tick)} ${BOTTOM}v4`, class: "axis" }));
      drawn.append(svg("text", { x: x.place(tick), y: BOTTOM + 16, "text-anchor": "middle" }, compact(tick)));
    }
    drawn.append(svg("path", { d: `M${LEFT} ${BOTTOM}H${RIGHT}`, class: "axis" }));
    drawn.append(svg("text", { x: RIGHT, y: HEIGHT - 3, "text-anchor": "end" }, $("over").value));
    for (const [name, value, dashes] of baselines) {
      drawn.append(svg("path", { d: `M${LEFT} ${y.place(value)}H${RIGHT}`, class: "axis", "stroke-dasharray": dashes }));
      drawn.append(svg("text", { x: LEFT + 3, y: y.place(value) - 3 }, name));
    }
    const at = (line, step, value) => `${x.place(across(line, step)).toFixed(1)} ${y.place(value).toFixed(1)}`;
    for (const line of lines) {
      const color = colorOf(line);
      for (const piece of piecesOf(line.points)) {
        const band = piece.filter((point) => point.length > 2);
        const ends = [...band.map(([step, , low]) => at(line, step, low)), ...band.map(([step, , , high]) => at(line, step, high)).reverse()];
        if (ends.length) drawn.append(svg("path", { d: `M${ends.join("L")}Z`, fill: color, "fill-opacity": 0.15 }));
        drawn.append(svg("path", { d: `M${piece.map(([step, value]) => at(line, step, value)).join("L")}`, fill: "none", stroke: color, "stroke-width": 1.5 }));
      }
    }
    for (const each of points) {
      const { line, point } = each, color = colorOf(line);
      each.x = x.place(across(line, point[0]));
      each.y = y.place(point[1]);
      const words = [ofRun(line), `${placeOf(line, point)}: ${valueOf(point)}`].filter(Boolean).join(", ");
      each.link = svg("a", { href: addressOf(panel), "aria-label": words, tabindex: each === points[0] ? 0 : -1 },
        svg("circle", { cx: each.x.toFixed(1), cy: each.y.toFixed(1), r: 3, fill: color }));
      drawn.append(each.link);
    }
    listen(drawn, points);
    return figure;
  };
  const listen = (drawn, points) => {
    const pointOf = (event) => points.find((each) => each.link === event.target.closest("a"));
    const nearest = (event) => {
      const box = drawn.getBoundingClientRect(), zoom = WIDTH / box.width;
      const away = (each) => Math.hypot(each.x - (event.clientX - box.left) * zoom, each.y - (event.clientY - box.top) * zoom);
      const closest = points.reduce((best, each) => (away(each) < away(best) ? each : best));
      return away(closest) < NEAR ? closest : undefined;
    };
    drawn.addEventListener("pointermove", (event) => hint(nearest(event), points));
    drawn.addEventListener("pointerleave", () => hint());
    drawn.addEventListener("focusin", (event) => hint(pointOf(event), points));
    drawn.addEventListener("focusout", () => hint());
    drawn.addEventListener("click", (event) => {
      const chosen = pointOf(event) || nearest(event);
      event.preventDefault();
      if (chosen) openPoint(chosen);
    });
    drawn.addEventListener("keydown", (event) => {
      const now = pointOf(event), step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], turn = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!now || !(step || turn)) return;
      event.preventDefault();
      const others = [...new Set(points.map((each) => each.line))], line = others[others.indexOf(now.line) + (turn || 0)];
      const ofLine = points.filter((each) => each.line === line);
      const next = step ? ofLine[ofLine.indexOf(now) + step] : ofLine.find((each) => each.x >= now.x) || ofLine.at(-1);
      if (!next) return;
      now.link.setAttribute("tabindex", -1);
      next.link.setAttribute("tabindex", 0);
      next.link.focus();
    });
  };

  // What a point says: with the other lines' points above the same place.
  const hint = (chosen, points) => {
    const box = $("hint");
    box.hidden = !chosen;
    if (!chosen) return;
    const above = points.filter((each) => each === chosen || each.x === chosen.x).slice(0, 12);
    box.replaceChildren(make("div", placeOf(chosen.line, chosen.point), "note"), ...above.map((each) => {
      const row = make("div", "", each === chosen ? "chosen" : "");
      row.append(swatch(colorOf(each.line)), ` ${[ofRun(each.line), valueOf(each.point)].filter(Boolean).join(": ")}`);
      return row;
    }));
    const place = chosen.link.getBoundingClientRect(), width = document.documentElement.clientWidth;
    box.style.left = `${Math.max(4, Math.min(place.left + 12, width - box.offsetWidth - 4)) + scrollX}px`;
    box.style.top = `${place.bottom + 8 + scrollY}px`;
  };
  const swatch = (color) => svg("svg", { viewBox: "0 0 10 10", class: "swatch", "aria-hidden": "true" }, svg("rect", { width: 10, height: 10, fill: color }));

  // The checkpoint's task: its row, where a sentence says what the point is, and its examples.
  const openPoint = ({ panel, line, point, link }) => {
    const { label, folders, here } = runs[line.run];
    const body = [...$("all").tBodies].find((each) => each.rows[0].cells[0].dataset.value === panel.task);
    const words = make("p", `${label}, ${placeOf(line, point)}: ${panel.title}${line.name && `, ${line.name},`} ${valueOf(point)}. `);
    words.id = "point";
    if (here[point[0]] !== undefined && body) {
      const examples = make("a", "Its examples");
      examples.href = "#examples";
      examples.addEventListener("click", () => {
        choose("task", panel.task);
        choose("run", here[point[0]]);
      });
      words.append(examples);
    } else if (here[point[0]] === undefined) {
      words.append("The examples of this step are not in this page: ", make("code", `miron-jax report ${folders[point[0]]} --html=FILE`), " shows them.");
    }
    if ($("point")) $("point").remove();
    if (!body) {  // of a composite
      link.closest("figure").append(words);
      return;
    }
    if (body.hidden) {
      $("filter").value = "";
      $("filter").dispatchEvent(new Event("input"));
    }
    body.querySelector("details").open = true;
    body.querySelector(".more > td").prepend(words);
    location.hash = addressOf(panel);
    body.scrollIntoView();
    body.querySelector("summary").focus({ preventScroll: true });
  };
  const choose = (id, text) => {
    const option = [...$(id).options].find((each) => each.textContent === text);
    if (!option) return;
    $(id).value = option.value;
    $(id).dispatchEvent(new Event("change"));
  };

  // What is chosen

  const draw = () => {
    for (const input of inputs) input.parentElement.hidden = !isTokens();
    const unknown = runs.filter((_, i) => isTokens() && !(inputs[i].valueAsNumber > 0));
    $("unknown").textContent = unknown.length ? `Results do not say how many tokens a step has: name them for ${unknown.map((run) => run.label).join(" and ")}.` : "";
    $("panels").replaceChildren(...panels.map(panelOf));
  };
  runs.forEach((run, i) => {
    const label = make("label", `Tokens a step${runs.length > 1 ? ` of ${run.label}` : ""} `);
    inputs[i] = make("input");
    inputs[i].type = "number";
    inputs[i].min = 1;
    inputs[i].addEventListener("input", draw);
    label.append(inputs[i]);
    $("unknown").before(label, " ");
  });
  const legend = runs.length > 1 ? runs.map((run, i) => [run.label, colorOf({ run: i })]) : names.filter(Boolean).map((name) => [name, colorOf({ name })]);
  for (const [name, color] of legend) {
    const entry = make("span");
    entry.append(swatch(color), ` ${name}`);
    $("legend").append(entry);
  }
  for (const id of ["over", "axis"]) $(id).addEventListener("change", draw);
  draw();
}
