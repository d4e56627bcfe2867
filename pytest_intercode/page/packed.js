// The packed data of the page: the index of its tasks, and trajectories in blocks.

async function unpack(id) {
  const text = at(id).textContent;
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let n = 0; n < binary.length; n++) bytes[n] = binary.charCodeAt(n);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

const KEPT_BLOCKS = 8;
const opened = new Map(); // the blocks that were opened last

// A block's episodes, without keeping them.
const blockOf = (block) => opened.get(`block-${block}`) || unpack(`block-${block}`);

async function trajectory(block, index) {
  const id = `block-${block}`;
  const episodes = blockOf(block);
  opened.delete(id);
  opened.set(id, episodes);
  if (opened.size > KEPT_BLOCKS) opened.delete(opened.keys().next().value);
  return (await episodes)[index];
}

// The index as objects.
async function readIndex() {
  const index = await unpack("index");
  const two = index.runs.length === 2;
  index.cells = (index.cells || []).map(([agent, treatment, label]) => ({ agent, treatment, label }));
  index.tasks = index.tasks.map((task, place) => {
    const [id, env, suite, hardness, tags, query] = task;
    const runs = (two ? task.slice(6, 8) : task.slice(6, 7)).map((tries) =>
      tries.map(([repeat, outcome, reward, turns, seconds, reason, block, at, passed, cell]) => ({
        repeat, passed, outcome: index.outcomes[outcome], reward, turns, seconds, reason: index.reasons[reason], block, at, cell,
      })),
    );
    const made = {
      place, id, query, runs,
      env: index.envs[env],
      suite: index.suites[suite],
      hardness: index.hardness[hardness],
      tags: tags.map((tag) => index.tags[tag]),
      change: two ? task[8] : 0,
      words: two ? task[9] : "",
      searched: `${id}\n${query}`.toLowerCase(),
    };
    made.cell = two && index.cells.length ? index.cells[task[task.length - 1]] : null; // for two runs, each task belongs to a cell
    made.key = [made.env, made.suite, made.id, ...(made.cell ? [made.cell.label] : [])].join("/");
    made.sums = runs.map(summed);
    if (!two) made.cellSums = index.cells.map((_, cell) => summed(runs[0].filter((attempt) => attempt.cell === cell)));
    return made;
  });
  return index;
}

// The verdict of a user's own test on a try, if it differs from the try's outcome.
function verdictOf(attempt) {
  if (typeof attempt.passed !== "boolean" || attempt.passed === (attempt.outcome === "solved")) return "";
  return attempt.passed ? ", test passed" : ", test failed";
}

// The result of a task's tries in one run; ungraded tries do not count, unless there are no others.
function summed(tries) {
  if (!tries.length) return null;
  const graded = tries.filter((each) => !["task-error", "infrastructure-error", "stopped"].includes(each.outcome));
  const counted = graded.length ? graded : tries;
  // The verdict of a user's own test decides.
  const solved = graded.filter((each) => each.passed ?? each.outcome === "solved").length;
  const mean = (name) => counted.reduce((sum, each) => sum + (each[name] || 0), 0) / counted.length;
  const outcomes = new Set(tries.map((each) => each.outcome));
  let outcome = outcomes.size === 1 ? tries[0].outcome : "mixed";
  let text = outcome + verdictOf(tries[0]);
  if (tries.length > 1) {
    text = graded.length ? `${solved}/${graded.length} solved` : outcome;
    if (graded.length) outcome = solved === graded.length ? "solved" : solved ? "mixed" : outcome === "mixed" ? "failed" : outcome;
  }
  return {
    outcome, text, outcomes,
    reason: (tries.find((each) => each.reason) || {}).reason || "",
    rate: graded.length ? solved / graded.length : -1,
    reward: mean("reward"),
    turns: mean("turns"),
    seconds: tries.some((each) => typeof each.seconds === "number") ? mean("seconds") : null,
    tries: tries.length,
  };
}
