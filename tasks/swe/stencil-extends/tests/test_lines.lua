local stencil = require("stencil")
local tap = require("tap")

local function message(template, data, name)
  local fine, result = pcall(stencil.render, template, data or {}, name)
  return fine and "no error" or result
end

tap.is(message("{{ x }}", {}, "page.html"), "page.html:1: there is no x", "lines: the first line")
tap.is(message("{{ x }}"), "template:1: there is no x", "lines: without a name")
tap.is(message("a\nb\n\n  {{ x.y }}\n{{ z }}"), "template:4: there is no x.y", "lines: a later line")
tap.is(message("a\r\nb\r\n{{ x }}"), "template:3: there is no x", "lines: Windows ends of lines")
tap.is(message("\n{{ a }}\n{{ b }}", { a = "1\n2\n3\n" }), "template:3: there is no b", "lines: values do not count")
tap.is(
  message("{{\n\n a \n}}\n{{ b }}", { a = 1 }),
  "template:5: there is no b",
  "lines: a value over several lines counts"
)
tap.is(message("\n{{\n\n x }}"), "template:2: there is no x", "lines: where it begins")
tap.is(
  message("{% if a %}\n{% else %}\n{{ x }}{% end %}"),
  "template:3: there is no x",
  "lines: in a condition"
)
tap.is(
  message("{% for a in as %}\n\n{{ a.x }}\n{% end %}", { as = { { x = 1 }, {} } }),
  "template:3: there is no a.x",
  "lines: in a loop"
)
tap.is(
  message("\n{% for a in\n as %}{% end %}", { as = 3 }),
  "template:2: as is no list",
  "lines: no list"
)

tap.is(message("\n\n{{ a b }}", {}, "p"), 'p:3: "a b" is no name', "lines: no name")
tap.is(message("\n{% if 1a %}{% end %}"), 'template:2: "1a" is no name', "lines: no name in a condition")
tap.is(message("x\n{{ a"), "template:2: there is no }}", "lines: no end of a value")
tap.is(message("{% if a\n{{ b }}\n"), "template:1: there is no %}", "lines: no end of a tag")
tap.is(message("\n\n{% end %}\n"), "template:3: there is nothing to end", "lines: nothing to end")
tap.is(message("\n{% else %}"), "template:2: else belongs to an if", "lines: else alone")
tap.is(
  message("{% if a %}\n{% else %}\n{% else %}{% end %}"),
  "template:3: else belongs to an if",
  "lines: else twice"
)
tap.is(message("\n\n{% while a %}"), 'template:3: "while a" is not known', "lines: an unknown tag")
tap.is(
  message("{% if a %}{% end %}\n{% if b %}\n{% for c in d %}\n{% end %}\n\n"),
  "template:2: there is no end of if",
  "lines: no end, where it begins"
)
tap.is(
  message("{% if b %}\n{% for c in d %}\n\n"),
  "template:2: there is no end of for",
  "lines: the innermost of those without an end"
)

tap.is(message("\n{{ x }}", {}, "50% off.html"), "50% off.html:2: there is no x", "lines: a name with a per cent sign")
tap.is(message("{{ %d }}"), 'template:1: "%d" is no name', "lines: a mistake with a per cent sign")
tap.is(
  message("{{ a }}", setmetatable({}, { __index = function() error("data:7: broken", 0) end })),
  "data:7: broken",
  "lines: errors of the caller's own are left alone"
)

local template = os.tmpname()
local file = assert(io.open(template, "w"))
file:write("\n{{ x }}\n")
file:close()
local pipe = io.popen(("lua5.4 bin/stencil.lua %s 2>&1"):format(template))
tap.is(pipe:read("a"), ("stencil: %s:2: there is no x\n"):format(template), "lines: the command")
pipe:close()
os.remove(template)
