local stencil = require("stencil")
local tap = require("tap")

-- Returns what is rendered, or the message.
local function render(template, data)
  local _, result = pcall(stencil.render, template, data)
  return result
end

-- Returns the names and values of a table, in order.
local function dump(data)
  local lines = {}
  for name, value in pairs(data) do
    lines[#lines + 1] = ("%s=%s"):format(name, tostring(value))
  end
  table.sort(lines)
  return table.concat(lines, " ")
end

local user = { name = "Ada" }
local data = { user = user, users = { { name = "Bo" }, { name = "Cy" } } }
local before = dump(data)
tap.is(
  render("{{ user.name }}: {% for user in users %}{{ user.name }} {% end %}{{ user.name }}", data),
  "Ada: Bo Cy Ada",
  "scope: the outer value is there again after a loop"
)
tap.is(dump(data), before, "scope: the table is as it was")

data = { x = "outer", xs = { 1, 2 } }
tap.is(render("{% for x in xs %}{{ x }}{% end %}{{ x }}", data), "12outer", "scope: the same twice")
tap.is(render("{% for x in xs %}{{ x }}{% end %}{{ x }}", data), "12outer", "scope: and once more")

tap.is(
  render("{% for x in xs %}{% for x in x.ys %}{{ x }}{% end %}/{{ x.n }} {% end %}", {
    xs = { { n = "a", ys = { 1, 2 } }, { n = "b", ys = {} }, { n = "c", ys = { 3 } } },
  }),
  "12/a /b 3/c ",
  "scope: loops of one name in each other"
)
tap.is(
  render("{% for xs in xs %}{{ xs }}{% end %}{% for xs in xs %}{{ xs }}{% end %}", { xs = { 1, 2 } }),
  "1212",
  "scope: a loop named as its list"
)

tap.is(
  render("{% for x in xs %}{% end %}{{ x }}", { xs = { 1 } }),
  "template:1: there is no x",
  "scope: the name is unknown after the loop"
)
tap.is(
  render("{% for x in xs %}{% end %}{% if x %}yes{% else %}no{% end %}", { xs = { 1 } }),
  "no",
  "scope: the name is false after the loop"
)
tap.is(
  render("{% for x in xs %}{% if x %}t{% else %}f{% end %}{% end %}", { x = true, xs = { false, 1, false } }),
  "ftf",
  "scope: an item that is false hides the outer value"
)
tap.is(
  render("{% for x in xs %}{{ x.y.z }}{% end %}", { x = { y = { z = 1 } }, xs = { { y = {} } } }),
  "template:1: there is no x.y.z",
  "scope: what an item lacks is not taken from outside"
)
tap.is(
  render("{% for x in xs %}{{ other }}{{ x }}{% end %}", { other = "o", xs = { 1, 2 } }),
  "o1o2",
  "scope: other names are seen inside"
)

data = { xs = { 1, 2 } }
render("{% for x in xs %}{{ none }}{% end %}", data)
tap.is(data.x, nil, "scope: nothing is left behind by a mistake")

local readonly = setmetatable({}, {
  __index = { xs = { "a", "b" }, name = "N" },
  __newindex = function()
    error("this table is read-only")
  end,
})
tap.is(render("{% for x in xs %}{{ name }}{{ x }}{% end %}", readonly), "NaNb", "scope: a read-only table")
