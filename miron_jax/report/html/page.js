// The table of tasks, which sorts and filters.

{
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
  const textIn = (cell) => [...cell.childNodes].filter((node) => node.nodeName !== "svg").map((node) => node.textContent).join("").trim();
  const textsOf = (body) => cellsOf(body).filter((cell) => !cell.hidden).map((cell) => textIn(cell.querySelector("summary") || cell));
  const filter = () => {
    const wanted = $("filter").value.toLowerCase();
    let shown = 0, all = 0;
    for (const [suite, ...tasks] of groups) {
      for (const body of tasks) {  // what its row shows, and the names of its other metrics
        const texts = [...textsOf(body), ...[...body.querySelectorAll(".more table td:first-child")].map(textIn)];
        body.hidden = !texts.some((text) => text.toLowerCase().includes(wanted));
      }
      const seen = tasks.filter((body) => !body.hidden).length;
      suite.hidden = !seen;
      shown += seen;
      all += tasks.length;
    }
    $("shown").textContent = `${shown} of ${all}`;
  };
  $("filter").addEventListener("input", filter);
  filter();

  // Differences are those to the pinned run.
  const pin = $("pin");
  if (pin) pin.addEventListener("change", () => {
    for (const element of document.querySelectorAll("[data-pin]")) element.hidden = element.dataset.pin !== pin.value;
    filter();
  });

  // The links from a task's row to its examples, which examples.js follows, say which are listed.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-which]");
    if (link) $("which").value = link.dataset.which;
  });

  // What is shown of the table, as text for other programs; where the clipboard is closed it is there to be selected.
  const forms = {
    markdown: ([head, ...rows]) => [head, head.map(() => "---"), ...rows]
      .map((row) => `| ${row.map((text) => text.replace(/\|/g, "\\|")).join(" | ")} |`),
    csv: (rows) => rows.map((row) => row.map((text) => `"${text.replace(/"/g, '""')}"`).join(",")),
  };
  document.querySelectorAll("[data-copy]").forEach((button) => button.addEventListener("click", async () => {
    $("copied").replaceChildren();
    const bodies = groups.flatMap((group) => group.slice(1)).filter((body) => !body.hidden);
    const rows = bodies.map(textsOf);
    const text = forms[button.dataset.copy]([heads.filter((head) => !head.hidden).map(textIn), ...rows]).join("\n");
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
}
