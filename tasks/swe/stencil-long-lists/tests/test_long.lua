local stencil = require("stencil")
local tap = require("tap")

-- Returns what is rendered, or a message after two seconds of processor time.
local function in_time(template, data)
  local limit = os.clock() + 2
  debug.sethook(function()
    if os.clock() > limit then
      error("it takes more than 2 s", 0)
    end
  end, "", 2000)
  local _, result = pcall(stencil.render, template, data)
  debug.sethook()
  return result
end

-- Returns the length, and a sum over all bytes.
local function digest(text)
  local sum = 0
  for at = 1, #text, 7 do
    sum = (sum * 31 + text:byte(at)) & 0xffffffff
  end
  return ("%d %08x"):format(#text, sum)
end

local rows, wanted = {}, {}
for at = 1, 25000 do
  rows[at] = { number = at, text = ("row %d <%s>"):format(at, ("x"):rep(at % 150)) }
  wanted[#wanted + 1] = ("<tr><td>%d</td><td>%s</td></tr>\n"):format(at, stencil.escape(rows[at].text))
end

local row = "<tr><td>{{ row.number }}</td><td>{{ row.text }}</td></tr>\n"
tap.is(
  digest(in_time("{% for row in rows %}" .. row .. "{% end %}", { rows = rows })),
  digest(table.concat(wanted)),
  "long: a long list"
)

tap.is(
  digest(in_time("<ul>{% if rows %}{% for row in rows %}" .. row .. "{% end %}{% end %}</ul>", { rows = rows })),
  digest("<ul>" .. table.concat(wanted) .. "</ul>"),
  "long: inside of something else"
)

local groups = {}
for at = 1, 125 do
  groups[at] = { rows = table.move(rows, (at - 1) * 200 + 1, at * 200, 1, {}) }
end
tap.is(
  digest(in_time("{% for g in groups %}{% for row in g.rows %}" .. row .. "{% end %}{% end %}", { groups = groups })),
  digest(table.concat(wanted)),
  "long: many lists of a list"
)

local names = {}
for at = 1, 30000 do
  names[at] = "{{ name }} is at " .. ("place "):rep(20)
end
tap.is(
  digest(in_time(table.concat(names), { name = "N" })),
  digest((table.concat(names):gsub("{{ name }}", "N"))),
  "long: a long template"
)
