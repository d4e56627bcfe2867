// Starts the page: the theme, the table, the choices in the address, the keys.

function showTrouble(trouble) {
  at("trouble").textContent = trouble;
  at("trouble").hidden = !trouble;
}

const THEMES = { "": "automatic", light: "light", dark: "dark" };

function startTheme() {
  const button = at("theme");
  let theme = "";
  const show = () => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    button.textContent = `Theme: ${THEMES[theme]}`;
  };
  try {
    theme = localStorage.getItem("pytest-intercode-theme") || "";
  } catch {
    // Pages from files may not be allowed to use the storage.
  }
  if (!(theme in THEMES)) theme = "";
  button.addEventListener("click", () => {
    const names = Object.keys(THEMES);
    theme = names[(names.indexOf(theme) + 1) % names.length];
    show();
    try {
      localStorage.setItem("pytest-intercode-theme", theme);
    } catch {
      // as above
    }
  });
  show();
  button.hidden = false;
}

function follow() {
  const before = filters();
  readAddress();
  if (filters() !== before) {
    filter();
    if (!chosen.open) at("tasks").scrollIntoView(); // a link to a filter leads to the filtered tasks
  }
  showTrouble("");
  showTask();
}

function keyAnywhere(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || at("trajectory").open) return;
  const typing = event.target.closest && event.target.closest("input, select, textarea");
  if (event.key === "/" && !typing) at("q").focus();
  else if (event.key === "Escape" && event.target === at("q")) at("scroller").focus();
  else if ((event.key === "j" || event.key === "k") && !typing && event.target !== at("scroller")) {
    at("scroller").focus();
    at("tasks").scrollIntoView();
  } else return;
  event.preventDefault();
}

async function start() {
  startTheme();
  if (!("DecompressionStream" in window)) {
    showTrouble("The table and the trajectories need a browser of 2023 or newer.");
    at("count").textContent = "";
    return;
  }
  const index = await readIndex();
  await new Promise((resolve) => setTimeout(resolve)); // so that the browser can work between the parts
  readAddress();
  startTable(index);
  startTrajectory();
  filter();
  showTask();
  document.addEventListener("keydown", keyAnywhere);
  window.addEventListener("hashchange", follow);
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault(); // the part after # is reserved for the reader's choices
    at("scroller").focus();
  });
  document.documentElement.dataset.ready = "true";
}

start().catch((error) => showTrouble(`The page could not be read: ${error.message}`));
