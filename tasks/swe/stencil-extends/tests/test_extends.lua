local stencil = require("stencil")
local tap = require("tap")

-- Renders one of some templates; returns the text, or the message.
local function render(templates, name, data)
  local _, result = pcall(stencil.render, templates[name], data or {}, name, function(other)
    return templates[other]
  end)
  return result
end

local site = {
  base = "<title>{% block title %}Welcome{% end %}</title>\n<main>{% block main %}{% end %}</main>"
    .. "{% block foot %}(c) {{ owner }}{% end %}",
  page = '{% extends "base" %}\n{% block title %}{{ title }}{% end %}\n\n'
    .. "  {% block main %}{% for x in xs %}<{{ x }}>{% end %}{% end %}\n",
  deep = '\n{% extends "page" %}{% block foot %}no foot{% end %}{% block title %}Deep{% end %}',
  plain = '{%extends "base"%}',
}
local data = { owner = "Vrba", title = "A & B", xs = { 1, 2 } }

tap.is(
  render(site, "page", data),
  "<title>A &amp; B</title>\n<main><1><2></main>(c) Vrba",
  "extends: blocks are filled, what is around them is not shown"
)
tap.is(
  render(site, "base", data),
  "<title>Welcome</title>\n<main></main>(c) Vrba",
  "extends: a base alone shows what its blocks have"
)
tap.is(
  render(site, "deep", data),
  "<title>Deep</title>\n<main><1><2></main>no foot",
  "extends: over two steps the last one counts"
)
tap.is(render(site, "plain", data), render(site, "base", data), "extends: nothing is filled")

local nested = {
  base = "{% block all %}[{% block left %}l{% end %}|{% block right %}r{% end %}]{% end %}",
  left = '{% extends "base" %}{% block left %}L{% end %}',
  all = '{% extends "base" %}{% block all %}({% block left %}new{% end %}){% end %}',
  both = '{% extends "all" %}{% block left %}B{% end %}{% block right %}R{% end %}',
}
tap.is(render(nested, "left"), "[L|r]", "extends: a block in a block")
tap.is(render(nested, "all"), "(new)", "extends: the outer block is filled")
tap.is(render(nested, "both"), "(B)", "extends: a block of the template between")

local loops = {
  base = "{% for x in xs %}{% block item %}{{ x }}{% end %};{% end %}{% if xs %}{% block last %}.{% end %}{% end %}",
  child = '{% extends "base" %}{% block item %}<{{ x }}{% if y %}{{ y }}{% end %}>{% end %}',
  more = '{% extends "base" %}{% block unknown %}{{ none }}{% end %}',
}
tap.is(render(loops, "base", { xs = { 1, 2 } }), "1;2;.", "extends: a block in a loop")
tap.is(
  render(loops, "child", { xs = { 1, 2 }, y = "y" }),
  "<1y>;<2y>;.",
  "extends: a block sees the names of the place where it is filled in"
)
tap.is(
  render(loops, "more", { xs = { 1 } }),
  "1;.",
  "extends: a block that the base does not have is not shown"
)

local wrong = {
  base = "1\n{% block a %}\n{{ none }}{% end %}{% block b %}{% end %}",
  fills = '{% extends "base" %}\n\n{% block a %}{% end %}{% block b %}\n{{ missing }}{% end %}',
  leaves = '{% extends "base" %}\n\n{% block b %}{% end %}',
  text = '{% extends "base" %}\n{% block a %}{% end %}\n  \n oops',
  value = '{% extends "base" %}\n\n{{ a }}',
  tag = '{% extends "base" %}\n{% if a %}{% block a %}{% end %}{% end %}',
  late = 'x{% extends "base" %}',
  later = '\n{{ a }}\n{% extends "base" %}',
  inside = '{% if a %}\n{% extends "base" %}{% end %}',
  twice = '{% extends "base" %}\n{% extends "base" %}',
  same = "{% block a %}{% end %}\n{% if x %}{% block a %}{% end %}{% end %}",
  none = '\n{% extends "nowhere" %}',
  self = '{% extends "self" %}',
  round = '{% extends "about" %}',
  about = '\n{% extends "round" %}',
  open = "\n{% block a %}",
}
for _, case in ipairs({
  { "fills", "fills:4: there is no missing" },
  { "leaves", "base:3: there is no none" },
  { "text", "text:4: only blocks may stand here" },
  { "value", "value:3: only blocks may stand here" },
  { "tag", "tag:2: only blocks may stand here" },
  { "twice", "twice:2: only blocks may stand here" },
  { "late", "late:1: extends has to come first" },
  { "later", "later:3: extends has to come first" },
  { "inside", "inside:2: extends has to come first" },
  { "same", "same:2: there is a block a already" },
  { "none", "none:2: there is no template nowhere" },
  { "self", "self:1: self extends itself" },
  { "round", "about:2: round extends itself" },
  { "open", "open:2: there is no end of block" },
}) do
  tap.is(render(wrong, case[1]), case[2], "extends: " .. case[2])
end

local _, message = pcall(stencil.render, '{% extends "base" %}', {})
tap.is(message, "template:1: there is no template base", "extends: without a function that loads")
tap.is(stencil.render("{% block a %}x{{ y }}{% end %}", { y = 1 }), "x1", "extends: blocks without a base")
tap.is(
  render({ a = '{% extends "b" %}', b = "\n\n{{ x }}" }, "a"),
  "b:3: there is no x",
  "extends: a mistake in the base is the base's"
)

local asked = 0
stencil.render('{% extends "b" %}', {}, "a", function()
  asked = asked + 1
  return "text"
end)
tap.is(asked, 1, "extends: a template is asked for once")
