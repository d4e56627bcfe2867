local stencil = require("stencil")
local tap = require("tap")

local function shown(value)
  return stencil.render("[{{ x }}]", { x = value, secret = "s3cret" })
end

local function try(call, ...)
  local results = table.pack(pcall(call, ...))
  return results[1] and results[2] or "failed"
end

tap.is(try(shown, "100%"), "[100%]", "exact: a per cent sign at the end")
tap.is(try(shown, "5% off"), "[5% off]", "exact: a per cent sign")
tap.is(try(shown, "%0 %1 %%"), "[%0 %1 %%]", "exact: per cent signs and digits")
tap.is(try(shown, "{{ secret }}"), "[{{ secret }}]", "exact: a name in braces")
tap.is(try(shown, "{{ x }}"), "[{{ x }}]", "exact: its own name in braces")
tap.is(try(shown, "{{ none }}"), "[{{ none }}]", "exact: an unknown name in braces")
tap.is(try(shown, "&amp; &"), "[&amp;amp; &amp;]", "exact: entities are text, too")

local both = { a = "{{ b }}", b = "{{ a }}" }
tap.is(try(stencil.render, "{{ a }} {{ b }}", both), "{{ b }} {{ a }}", "exact: two that name each other")
tap.is(
  try(stencil.render, "{{ a }}{{ b }}}", { a = "{{ b", b = " }}" }),
  "{{ b }}}",
  "exact: braces in pieces"
)
tap.is(
  try(stencil.render, "{{ a }} {{ ab }}", { a = "%a", ab = "%ab" }),
  "%a %ab",
  "exact: a name that begins like another one"
)

tap.is(select("#", stencil.render("{{ x }} {{ x }}", { x = 1 })), 1, "exact: render has one result")
tap.is(select("#", stencil.escape("<>")), 1, "exact: escape has one result")
tap.is(stencil.escape("%<%>"), "%&lt;%&gt;", "exact: escape")

local template = "{{ x }}"
tap.is(try(stencil.render, template, { x = ("%"):rep(1000) }), ("%"):rep(1000), "exact: many of them")
