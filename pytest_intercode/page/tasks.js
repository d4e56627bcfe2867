// The table of tasks: filtered, sorted, and with only the visible rows in the document.

const NARROW = matchMedia("(max-width: 760px)");
const rowHeight = () => (NARROW.matches ? 60 : 36); // pixels, as the style sheet has it
const AROUND = 12; // further rows on each side of the visible ones

const tasks = {
  index: null,
  columns: [],
  visible: [], // the tasks that are shown, in their order
  active: 0,
  cells: "\n", // the agent and the treatment whose columns are shown
  from: -1,
  to: -1,
};

const WORDS = new Intl.Collator("en", { numeric: true }); // five times as fast as localeCompare
const compare = (a, b) => (typeof a === "string" ? WORDS.compare(a, b) : a - b);

// The suites; none if each env has only one, as they then add nothing to the envs.
const ownSuites = (index) => (index.suites.length > index.envs.length ? index.suites : []);

// Whether a cell, which is an agent and a treatment, is among the chosen ones.
const isChosen = (cell) => (!chosen.agent || cell.agent === chosen.agent) && (!chosen.treatment || cell.treatment === chosen.treatment);

// For one run with several cells: the results of its tasks in the chosen cells.
function sumChosenCells(index) {
  for (const task of index.tasks) {
    const [tries] = task.runs;
    task.sums = [summed(tries.filter((attempt) => isChosen(index.cells[attempt.cell])))];
  }
}

function columnsOf(index) {
  const two = index.runs.length === 2;
  const plainCell = (name) => (task) => shown(String(task[name]));
  const of = (run, name, digits) => (task) => (task.sums[run] ? number(task.sums[run][name], digits) : "-");
  const by = (run, name) => (task) => (task.sums[run] ? task.sums[run][name] : -2);
  const outcome = (run) => (task) => (task.sums[run] ? badge(task.sums[run].outcome, task.sums[run].text) : "-");
  // Why the task is not solved; with two runs, in the newer one.
  const last = index.runs.length - 1;
  const why = {
    name: "reason", title: "reason",
    by: (task) => (task.sums[last] ? task.sums[last].reason : ""),
    cell: (task) => shown(task.sums[last] ? task.sums[last].reason.replace(/\s+/g, " ") : ""),
    several: index.reasons.length > 1 ? [1, 2] : [],
  };
  const rank = (sum) => (sum ? (sum.tries > 1 ? -sum.rate : index.outcomes.indexOf(sum.outcome)) : 99);
  const worst = (run) => (task) => rank(task.sums[run]);
  const columns = [
    { name: "task", title: "task", by: (task) => task.id, cell: taskCell, kind: "task" },
    ...(two && index.cells.length ? cellNameColumns(index) : []),
    { name: "env", title: "env", by: (task) => task.env, cell: plainCell("env"), several: index.envs },
    { name: "suite", title: "suite", by: (task) => task.suite, cell: plainCell("suite"), several: ownSuites(index) },
    { name: "hardness", title: "hardness", by: (task) => hardnessRank(task.hardness), cell: plainCell("hardness"), several: index.hardness },
    { name: "tags", title: "tags", by: (task) => task.tags.join(), cell: (task) => shown(task.tags.join(", ")), several: index.tags.length ? [1, 2] : [] },
  ];
  if (two) {
    const change = (task) => {
      const name = index.changes[task.change];
      return make("span", { class: `change ${name.replace(" ", "-")}`, title: task.words }, name);
    };
    columns.push({ name: "change", title: "change", by: (task) => task.change, cell: change });
    index.runs.forEach((name, run) => {
      columns.push({ name: `outcome${run}`, kind: "outcome", title: name, by: worst(run), cell: outcome(run) });
      columns.push({ name: `reward${run}`, kind: "reward", title: "reward", number: true, by: by(run, "reward"), cell: of(run, "reward", 2) });
    });
    columns.push(why);
    return columns.filter((column) => !column.several || column.several.length > 1);
  }
  if (index.cells.length) {
    index.cells.forEach((cell, number) => {
      if (!isChosen(cell)) return;
      columns.push({
        name: `cell${number}`, kind: "cell", title: cell.label,
        by: (task) => rank(task.cellSums[number]),
        cell: (task) => (task.cellSums[number] ? badge(task.cellSums[number].outcome, task.cellSums[number].text) : "-"),
      });
    });
    columns.push(why);
    return columns.filter((column) => !column.several || column.several.length > 1);
  }
  columns.push(
    { name: "outcome", title: "outcome", by: worst(0), cell: outcome(0) },
    { name: "reward", title: "reward", number: true, by: by(0, "reward"), cell: of(0, "reward", 2) },
    why,
    { name: "turns", title: "turns", number: true, by: by(0, "turns"), cell: (task) => number(task.sums[0].turns, task.sums[0].tries > 1 ? 1 : 0) },
    { name: "seconds", title: "seconds", number: true, by: by(0, "seconds"), cell: of(0, "seconds", 2) },
    { name: "tries", title: "tries", number: true, by: by(0, "tries"), cell: (task) => String(task.sums[0].tries), several: new Array(index.tasks.some((task) => task.runs[0].length > 1) ? 2 : 1) },
  );
  return columns.filter((column) => !column.several || column.several.length > 1);
}

// The agent and the treatment of a task in two runs, if there are several.
function cellNameColumns(index) {
  return ["agent", "treatment"].map((name) => ({
    name, title: name, by: (task) => task.cell[name], cell: (task) => shown(task.cell[name]), several: cellNames(index, name),
  }));
}

const cellNames = (index, name) => [...new Set(index.cells.map((cell) => cell[name]))];

const classOf = (column) => `${column.number ? "number " : ""}w-${column.kind || column.name}`;

const HARDNESS = ["easy", "medium", "hard", "extra"];
const hardnessRank = (name) => (HARDNESS.includes(name) ? `${HARDNESS.indexOf(name)}` : `9${name}`);

function taskCell(task) {
  const both = document.createDocumentFragment();
  both.append(make("bdi.id", null, shown(task.id)), make("bdi.query", null, shown(task.query.slice(0, 200).replace(/\s+/g, " "))));
  return both;
}

// -- filters

function makeFilters(index) {
  const names = { agent: cellNames(index, "agent"), treatment: cellNames(index, "treatment"), env: index.envs, suite: ownSuites(index), hardness: index.hardness, tag: index.tags };
  for (const name of CHOICES) {
    if (names[name].length < 2 && !(name === "tag" && names.tag.length)) continue;
    const select = make("select", { id: `choose-${name}`, "data-choice": name }, make("option", { value: "" }, "all"));
    const ordered = [...names[name]].sort((a, b) => (name === "hardness" ? compare(hardnessRank(a), hardnessRank(b)) : compare(a, b)));
    for (const value of ordered) select.append(make("option", { value }, plain(value)));
    select.addEventListener("change", () => choose({ [name]: select.value }));
    at("selects").append(make("label", null, name, select));
  }
  const chips = (kind, values) => {
    for (const value of values) {
      const count = make("span.count");
      const chip = make("button.chip", { type: "button", "data-kind": kind, "data-value": value, "aria-pressed": "false" },
        kind === "outcome" ? badge(value) : make("span", { class: `change ${value.replace(" ", "-")}` }, value), " ", count);
      chip.classList.add(value.split(/\s+/).join("-"));
      chip.addEventListener("click", () => {
        const now = chosen[kind];
        choose({ [kind]: now.includes(value) ? now.filter((each) => each !== value) : [...now, value] });
      });
      at("chips").append(chip);
    }
  };
  const changes = new Set(index.tasks.map((task) => index.changes[task.change]));
  if (index.runs.length === 2) chips("change", index.changes.filter((name) => changes.has(name)));
  const outcomes = new Set(index.tasks.flatMap((task) => task.sums.flatMap((sum) => (sum ? [...sum.outcomes] : []))));
  chips("outcome", index.outcomes.filter((name) => outcomes.has(name)));
  at("q").addEventListener("input", () => choose({ q: at("q").value }));
  at("clear").addEventListener("click", () => choose({ q: "", agent: "", treatment: "", env: "", suite: "", hardness: "", tag: "", outcome: [], change: [], sort: "" }));
  at("filters").addEventListener("submit", (event) => event.preventDefault());
  at("filters").hidden = false;
}

function choose(some) {
  Object.assign(chosen, some);
  writeAddress();
  filter();
}

function matches(task, but) {
  if (but !== "change" && chosen.change.length && !chosen.change.includes(tasks.index.changes[task.change])) return false;
  if (but !== "outcome" && chosen.outcome.length && !task.sums.some((sum) => sum && chosen.outcome.some((each) => sum.outcomes.has(each)))) return false;
  return true;
}

function filter() {
  const { index } = tasks;
  if (index.cells.length && index.runs.length === 1 && tasks.cells !== `${chosen.agent}\n${chosen.treatment}`) {
    tasks.cells = `${chosen.agent}\n${chosen.treatment}`;
    sumChosenCells(index);
    tasks.columns = columnsOf(index);
    makeHead();
  }
  searchTrajectories();
  at("scroller").scrollTop = 0; // before rows are made: afterwards it would force their layout
  tasks.active = -1; // so that the first row becomes the active one
  showMatching();
}

// Show the tasks that match the choices, without moving the table.
function showMatching() {
  const words = wordsOf(chosen.q);
  const candidates = tasks.index.tasks.filter(
    (task) =>
      (!task.cell || isChosen(task.cell)) &&
      (!chosen.env || task.env === chosen.env) &&
      (!chosen.suite || task.suite === chosen.suite) &&
      (!chosen.hardness || task.hardness === chosen.hardness) &&
      (!chosen.tag || task.tags.includes(chosen.tag)) &&
      (words.every((word) => task.searched.includes(word)) || search.matches.has(task)),
  );
  countChips(candidates);
  const active = tasks.visible[tasks.active];
  tasks.visible = candidates.filter((task) => matches(task));
  order();
  tasks.active = Math.max(0, tasks.visible.indexOf(active));
  showFilters();
  showRows(true);
}

// -- search in trajectories, which are unpacked for it, block by block

const search = { query: "", matches: new Set(), running: false };
const SHORTEST = 2; // characters of a query that trajectories are searched for
const PAUSE = 250; // milliseconds to wait for further typing, and between two updates of the table

const wordsOf = (query) => query.toLowerCase().split(/\s+/).filter(Boolean);

async function searchTrajectories() {
  const query = chosen.q;
  if (query === search.query) return;
  const words = wordsOf(query);
  Object.assign(search, { query, matches: new Set(), running: query.trim().length >= SHORTEST });
  if (!search.running) return;
  await new Promise((resolve) => setTimeout(resolve, PAUSE));
  const blocks = new Map();
  for (const task of tasks.index.tasks) {
    for (const attempt of task.runs.flat()) {
      if (!blocks.has(attempt.block)) blocks.set(attempt.block, []);
      blocks.get(attempt.block).push([task, attempt.at]);
    }
  }
  let latest = performance.now();
  for (const [block, places] of blocks) {
    if (search.query !== query) return; // another search has begun
    const episodes = await blockOf(block);
    if (search.query !== query) return;
    for (const [task, place] of places) {
      if (search.matches.has(task)) continue;
      const text = textOf(episodes[place]);
      if (words.every((word) => task.searched.includes(word) || text.includes(word))) search.matches.add(task);
    }
    if (performance.now() - latest > PAUSE) {
      showMatching();
      latest = performance.now();
    }
  }
  search.running = false;
  showMatching();
}

// The text of an episode that is searched: what the agent did, saw, thought, said, was told and printed, and why it failed.
function textOf(episode) {
  const texts = [episode.reason, episode.detail, episode.log, episode.test_output];
  const talk = [...(episode.said || [])];
  for (const turn of episode.turns || []) {
    texts.push(turn.action, turn.observation, turn.thought, turn.answer, turn.log);
    talk.push(...(turn.said || []));
  }
  for (const [message, reply] of talk) texts.push(message, reply);
  return texts.filter(Boolean).join("\n").toLowerCase();
}

function countChips(candidates) {
  for (const chip of at("chips").children) {
    const { kind, value } = chip.dataset;
    const count = candidates.filter((task) => matches(task, kind) && (kind === "change" ? tasks.index.changes[task.change] === value : task.sums.some((sum) => sum && sum.outcomes.has(value)))).length;
    chip.lastElementChild.textContent = count.toLocaleString("en");
    chip.setAttribute("aria-pressed", String(chosen[kind].includes(value)));
  }
}

function order() {
  const [, down, name] = /^(-?)(.*)$/.exec(chosen.sort || (tasks.index.runs.length === 2 ? "change" : ""));
  const column = tasks.columns.find((each) => each.name === name);
  if (!column) return;
  const sign = down ? -1 : 1;
  const keys = new Map(tasks.visible.map((task) => [task, column.by(task)]));
  tasks.visible.sort((a, b) => sign * compare(keys.get(a), keys.get(b)) || a.place - b.place);
}

function showFilters() {
  if (at("q").value !== chosen.q) at("q").value = chosen.q;
  for (const select of at("selects").querySelectorAll("select")) select.value = chosen[select.dataset.choice];
  const all = tasks.index.tasks.length;
  const count = tasks.visible.length;
  const noun = tasks.index.tasks.some((task) => task.cell) ? "row" : "task"; // with two runs of several cells, a row is a task in a cell
  const counted = count === all ? several(all, noun) : `${count.toLocaleString("en")} of ${several(all, noun)}`;
  at("count").textContent = search.running ? `${counted}, searching trajectories` : counted;
  for (const head of at("head").firstElementChild.children) {
    const name = head.dataset.column;
    const sorted = chosen.sort === name ? "ascending" : chosen.sort === `-${name}` ? "descending" : null;
    if (sorted) head.setAttribute("aria-sort", sorted);
    else head.removeAttribute("aria-sort");
  }
}

// -- rows

function makeHead() {
  const row = make("tr", { role: "row", "aria-rowindex": "1" });
  for (const column of tasks.columns) {
    const button = make("button", { type: "button", title: plain(column.title) }, shown(column.title));
    button.addEventListener("click", () => {
      const next = { [column.name]: `-${column.name}`, [`-${column.name}`]: "" }[chosen.sort];
      choose({ sort: next === undefined ? column.name : next });
    });
    row.append(make("th", { scope: "col", role: "columnheader", class: classOf(column), "data-column": column.name }, button));
  }
  at("head").replaceChildren(row);
  at("table").style.setProperty("--cells", tasks.columns.filter((column) => column.kind === "cell").length);
}

const shownColumns = () => [...at("head").firstElementChild.children].filter((each) => each.offsetWidth).length;

function space(rows) {
  const cell = make("td"); // spans one column: with hidden columns, the table would be wider
  cell.style.height = `${rows * rowHeight()}px`;
  return make("tr.space", { role: "presentation", "aria-hidden": "true" }, cell);
}

function showRows(force) {
  const scroller = at("scroller");
  const count = tasks.visible.length;
  const height = rowHeight();
  const first = Math.floor(scroller.scrollTop / height);
  const last = Math.min(count, first + Math.ceil(scroller.clientHeight / height) + 1);
  if (!force && tasks.from <= first && last <= tasks.to) return; // the visible rows exist already
  const from = Math.max(0, first - AROUND);
  const to = Math.min(count, last + AROUND);
  tasks.from = from;
  tasks.to = to;
  const rows = document.createDocumentFragment();
  if (from > 0) rows.append(space(from));
  for (let n = from; n < to; n++) rows.append(rowOf(tasks.visible[n], n));
  if (to < count) rows.append(space(count - to));
  if (!count) rows.append(make("tr", null, make("td.none", { colspan: String(shownColumns()) }, "No task is like this. Clear the filters to see all.")));
  at("body").replaceChildren(rows);
  scroller.setAttribute("aria-rowcount", String(count + 1));
  markActive();
}

function rowOf(task, n) {
  const row = make("tr", { id: `row-${n}`, role: "row", "aria-rowindex": String(n + 2), "data-n": String(n) });
  for (const column of tasks.columns) {
    const cell = make("td", { role: "gridcell", class: classOf(column) }, column.cell(task));
    if (column.name === "task") cell.title = plain(`${task.id}\n${task.query}`);
    if (column.name === "reason") cell.title = plain(column.by(task));
    row.append(cell);
  }
  return row;
}

function markActive() {
  for (const row of at("body").children) {
    const active = row.dataset.n === String(tasks.active);
    row.classList.toggle("active", active);
    if (row.dataset.n) row.setAttribute("aria-selected", String(active));
  }
  const shownRow = at(`row-${tasks.active}`);
  if (shownRow) at("scroller").setAttribute("aria-activedescendant", shownRow.id);
  else at("scroller").removeAttribute("aria-activedescendant");
}

function move(to) {
  const scroller = at("scroller");
  tasks.active = Math.max(0, Math.min(tasks.visible.length - 1, to));
  const height = rowHeight();
  const top = tasks.active * height;
  const room = scroller.clientHeight - 2 * height; // without the head
  if (top < scroller.scrollTop) scroller.scrollTop = top;
  else if (top > scroller.scrollTop + room) scroller.scrollTop = top - room;
  showRows();
  markActive();
}

function keyInTable(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target !== at("scroller")) return;
  const page = Math.max(1, Math.floor(at("scroller").clientHeight / rowHeight()) - 2);
  const moves = {
    ArrowDown: tasks.active + 1, j: tasks.active + 1, ArrowUp: tasks.active - 1, k: tasks.active - 1,
    PageDown: tasks.active + page, PageUp: tasks.active - page, Home: 0, End: tasks.visible.length - 1,
  };
  if (event.key in moves) move(moves[event.key]);
  else if (event.key === "Enter" && tasks.visible.length) openTask(tasks.visible[tasks.active]);
  else return;
  event.preventDefault();
}

function startTable(index) {
  tasks.index = index;
  tasks.columns = columnsOf(index);
  makeFilters(index);
  makeHead();
  const scroller = at("scroller");
  scroller.addEventListener("scroll", () => showRows(), { passive: true });
  scroller.addEventListener("keydown", keyInTable);
  at("body").addEventListener("click", (event) => {
    const row = event.target.closest("tr[data-n]");
    if (!row || String(getSelection())) return;
    tasks.active = Number(row.dataset.n);
    markActive();
    openTask(tasks.visible[tasks.active]);
  });
  new ResizeObserver(() => showRows()).observe(scroller);
  NARROW.addEventListener("change", () => showRows(true));
}
