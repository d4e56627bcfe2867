// The reader's choices, kept in the address after #, so that a view can be linked and returned to.

const CHOICES = ["agent", "treatment", "env", "suite", "hardness", "tag"];
const MANY = ["outcome", "change"]; // several values of these may be chosen
const chosen = { q: "", agent: "", treatment: "", env: "", suite: "", hardness: "", tag: "", outcome: [], change: [], sort: "", open: "", try: "", cell: "" };

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const name of Object.keys(chosen)) {
    const value = given.get(name) || "";
    chosen[name] = MANY.includes(name) ? value.split(",").filter(Boolean) : value;
  }
}

function address() {
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries(chosen)) {
    if (String(value)) given.set(name, MANY.includes(name) ? value.join(",") : value);
  }
  return `#${given}`;
}

// The choices that determine the table, as a text to compare.
const filters = () => JSON.stringify({ ...chosen, open: "", try: "", cell: "" });

let waiting = 0;

// Filters change the current entry of the history; opening a trajectory adds a new entry.
function writeAddress(own) {
  clearTimeout(waiting);
  const write = () => {
    const now = address();
    if (now === (location.hash || "#")) return;
    if (own) history.pushState(null, "", now);
    else history.replaceState(null, "", now);
  };
  if (own) write();
  else waiting = setTimeout(write, 150);
}
