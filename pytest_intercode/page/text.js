// Elements and text. Whatever comes from a run is untrusted: it becomes text nodes, never markup.

const at = (id) => document.getElementById(id);

// make("p.quiet", {title: "..."}, child, ...): children are nodes or texts; null is left out.
function make(what, attributes, ...children) {
  const [tag, ...classes] = what.split(".");
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(" ");
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children) {
    if (child !== null && child !== undefined) element.append(child);
  }
  return element;
}

// Characters that are not visible: control characters and ANSI sequences, marks that change the
// direction of writing, blanks that are not spaces, halves of surrogate pairs.
const HIDDEN = /\x1b\[[0-9;?]*[ -\/]*[@-~]|(?![\n\t ])[\p{C}\p{Z}]/gu;

const escaped = (text) =>
  text.replace(/[^\x20-\x7e]/gu, (sign) => {
    const code = sign.codePointAt(0);
    if (code < 0x100) return "\\x" + code.toString(16).padStart(2, "0");
    return code < 0x10000 ? "\\u" + code.toString(16).padStart(4, "0") : "\\U" + code.toString(16).padStart(8, "0");
  });

// A text as nodes: invisible characters become escapes with their own style.
function shown(text) {
  const nodes = document.createDocumentFragment();
  let from = 0;
  for (const match of text.matchAll(HIDDEN)) {
    if (match.index > from) nodes.append(text.slice(from, match.index));
    nodes.append(make("i.escape", null, escaped(match[0])));
    from = match.index + match[0].length;
  }
  nodes.append(text.slice(from));
  return nodes;
}

// The same as plain text, for attributes and for text that is cut to one line.
const plain = (text) => text.replace(HIDDEN, escaped);

const MOST_LINES = 40;
const MOST_CHARACTERS = 6000;

// A text in a box; a long one is cut until the reader asks for it.
function box(kind, text, mostLines = MOST_LINES) {
  const pre = make(kind);
  const lines = text.split("\n");
  if (lines.length <= mostLines && text.length <= MOST_CHARACTERS) {
    pre.append(shown(text));
    return pre;
  }
  pre.append(shown(lines.slice(0, mostLines).join("\n").slice(0, MOST_CHARACTERS)));
  const size = lines.length > mostLines ? `${lines.length} lines` : `${text.length} characters`;
  const more = make("button.plain.more", { type: "button" }, `Show all ${size}`);
  more.addEventListener("click", () => {
    pre.replaceChildren(shown(text));
    more.remove();
  });
  const both = document.createDocumentFragment();
  both.append(pre, more);
  return both;
}

const number = (value, digits) => (typeof value === "number" ? value.toFixed(digits) : "-");
const several = (count, what) => `${count.toLocaleString("en")} ${what}${count === 1 ? "" : "s"}`;
const badge = (outcome, text) => make("span", { class: `outcome ${outcome}` }, shown(text || outcome));
