// A trajectory turn by turn; with two runs, the two next to each other.

const view = { task: null, showing: 0, closing: false };

function openTask(task, number, cell = chosen.cell) {
  if (!task) return;
  chosen.open = task.key;
  chosen.try = number ? String(number) : "";
  chosen.cell = cell;
  writeAddress(true);
  showTask();
}

function closeTask() {
  chosen.open = chosen.try = chosen.cell = "";
  writeAddress(true);
  showTask();
}

// Show the task in the address.
async function showTask() {
  const dialog = at("trajectory");
  // A link in a comment names task and cell, whether the page shows one run or two.
  const keys = [chosen.open, `${chosen.open}/${chosen.cell}`];
  const task = chosen.open ? tasks.index.tasks.find((each) => keys.includes(each.key)) : null;
  const showing = ++view.showing;
  view.task = task;
  if (!task) {
    if (chosen.open) showTrouble(`This page has no task ${plain(chosen.open)}.`);
    if (dialog.open) {
      view.closing = true; // until the event that close() causes, which comes later
      dialog.close();
      at("scroller").focus({ preventScroll: true });
    }
    return;
  }
  const cell = cellShown(task);
  const numbers = numbersOf(task, cell);
  const repeat = numbers.includes(Number(chosen.try)) ? Number(chosen.try) : numbers[0];
  const tries = task.runs.map((those) => those.find((each) => each.repeat === repeat && each.cell === cell) || null);
  const episodes = await Promise.all(tries.map((each) => each && trajectory(each.block, each.at)));
  if (showing !== view.showing) return;
  for (const each of episodes) if (each) each.turns ||= [];
  dialog.className = tries.length === 2 ? "both" : "";
  dialog.replaceChildren(headOf(task, cell, repeat), bodyOf(task, episodes));
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
  at("trajectory-title").focus({ preventScroll: true });
}

// For one run with several cells, the number of the cell whose tries are shown: the chosen one, or the first.
function cellShown(task) {
  if (!task.cellSums || !task.cellSums.length) return undefined;
  const { cells } = tasks.index;
  const played = cells.map((_, number) => number).filter((number) => task.cellSums[number]);
  return played.find((number) => cells[number].label === chosen.cell) ?? played.find((number) => isChosen(cells[number])) ?? played[0];
}

const numbersOf = (task, cell) =>
  [...new Set(task.runs.flatMap((tries) => tries.filter((attempt) => attempt.cell === cell).map((attempt) => attempt.repeat)))].sort((a, b) => a - b);

// The tries of a task in a cell, to choose from.
function triesOf(task, cell, shownCell, repeat) {
  const label = cell === undefined ? "" : tasks.index.cells[cell].label;
  const group = make("div.tries", { role: "group", "aria-label": label ? `Tries of ${plain(label)}` : "Tries" }, label ? make("span.cell-label", null, shown(label)) : null);
  for (const number of numbersOf(task, cell)) {
    const outcomes = task.runs.map((tries) => (tries.find((attempt) => attempt.repeat === number && attempt.cell === cell) || {}).outcome).filter(Boolean);
    const pressed = number === repeat && cell === shownCell;
    group.append(make("button.chip", { type: "button", "aria-pressed": String(pressed), onclick: () => openTask(task, number, label) }, `${number} `, ...outcomes.map((name) => badge(name))));
  }
  return group;
}

function headOf(task, cell, repeat) {
  const place = tasks.visible.indexOf(task);
  const go = (to) => () => step(to);
  const names = task.cell ? [task.cell.agent, task.cell.treatment] : [];
  const facts = [...names, task.env, task.suite === task.env ? "" : task.suite, task.hardness, task.tags.join(", ")].filter((fact) => fact && fact !== "-");
  const cells = cell === undefined ? [cell] : tasks.index.cells.map((_, number) => number).filter((number) => task.cellSums[number]);
  const tries = cell !== undefined || numbersOf(task, cell).length > 1 ? cells.map((number) => triesOf(task, number, cell, repeat)) : [];
  return make("div.traj-head", null,
    make("h2", { id: "trajectory-title", tabindex: "-1" }, make("bdi", null, shown(task.id))),
    make("p.facts-line", null, ...facts.map((fact) => make("bdi", null, shown(fact)))),
    ...tries,
    make("div.traj-nav", null,
      make("button.plain", { type: "button", "aria-label": "Previous task", title: "Previous task (k)", disabled: place <= 0, onclick: go(-1) }, "\u2191"),
      make("button.plain", { type: "button", "aria-label": "Next task", title: "Next task (j)", disabled: place < 0 || place >= tasks.visible.length - 1, onclick: go(1) }, "\u2193"),
      make("button.plain", { type: "button", title: "Close (Esc)", onclick: closeTask }, "Close"),
    ),
  );
}

function step(by) {
  const place = tasks.visible.indexOf(view.task) + by;
  if (place < 0 || place >= tasks.visible.length) return;
  move(place);
  openTask(tasks.visible[place]);
}

function bodyOf(task, episodes) {
  const two = episodes.length === 2;
  const body = make("div.traj-body");
  const query = (episodes.find(Boolean) || {}).query || task.query;
  body.append(make("p.query-full", { dir: "auto" }, shown(query)));
  if (!two) {
    const [episode] = episodes;
    body.append(factsOf(episode), resultOf(episode), ...talkOf(episode.said), ...episode.turns.map((turn, n) => turnOf(turn, n)), endOf(episode));
    return body;
  }
  const pair = make("div.pair");
  const [left, right] = episodes;
  const cell = (run, ...content) => make(`div.run-${run}`, { "data-run": plain(tasks.index.runs[run]) }, ...content);
  tasks.index.runs.forEach((name, run) =>
    pair.append(cell(run, make("h3.run-name", null, make("span.swatch", { "aria-hidden": "true" }), shown(name)), episodes[run] ? factsOf(episodes[run]) : make("p.quiet", null, "not played in this run"))),
  );
  episodes.forEach((each, run) => pair.append(cell(run, each ? resultOf(each) : null, ...talkOf(each && each.said))));
  const turns = episodes.map((each) => (each ? each.turns : []));
  const parted = left && right ? whereParted(...turns) : -1;
  for (let n = 0; n < Math.max(...turns.map((those) => those.length)); n++) {
    if (n === parted) pair.append(make("p.part", null, `They part here: the actions of turn ${n + 1} are not the same.`));
    turns.forEach((those, run) => pair.append(cell(run, n < those.length ? turnOf(those[n], n) : null)));
  }
  if (left && right && parted < 0) pair.append(make("p.part.alike", null, "Both runs took the same actions."));
  episodes.forEach((each, run) => pair.append(cell(run, each ? endOf(each) : null)));
  body.append(pair);
  return body;
}

// The first turn whose actions differ, counted from 0; -1 if all are the same.
function whereParted(left, right) {
  const most = Math.max(left.length, right.length);
  for (let n = 0; n < most; n++) {
    if (!left[n] || !right[n] || left[n].action !== right[n].action) return n;
  }
  return -1;
}

function factsOf(episode) {
  const most = episode.max_turns ? `/${episode.max_turns}` : "";
  const line = make("p.facts-line", null,
    badge(episode.outcome),
    typeof episode.test_passed === "boolean" ? make("span", null, episode.test_passed ? "its test passed" : "its test failed") : null,
    make("span", null, `reward ${number(episode.reward, 3)}${partsOf(episode.parts)}`),
    make("span", null, `${episode.turns.length}${most} turns`),
    typeof episode.seconds === "number" ? make("span", null, `${number(episode.seconds, 2)} s`) : null,
    usageOf(episode.usage),
    episode.user_usage ? make("span", null, "the user: ", usageOf(episode.user_usage)) : null,
  );
  const facts = make("div.facts-of", null, line);
  if (episode.reason) facts.append(make("p.reason", { dir: "auto" }, shown(episode.reason)));
  for (const attempt of episode.attempts || []) facts.append(make("p.quiet", null, "failed attempt: ", shown(attempt)));
  if (episode.phases) {
    const times = episode.phases.map(([name, seconds]) => `${plain(name)} ${number(seconds, 2)} s`);
    facts.append(make("p.quiet", null, times.join(", ")));
  }
  if (episode.detail) facts.append(folded("detail", episode.detail));
  return facts;
}

function partsOf(parts) {
  const said = Object.entries(parts || {}).map(([name, value]) => `${plain(name)} ${number(value, 2)}`);
  return said.length ? ` (${said.join(", ")})` : "";
}

function usageOf(usage) {
  if (!usage) return null;
  const tokens = (usage.input_tokens || 0) + (usage.output_tokens || 0);
  const cached = usage.cached_tokens ? ` (${usage.cached_tokens.toLocaleString("en")} cached)` : "";
  const said = [tokens ? `${tokens.toLocaleString("en")} tokens${cached}` : "", usage.cost ? `cost ${number(usage.cost, 4)}` : ""].filter(Boolean);
  return said.length ? make("span", null, said.join(", ")) : null;
}

function folded(title, text) {
  return make("details.log", null, make("summary", null, title), box("pre", text));
}

// What the agent said to its user, and what the user said.
function talkOf(said) {
  return (said || []).map(([message, reply, isLast]) => make("div.talk", { role: "group", "aria-label": "Conversation" },
    make("div.turn-head", null, make("b", null, "The agent to the user")),
    box("pre.said", message),
    make("div.turn-head", null, make("b", null, "The user"), isLast ? make("span", null, "ended the conversation with it") : null),
    typeof reply === "string" ? box("pre.reply", reply) : make("p.nothing", null, "nobody answered"),
  ));
}

function turnOf(turn, n) {
  const ran = turn.passed ? make("span.bad", null, "no action in it") : turn.executed === false ? make("span.bad", null, "did not execute") : turn.executed ? make("span", null, "executed") : null;
  const facts = make("div.turn-head", null,
    make("b", null, `Turn ${n + 1}`), ran,
    typeof turn.reward === "number" ? make(turn.reward >= 1 ? "span.good" : "span", null, `reward ${number(turn.reward, 2)}${partsOf(turn.parts)}`) : null,
    typeof turn.seconds === "number" ? make("span", null, `${number(turn.seconds, 3)} s`) : null,
    typeof turn.thinking === "number" && turn.thinking >= 0.001 ? make("span", null, `agent ${number(turn.thinking, 3)} s`) : null,
    usageOf(turn.usage),
  );
  return make("div.turn", { role: "group", "aria-label": `Turn ${n + 1}` },
    facts,
    turn.thought ? make("p.thought", { dir: "auto" }, shown(turn.thought)) : null,
    turn.action ? box("pre.action", turn.action) : make("p.nothing", null, "an empty action"),
    turn.answer ? folded("exactly what was submitted", turn.answer) : null,
    turn.observation ? box("pre.observation", turn.observation) : make("p.nothing", null, "no output"),
    turn.log ? folded("what the agent printed", turn.log) : null,
    ...talkOf(turn.said),
  );
}

// -- the result: the end state next to gold's, with differing sections first

const TEST_LINES = 62; // including the lines that say what is left out, and which tests are ours
const MARKS = { "-": "gone", "+": "came", "!": "gone" };

function resultOf(episode) {
  const result = make("div.state", { role: "group", "aria-label": "Result" });
  const sections = episode.state || [];
  if (sections.length) result.append(make("h2", null, "End state against gold"), make("p.quiet", null, "\u2212 only gold has it, + only the agent has it. Gold is shown to people only, after the run."));
  for (const section of sections.filter(({ same }) => same === false)) result.append(...sectionOf(section));
  if (episode.test_output) result.append(make("h3", null, "The end of what the tests printed"), box("pre.printed", episode.test_output, TEST_LINES));
  for (const section of sections.filter(({ same }) => same !== false)) {
    const nodes = sectionOf(section);
    if (section.same) result.append(make("details.alike", null, make("summary", null, ...nodes.shift().childNodes), ...nodes));
    else result.append(...nodes);
  }
  return result;
}

// Further output and traces of the episode, and where it ran.
function endOf(episode) {
  const end = make("div.state", { role: "group", "aria-label": "End" });
  if (episode.log) end.append(folded("what the agent printed outside of turns", episode.log));
  if (episode.calls) end.append(folded("calls of programs that the test faked or watched", episode.calls.join("\n")));
  if (episode.refused) end.append(folded("what the network of its sandbox refused", episode.refused.join("\n")));
  if (episode.left) end.append(folded("what the agent left behind in its process", episode.left.join("\n")));
  if (episode.host) end.append(make("p.quiet", null, "ran on ", make("code", null, shown(episode.host))));
  if (episode.node) end.append(make("p.quiet", null, make("code", null, shown(episode.node))));
  return end;
}

function sectionOf(section) {
  const same = section.same === true ? make("span.same", null, "as gold's") : section.same === false ? make("span.differs", null, "not as gold's") : null;
  const nodes = [make("h3", null, shown(section.title), same)];
  if (section.note) nodes.push(make("p.quiet", null, shown(section.note)));
  if (section.head && section.lines.length) nodes.push(...cut(section.lines, (lines) => tableOf({ ...section, lines })));
  else if (section.lines.length) {
    nodes.push(...cut(section.lines, (lines) => {
      const pre = make("pre");
      for (const [mark, text] of lines) {
        const sign = { "=": " ", "-": "\u2212" }[mark] || mark || " ";
        pre.append(make(`span.line${MARKS[mark] ? `.${MARKS[mark]}` : ""}`, { "data-mark": sign }, shown(text)));
      }
      return pre;
    }));
  }
  if (section.more) nodes.push(make("p.quiet", null, `and ${section.more.toLocaleString("en")} more`));
  return nodes;
}

// The element for the first lines, and a button that shows the others.
function cut(lines, show) {
  if (lines.length <= MOST_LINES) return [show(lines)];
  const first = show(lines.slice(0, MOST_LINES));
  const more = make("button.plain.more", { type: "button" }, `Show all ${lines.length} lines`);
  more.addEventListener("click", () => {
    first.replaceWith(show(lines));
    more.remove();
  });
  return [first, more];
}

function tableOf(section) {
  const head = make("tr", null, ...section.head.map((name) => make("th", { scope: "col" }, name)));
  const rows = section.lines.map(([mark, ...cells]) => make(MARKS[mark] ? `tr.${MARKS[mark]}` : "tr", null, ...cells.map((cell) => make("td", null, shown(cell)))));
  return make("table", null, make("thead", null, head), make("tbody", null, ...rows));
}

function keyInTrajectory(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "j") step(1);
  else if (event.key === "k") step(-1);
  else if (event.key === "Escape") closeTask();
  else return;
  event.preventDefault();
}

function startTrajectory() {
  const dialog = at("trajectory");
  dialog.addEventListener("keydown", keyInTrajectory);
  dialog.addEventListener("cancel", (event) => {
    event.preventDefault();
    closeTask();
  });
  dialog.addEventListener("close", () => {
    const ours = view.closing;
    view.closing = false;
    if (!ours && chosen.open) closeTask(); // closed by the browser, for example by a gesture
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) closeTask(); // a click outside of the dialog's content
  });
}
