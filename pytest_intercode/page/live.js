// The status of runs, requested every second while the page is visible. An element lives as long as
// what it shows, so that a button keeps its focus, and a selected text stays selected.

const INTERVAL = 1000; // milliseconds between two requests
const ANSWER_TIMEOUT = 20000; // milliseconds for an answer: a run itself may take ten seconds
const COLUMNS = [["turns", "Turns"], ["time", "Time"], ["tokens", "Tokens"], ["cost", "Cost"], ["worker", "Worker"]];
const SVG = "http://www.w3.org/2000/svg";

let timer = 0;
let asking = false;
let hasComplaint = false; // whether a message about a missing answer is shown, which goes when one comes

function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function say(text, isProblem) {
  write(at("state"), text);
  at("state").classList.toggle("problem", isProblem);
}

// Give a parent one child for each entry, in order: an existing one with the entry's key, or a new one.
// Old children are removed first, so that others need not be moved: a moved element loses its focus.
function arrange(parent, entries, build, update) {
  const keys = new Set(entries.map((entry) => entry.key));
  for (const child of [...parent.children]) if (!keys.has(child.dataset.key)) child.remove();
  const children = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  entries.forEach((entry, index) => {
    const child = children.get(entry.key) || build(entry);
    child.dataset.key = entry.key;
    if (child !== parent.children[index]) parent.insertBefore(child, parent.children[index] || null);
    update(child, entry);
  });
}

// -- a run

function buildRun(run) {
  const heads = COLUMNS.map(([name, title]) => make(`th.${name}`, { scope: "col" }, title));
  const bar = document.createElementNS(SVG, "svg");
  for (const [name, value] of [["class", "bar"], ["viewBox", "0 0 100 12"], ["preserveAspectRatio", "none"], ["aria-hidden", "true"]]) bar.setAttribute(name, value);
  for (const part of ["track", "done", "solved"]) {
    const rect = document.createElementNS(SVG, "rect");
    rect.setAttribute("class", part);
    rect.setAttribute("height", "12");
    rect.setAttribute("width", part === "track" ? "100" : "0");
    bar.append(rect);
  }
  const stop = () => ask(`Stop run ${run.pid}?`, "It ends as by Ctrl-C: what is over is kept.", { run: run.pid });
  return make("section.run", null,
    make("div.run-head", null,
      make("div", null, make("h2"), make("p.quiet.folder")),
      make("button.plain.stop", { type: "button", onclick: stop }, "Stop the run")),
    bar,
    make("dl.measures"),
    make("p.quiet.none", null, "No episode is under way."),
    make("table.episodes", null,
      make("thead", null, make("tr", null, make("th.item", { scope: "col" }, "Episode"), ...heads,
        make("th.action", { scope: "col" }, "Last action"), make("th.button", null, make("span.unseen", null, "Stop")))),
      make("tbody")));
}

function updateRun(section, run) {
  write(section.querySelector("h2"), run.title);
  write(section.querySelector(".folder"), run.folder);
  for (const part of ["done", "solved"]) section.querySelector(`.bar .${part}`).setAttribute("width", run[part]);
  arrange(section.querySelector(".measures"), run.measures,
    ({ key }) => make("div", null, make("dt", null, key), make("dd")),
    (measure, { value }) => write(measure.lastElementChild, value));
  section.querySelector(".none").hidden = run.episodes.length > 0;
  const table = section.querySelector("table");
  table.hidden = run.episodes.length === 0;
  arrange(table.tBodies[0], run.episodes, (episode) => buildEpisode(episode, run), updateEpisode);
  for (const [name] of COLUMNS) {
    const isEmpty = run.episodes.every((episode) => !episode[name]);
    for (const cell of table.querySelectorAll(`.${name}`)) cell.classList.toggle("without", isEmpty);
  }
}

// -- an episode

function buildEpisode(episode, run) {
  const stop = () => ask(`Stop ${episode.item}?`, "The run goes on. Its outcome is stopped, which no rate counts.", { run: run.pid, episode: episode.name });
  return make("tr", null,
    make("th.item", { scope: "row" }, make("span"), make("small")),
    ...COLUMNS.map(([name, title]) => make(`td.number.${name}`, { "data-name": title })),
    make("td.action"),
    make("td.button", null, make("button.plain.stop", { type: "button", "aria-label": `Stop ${episode.item}`, onclick: stop }, "Stop")));
}

function updateEpisode(row, episode) {
  write(row.querySelector(".item span"), episode.item);
  write(row.querySelector(".item small"), episode.agent);
  for (const [name] of [...COLUMNS, ["action"]]) write(row.querySelector(`.${name}`), episode[name]);
}

// -- questions

async function send(path, parameters) {
  const response = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(ANSWER_TIMEOUT), ...parameters });
  if (!response.ok) throw new Error(`status ${response.status}`);
  return response.json();
}

async function refresh() {
  clearTimeout(timer);
  if (asking) return;
  asking = true;
  try {
    const { runs, notes, title } = await send("status");
    arrange(at("runs"), runs, buildRun, updateRun);
    write(at("title"), title);
    document.title = title;
    if (notes.length) say(notes.join("\n"), true);
    else if (hasComplaint) say("", false);
    hasComplaint = notes.length > 0;
  } catch (error) {
    hasComplaint = true;
    say("pytest-intercode top does not answer: what is shown may be over.", true);
  }
  asking = false;
  document.documentElement.dataset.ready = "true";
  if (!document.hidden) timer = setTimeout(refresh, INTERVAL);
}

function ask(question, effect, request) {
  const dialog = at("question");
  write(at("asked"), question);
  write(at("effect"), effect);
  dialog.returnValue = "";
  dialog.onclose = () => {
    if (dialog.returnValue === "stop") tell(request);
  };
  dialog.showModal();
  at("cancel").focus();
}

async function tell(request) {
  try {
    const headers = { "content-type": "application/json" };
    const { message, problem } = await send("stop", { method: "POST", headers, body: JSON.stringify(request) });
    say(message || problem, Boolean(problem));
  } catch (error) {
    say("pytest-intercode top does not answer: nothing was stopped, as far as is known.", true);
  }
  refresh();
}

document.addEventListener("visibilitychange", () => {
  clearTimeout(timer);
  if (!document.hidden) refresh();
});
refresh();
