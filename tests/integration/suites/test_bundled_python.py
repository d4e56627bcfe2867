"""Our own python suite: gold passes it, nothing does not, and neither do the usual mistakes."""

from __future__ import annotations

import json

import pytest

from pytest_intercode.environments.python.fields import PythonFields
from pytest_intercode.suites.loader import load_suite
from pytest_intercode.system.files import bundled_folder
from tests.support.bundled import play
from tests.support.thinning import every, thinned

SUITE = load_suite(bundled_folder("tasks") / "python.yaml")
ONE_IN = every(12)  # what plays more than gold takes every twelfth task

# By the task's id: a solution that looks right and passes some of the tests, but not all.
WRONG = {
    # One list for all calls that leave it out.
    "entry-on-a-new-list": """\
def add_entry(entry, log=[]):
    log.append(entry)
    return log
""",
    # Slices what may have no length.
    "catalogue-pages": """\
def pages(items, size):
    return [items[at : at + size] for at in range(0, len(items), size)]
""",
    # Lower case is not case folding.
    "guests-named-once": """\
def unique_names(names):
    seen, kept = set(), []
    for name in names:
        name = name.strip()
        if name and name.lower() not in seen:
            seen.add(name.lower())
            kept.append(name)
    return kept
""",
    # The day after 28 February instead of the day itself.
    "contract-anniversary": """\
from datetime import date
def anniversary(start, years):
    try:
        return start.replace(year=start.year + years)
    except ValueError:
        return date(start.year + years, 3, 1)
""",
    # The calendar's year with the week of another.
    "iso-week-label": """\
def week_label(day):
    return f"{day.year:04d}-W{day.isocalendar()[1]:02d}"
""",
    # The last day left out.
    "working-days-inclusive": """\
from datetime import timedelta
def working_days(first, last):
    days = 0
    while first < last:
        days += first.weekday() < 5
        first += timedelta(days=1)
    return days
""",
    # Cut to the shortest row.
    "ragged-table-turned": """\
def transpose(rows, fill=None):
    return [list(column) for column in zip(*rows)]
""",
    # A shift beyond the length is not brought back.
    "roster-rotated": """\
def rotate(names, shift):
    return names[-shift:] + names[:-shift]
""",
    # The limit itself is too heavy.
    "parcel-fee": """\
def fee(weight, bands):
    if weight <= 0:
        raise ValueError(weight)
    for limit, price in sorted(bands):
        if weight < limit:
            return price
""",
    # Only bits that have a name are looked at.
    "names-of-flags": """\
def flag_names(mask, names):
    if mask < 0:
        raise ValueError(mask)
    return [name for bit, name in enumerate(names) if mask >> bit & 1]
""",
    # Equally used words in the order of the text, and letters beyond a to z.
    "most-used-words": """\
import re
from collections import Counter
def top_words(text, count):
    return Counter(re.findall("[a-z]+", text.lower())).most_common(count)
""",
    # A division in floating point.
    "bill-in-equal-shares": """\
def split_bill(cents, people):
    if cents < 0 or people < 1:
        raise ValueError
    share = int(cents / people)
    rest = cents - share * people
    return [share + 1] * rest + [share] * (people - rest)
""",
    # str.count skips overlapping matches.
    "overlapping-matches": """\
def count_in(text, part):
    if not part:
        raise ValueError
    return text.count(part)
""",
    # Reads a movement before the balance that goes without it.
    "running-balance": """\
def balances(start, movements):
    for movement in movements:
        yield start
        start += movement
    yield start
""",
    # Folded, but not normalised.
    "same-text-in-unicode": """\
def same_text(a, b):
    return a.casefold() == b.casefold()
""",
    # Combining marks end up before the characters that they belong to.
    "text-mirrored": """\
def mirror(text):
    return text[::-1]
""",
    # Long words and hyphens are broken, paragraphs run together.
    "lines-folded": """\
import textwrap
def fold(text, width):
    return textwrap.wrap(text, width)
""",
    # A sum for lines without numbers.
    "sums-of-lines": """\
import sys
total = 0
for line in sys.stdin:
    number = sum(map(int, line.split()))
    print(number)
    total += number
print("total", total)
""",
    # Takes what it finds and ignores the rest.
    "duration-in-words": """\
import re
def seconds(text):
    parts = re.findall(r"(\\d+)([dhms])", text)
    if not parts:
        raise ValueError(text)
    return sum(int(n) * {"d": 86400, "h": 3600, "m": 60, "s": 1}[unit] for n, unit in parts)
""",
    # Neighbours are not joined, and the list is sorted in place.
    "tide-windows-merged": """\
def merge_ranges(ranges):
    ranges.sort()
    merged = []
    for first, last in ranges:
        if first > last:
            raise ValueError
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged
""",
    # Money in floating point.
    "invoice-to-the-cent": """\
def invoice_total(lines, rate):
    net = sum(round(quantity * float(price), 2) for quantity, price in lines)
    return f"{net + round(net * float(rate) / 100, 2):.2f}"
""",
    # Each date from the one before: the day once lost does not come back.
    "due-dates-at-month-ends": """\
from calendar import monthrange
def due_dates(start, months=1):
    while True:
        yield start
        month = start.month - 1 + months
        year, month = start.year + month // 12, month % 12 + 1
        day = min(start.day, monthrange(year, month)[1])
        start = start.replace(year=year, month=month, day=day)
""",
    # The upper of the two middle ones.
    "running-median": """\
from bisect import insort
def medians(readings):
    seen = []
    for reading in readings:
        insort(seen, reading)
        yield seen[len(seen) // 2]
""",
    # Getting a key does not count as use.
    "cache-of-recent-use": """\
class Cache:
    def __init__(self, capacity):
        self.capacity, self.values = capacity, {}
    def put(self, key, value):
        self.values.pop(key, None)
        self.values[key] = value
        if len(self.values) > self.capacity:
            del self.values[next(iter(self.values))]
    def get(self, key, default=None):
        return self.values.get(key, default)
    def keys(self):
        return list(self.values)
""",
    # One call too many, and the name is lost.
    "retry-decorator": """\
def retry(times, on=Exception):
    def decorate(function):
        def call(*args, **kwargs):
            for _ in range(times):
                try:
                    return function(*args, **kwargs)
                except on:
                    pass
            return function(*args, **kwargs)
        return call
    return decorate
""",
    # What is inside the dict is not copied.
    "store-rolled-back": """\
from contextlib import contextmanager
@contextmanager
def rollback(store):
    before = dict(store)
    try:
        yield store
    except BaseException:
        store.clear()
        store.update(before)
        raise
""",
    # Characters counted for bytes, and what follows the last reading passed over.
    "readings-as-bytes": """\
import struct
def pack(readings):
    data = b"TIDE" + struct.pack(">H", len(readings))
    for station, when, level in readings:
        data += bytes([len(station)]) + station.encode() + struct.pack(">Ih", when, level)
    return data
def unpack(data):
    if data[:4] != b"TIDE":
        raise ValueError
    readings, at = [], 6
    for _ in range(int.from_bytes(data[4:6], "big")):
        size = data[at]
        station = data[at + 1 : at + 1 + size].decode()
        readings.append((station, *struct.unpack_from(">Ih", data, at + 1 + size)))
        at += 7 + size
    return readings
""",
    # Index 0 is taken for nothing found.
    "logbook-chain": """\
from hashlib import sha256
def chain(entries):
    links, before = [], ""
    for entry in entries:
        before = sha256((before + "\\n" + entry).encode()).hexdigest()
        links.append((entry, before))
    return links
def first_broken(links):
    before, broken = "", None
    for index, (entry, digest) in enumerate(links):
        if sha256((before + "\\n" + entry).encode()).hexdigest() != digest:
            broken = broken or index
        before = digest
    return broken
""",
    # Quartiles of a sample from a larger whole.
    "readings-outside-the-fences": """\
from statistics import quantiles
def outliers(values):
    if len(values) < 2:
        return []
    low, _, high = quantiles(values, n=4)
    margin = 1.5 * (high - low)
    return [value for value in values if not low - margin <= value <= high + margin]
""",
    # Whole numbers, but not the smallest.
    "ratio-in-lowest-terms": """\
from fractions import Fraction
from math import lcm
def simplest_ratio(amounts):
    parts = [Fraction(amount) for amount in amounts]
    if not any(parts) or min(parts) < 0:
        raise ValueError
    scale = lcm(*(part.denominator for part in parts))
    return [int(part * scale) for part in parts]
""",
    # A generator raises when it is first asked, not when it is called.
    "sliding-windows": """\
from collections import deque
from itertools import islice
def windows(items, size):
    if size < 1:
        raise ValueError
    source = iter(items)
    window = deque(islice(source, size - 1), maxlen=size)
    for item in source:
        window.append(item)
        yield tuple(window)
""",
    # None stands for nothing peeked.
    "peekable-iterator": """\
class Peekable:
    def __init__(self, items):
        self.source, self.front = iter(items), []
    def __iter__(self):
        return self
    def __next__(self):
        return self.front.pop() if self.front else next(self.source)
    def peek(self, default=None):
        if not self.front:
            item = next(self.source, None)
            if item is None:
                return default
            self.front.append(item)
        return self.front[-1]
    def push(self, item):
        self.front.append(item)
    def __bool__(self):
        return self.peek() is not None
""",
    # Reads whatever is made of the seven letters.
    "roman-numerals-checked": """\
def from_roman(text):
    values = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}
    if not text or set(text) - set(values):
        raise ValueError(text)
    numbers = [values[letter] for letter in text]
    return sum(-a if a < b else a for a, b in zip(numbers, numbers[1:] + [0]))
""",
    # A dict has neither repeated parameters nor, here, empty ones.
    "link-parameters": """\
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit
def with_parameters(url, changes):
    parts = urlsplit(url)
    query = {**dict(parse_qsl(parts.query)), **changes}
    query = urlencode({name: value for name, value in query.items() if value is not None})
    return urlunsplit(parts._replace(query=query))
""",
    # Sorted as text, so with different offsets in the wrong order.
    "longest-silence": """\
from datetime import datetime
def longest_gap(stamps):
    times = [datetime.fromisoformat(stamp) for stamp in sorted(stamps)]
    if any(time.tzinfo is None for time in times):
        raise ValueError
    gaps = [int((b - a).total_seconds()) for a, b in zip(times, times[1:])]
    return max(gaps, default=0)
""",
    # What was refused counts too.
    "sliding-rate-limit": """\
class Limiter:
    def __init__(self, limit, seconds):
        self.limit, self.seconds, self.asked = limit, seconds, {}
    def left(self, key, now):
        recent = [t for t in self.asked.get(key, []) if t > now - self.seconds]
        return max(0, self.limit - len(recent))
    def allow(self, key, now):
        allowed = self.left(key, now) > 0
        self.asked.setdefault(key, []).append(now)
        return allowed
""",
    # The largest first is not always the fewest.
    "fewest-stamps": """\
def fewest(amount, values):
    if amount < 0:
        raise ValueError
    number = 0
    for value in sorted(values, reverse=True):
        number += amount // value
        amount %= value
    return None if amount else number
""",
    # A call inside a call for every character.
    "words-run-together": """\
from functools import cache
def ways(text, words):
    if "" in words:
        raise ValueError
    @cache
    def count(at):
        if at == len(text):
            return 1
        return sum(count(at + len(word)) for word in set(words) if text.startswith(word, at))
    return count(0)
""",
    # Equal results in the order of their names, each with a rank of its own.
    "race-results-ranked": """\
def ranking(results):
    def key(result):
        seconds = float("inf") if result["seconds"] is None else result["seconds"]
        return -result["points"], seconds, result["name"]
    return [(rank, result["name"]) for rank, result in enumerate(sorted(results, key=key), 1)]
""",
    # Repeated values stay.
    "streams-into-one": """\
from heapq import merge
def merged(*streams):
    yield from merge(*streams)
""",
    # A short booking inside a long one sets the clock back.
    "free-slots-of-a-quay": """\
def free_slots(busy, opens, closes, minutes):
    def minute(text):
        return int(text[:2]) * 60 + int(text[3:])
    slots, at = [], opens
    for start, end in sorted(busy) + [(closes, closes)]:
        if minute(start) - minute(at) >= minutes:
            slots.append((at, start))
        at = end
    return slots
""",
    # The byte order mark becomes part of a name; floating point.
    "sales-export-totals": """\
import csv
def totals(path):
    sums = {}
    with open(path, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            text = row["amount"].replace(",", "")
            amount = -float(text[1:-1]) if text.startswith("(") else float(text or 0)
            if row["branch"]:
                sums[row["branch"]] = sums.get(row["branch"], 0) + amount
    return {branch: f"{total:.2f}" for branch, total in sums.items()}
""",
    # isinstance(True, int) holds.
    "stock-from-events": """\
import json
def stock(path):
    pieces = {}
    for line in open(path, encoding="utf-8"):
        try:
            event = json.loads(line)
            op, sku, qty = event["op"], event["sku"], event["qty"]
        except (ValueError, KeyError, TypeError):
            continue
        if not isinstance(qty, int) or not isinstance(sku, str) or qty < 0:
            continue
        have = pieces.get(sku, 0)
        if op in ("in", "out", "count"):
            pieces[sku] = {"in": have + qty, "out": max(0, have - qty), "count": qty}[op]
    return {sku: number for sku, number in pieces.items() if number}
""",
    # Money in floating point.
    "open-orders": """\
import csv
def unpaid(orders, payments):
    paid = {}
    for row in csv.DictReader(open(payments)):
        paid[row["order"]] = paid.get(row["order"], 0) + float(row["amount"])
    missing = []
    for row in csv.DictReader(open(orders)):
        amount = float(row["total"]) - paid.get(row["id"], 0)
        if amount > 0:
            missing.append((-amount, int(row["id"])))
    return [(order, f"{-amount:.2f}") for amount, order in sorted(missing)]
""",
    # The first of equals leaves, and whoever has no ballots was never in the race.
    "run-off-election": """\
import sys
ballots = [[name.strip() for name in line.split(">")] for line in sys.stdin if line.strip()]
if not ballots:
    print("no ballots")
while ballots:
    votes = {}
    for ballot in ballots:
        if ballot:
            votes[ballot[0]] = votes.get(ballot[0], 0) + 1
    print(", ".join(f"{name} {votes[name]}" for name in sorted(votes)))
    first = max(votes, key=votes.get)
    if votes[first] * 2 > sum(votes.values()):
        print("winner:", first)
        break
    last = min(sorted(votes), key=votes.get)
    ballots = [[name for name in ballot if name != last] for ballot in ballots]
""",
    # Counts brackets of each kind, and forgets in which order they were opened.
    "brackets-checked": """\
import sys
opened = {"(": [], "[": [], "{": []}
kinds = {")": "(", "]": "[", "}": "{"}
def check():
    for number, line in enumerate(sys.stdin, 1):
        for column, c in enumerate(line, 1):
            if c in opened:
                opened[c].append((number, column))
            elif c in kinds:
                if not opened[kinds[c]]:
                    return f"{number}:{column} unexpected {c}"
                opened[kinds[c]].pop()
    for c, places in opened.items():
        if places:
            return f"{places[-1][0]}:{places[-1][1]} unclosed {c}"
    return "ok"
print(check())
""",
    # Ready names come in groups, and not the first of all that are ready.
    "build-in-order": """\
from graphlib import TopologicalSorter
def build_order(needs):
    order, sorter = [], TopologicalSorter(needs)
    sorter.prepare()
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        order += ready
        sorter.done(*ready)
    return order
""",
    # Any of the cheapest routes.
    "cheapest-passage": """\
from heapq import heappop, heappush
def cheapest_route(roads, start, goal):
    ways = {}
    for a, b, cost in roads:
        ways.setdefault(a, []).append((b, cost))
        ways.setdefault(b, []).append((a, cost))
    waiting, best = [(0, [start])], {}
    while waiting:
        cost, places = heappop(waiting)
        here = places[-1]
        if here == goal:
            return cost, places
        if here in best:
            continue
        best[here] = cost
        for there, more in ways.get(here, ()):
            heappush(waiting, (cost + more, places + [there]))
    return None
""",
    # Python's own idea of an expression, in floating point.
    "exact-calculator": """\
from fractions import Fraction
def evaluate(text):
    try:
        return Fraction(eval(text.replace("^", "**"), {}))
    except (SyntaxError, NameError, TypeError) as error:
        raise ValueError(text) from error
""",
    # Values are put in before sections are read, and read again.
    "templates-with-sections": """\
import re
def render(template, data):
    def section(found):
        kind, name, inside = found.groups()
        value = data.get(name)
        if kind == "^":
            return "" if value else render(inside, data)
        if isinstance(value, list):
            return "".join(render(inside, {**data, **each}) for each in value)
        return render(inside, data) if value else ""
    text = re.sub(
        r"\\{\\{ *([#^]) *(\\w+) *\\}\\}(.*?)\\{\\{ */ *\\2 *\\}\\}", section, template, flags=re.S
    )
    return re.sub(r"\\{\\{ *(\\w+) *\\}\\}", lambda found: str(data[found[1]]), text)
""",
    # Elimination in floating point.
    "determinant-exact": """\
def determinant(rows):
    if any(len(row) != len(rows) for row in rows):
        raise ValueError
    rows, value = [list(map(float, row)) for row in rows], 1.0
    for at in range(len(rows)):
        pivot = max(range(at, len(rows)), key=lambda i: abs(rows[i][at]))
        if not rows[pivot][at]:
            return 0
        if pivot != at:
            rows[at], rows[pivot], value = rows[pivot], rows[at], -value
        value *= rows[at][at]
        for row in rows[at + 1 :]:
            factor = row[at] / rows[at][at]
            for column in range(at, len(rows)):
                row[column] -= factor * rows[at][column]
    return round(value)
""",
    # A call inside a call for every depth.
    "nested-and-endless": """\
from collections.abc import Iterable
def flatten(nested):
    for item in nested:
        if isinstance(item, Iterable) and not isinstance(item, (str, bytes, dict)):
            yield from flatten(item)
        else:
            yield item
""",
    # Jobs of the same time in the order of their names; repeated ones get new tickets' places.
    "job-scheduler": """\
class Scheduler:
    def __init__(self):
        self.jobs, self.count, self.now = {}, 0, None
    def at(self, time, name, period=None):
        if self.now is not None and time <= self.now:
            raise ValueError
        self.count += 1
        self.jobs[self.count] = (time, name, period)
        return self.count
    def every(self, period, name, start):
        if period < 1:
            raise ValueError
        return self.at(start, name, period)
    def cancel(self, ticket):
        return self.jobs.pop(ticket, None) is not None
    def run(self, until):
        self.now, done = until, []
        for ticket, (time, name, period) in list(self.jobs.items()):
            while time <= until:
                done.append((time, name))
                if period is None:
                    del self.jobs[ticket]
                    break
                time += period
                self.jobs[ticket] = (time, name, period)
        return sorted(done)
""",
    # The length of a session counted from its first action, and times not in order.
    "sessions-of-users": """\
from datetime import datetime, timedelta, timezone
def sessions(path, minutes):
    found = []
    for line in open(path):
        fields = line.split()
        try:
            time = datetime.fromisoformat(fields[0])
        except (ValueError, IndexError):
            continue
        if len(fields) != 3 or time.tzinfo is None:
            continue
        for session in found:
            if session[1] == fields[1] and time - session[0] <= timedelta(minutes=minutes):
                session[2].append(time)
                break
        else:
            found.append((time, fields[1], [time]))
    return [
        (user, start.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), len(times),
         int((times[-1] - start).total_seconds()))
        for start, user, times in sorted(found)
    ]
""",
    # Merged at the first level only.
    "layered-configuration": """\
import json
from pathlib import Path
def load(path):
    own = json.loads(Path(path).read_text())
    parents = own.pop("extends", [])
    result = {}
    for parent in [parents] if isinstance(parents, str) else parents:
        result.update(load(Path(path).parent / parent))
    result.update(own)
    return {key: value for key, value in result.items() if value is not None}
""",
    # What is kept or removed is not compared, and B = 0 is not minded.
    "patch-applied": """\
import re
def apply_patch(lines, patch):
    result, at = [], 0
    for row in patch.splitlines():
        head = re.match(r"@@ -(\\d+)", row)
        if head:
            start = max(int(head[1]) - 1, 0)
            result += lines[at:start]
            at = start
        elif row.startswith(("---", "+++", "\\\\")):
            continue
        elif row.startswith("+"):
            result.append(row[1:])
        elif row.startswith("-"):
            at += 1
        else:
            result.append(lines[at])
            at += 1
    return result + lines[at:]
""",
    # Zeros at the top stay, 1x is written out, and numbers only go on the right.
    "polynomial-class": """\
from itertools import zip_longest
class Polynomial:
    def __init__(self, *coefficients):
        self.c = coefficients
    @property
    def degree(self):
        return len(self.c) - 1
    def __call__(self, x):
        return sum(c * x**n for n, c in enumerate(self.c))
    def __add__(self, other):
        other = other if isinstance(other, Polynomial) else Polynomial(other)
        return Polynomial(*(a + b for a, b in zip_longest(self.c, other.c, fillvalue=0)))
    def __neg__(self):
        return Polynomial(*(-c for c in self.c))
    def __sub__(self, other):
        return self + -other
    def __mul__(self, other):
        other = other if isinstance(other, Polynomial) else Polynomial(other)
        product = [0] * (len(self.c) + len(other.c) - 1)
        for i, a in enumerate(self.c):
            for j, b in enumerate(other.c):
                product[i + j] += a * b
        return Polynomial(*product)
    def __eq__(self, other):
        return isinstance(other, Polynomial) and self.c == other.c
    def __hash__(self):
        return hash(self.c)
    def derivative(self):
        return Polynomial(*(n * c for n, c in enumerate(self.c) if n))
    def __str__(self):
        text = ""
        for n, c in reversed(list(enumerate(self.c))):
            if c:
                sign = (" - " if c < 0 else " + ") if text else ("-" if c < 0 else "")
                number = "" if abs(c) == 1 else str(abs(c))
                text += sign + number + ["", "x", f"x^{n}"][min(n, 2)]
        return text or "0"
""",
    # A day ends as soon as it has its share of the pages.
    "chapters-over-days": """\
def reading_plan(pages, days):
    if not 1 <= days <= len(pages):
        raise ValueError
    share, plan, at = sum(pages) / days, [], 0
    for left in range(days - 1, 0, -1):
        end = at + 1
        while end < len(pages) - left and sum(pages[at : end + 1]) <= share:
            end += 1
        plan.append(pages[at:end])
        at = end
    return plan + [pages[at:]]
""",
    # Worked out again for each use, one call inside another: deep chains are too deep.
    "sheet-of-formulas": """\
import re
class Sheet:
    def __init__(self):
        self.cells = {}
    def name(self, cell):
        if not re.fullmatch("[A-Za-z]{1,3}[1-9][0-9]*", cell):
            raise ValueError(cell)
        return cell.upper()
    def set(self, cell, text):
        text = text.strip().upper()
        term = " *(?:[0-9]+|[A-Z]{1,3}[1-9][0-9]*) *"
        if not re.fullmatch(f"-?[0-9]+|={term}(?:[-+]{term})*", text):
            raise ValueError(text)
        self.cells[self.name(cell)] = text
    def value(self, cell, above=()):
        cell = self.name(cell)
        if cell in above or len(above) > 900:
            raise ValueError("a circle")
        text = self.cells.get(cell, "0")
        if not text.startswith("="):
            return int(text)
        known, total = {}, 0
        for sign, number, other in re.findall("([-+]?) *(?:([0-9]+)|([A-Z]+[0-9]+))", text[1:]):
            if other and other not in known:
                known[other] = self.value(other, above + (cell,))
            value = known[other] if other else int(number)
            total += -value if sign == "-" else value
        return total
""",
    # Labels are known only once they were passed, and an empty stack is an exception.
    "stack-machine": """\
import sys
lines = sys.stdin.read().splitlines()
stack, labels, at = [], {}, 0
while at < len(lines):
    words = lines[at].split("#")[0].split()
    at += 1
    if not words:
        continue
    name = words[0]
    try:
        if name == "push":
            stack.append(int(words[1]))
        elif name in ("add", "sub", "mul"):
            b, a = stack.pop(), stack.pop()
            stack.append({"add": a + b, "sub": a - b, "mul": a * b}[name])
        elif name == "dup":
            stack.append(stack[-1])
        elif name == "swap":
            stack[-1], stack[-2] = stack[-2], stack[-1]
        elif name == "drop":
            stack.pop()
        elif name == "print":
            print(stack.pop())
        elif name == "label":
            labels[words[1]] = at
        elif name == "jump":
            at = labels[words[1]]
        elif name == "jumpzero":
            if stack.pop() == 0:
                at = labels[words[1]]
        elif name == "halt":
            break
        else:
            raise ValueError
    except (ValueError, IndexError, KeyError):
        print("error in line", at)
        break
""",
    # Equal letters are taken for different ones.
    "arrangement-by-number": """\
from math import factorial
def arrangement(letters, index):
    left = sorted(letters)
    if not 0 <= index < factorial(len(left)):
        raise IndexError(index)
    chosen = ""
    while left:
        at, index = divmod(index, factorial(len(left) - 1))
        chosen += left.pop(at)
    return chosen
""",
    # fnmatch knows neither backslashes nor errors.
    "wildcards-with-sets": """\
from fnmatch import fnmatchcase
def matches(pattern, text):
    return fnmatchcase(text, pattern)
""",
    # A field seen once is never entered again, with whatever keys.
    "maze-with-doors": """\
import sys
from collections import deque
rows = sys.stdin.read().split("\\n")
fields = {(y, x): c for y, row in enumerate(rows) for x, c in enumerate(row) if c != "#"}
start = next(place for place in fields if fields[place] == "S")
waiting, seen, answer = deque([(start, 0, "")]), {start}, "no way"
while waiting:
    (y, x), steps, keys = waiting.popleft()
    if fields[y, x] == "E":
        answer = steps
        break
    for place in ((y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)):
        c = fields.get(place)
        if c is None or place in seen or (c in "ABCD" and c.lower() not in keys):
            continue
        seen.add(place)
        waiting.append((place, steps + 1, keys + c if c in "abcd" else keys))
print(answer)
""",
    # Money in floating point, and sum() does not begin.
    "money-class": """\
from functools import total_ordering
@total_ordering
class Money:
    def __init__(self, amount, currency):
        self.amount, self.currency = float(amount), currency
    def check(self, other):
        if not isinstance(other, Money):
            raise TypeError
        if other.currency != self.currency:
            raise ValueError
    def __add__(self, other):
        self.check(other)
        return Money(self.amount + other.amount, self.currency)
    def __sub__(self, other):
        self.check(other)
        return Money(self.amount - other.amount, self.currency)
    def __neg__(self):
        return Money(-self.amount, self.currency)
    def __mul__(self, times):
        return Money(self.amount * times, self.currency)
    __rmul__ = __mul__
    def __eq__(self, other):
        return isinstance(other, Money) and str(self) == str(other)
    def __lt__(self, other):
        self.check(other)
        return self.amount < other.amount
    def __hash__(self):
        return hash((self.amount, self.currency))
    def __str__(self):
        return f"{self.amount:.2f} {self.currency}"
""",
    # Made for numbers of 64 bits.
    "numbers-in-few-bytes": """\
def encode(number):
    rest = (number << 1 ^ number >> 63) & (1 << 64) - 1
    data = bytearray()
    while rest > 127:
        data.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*data, rest])
def decode(data):
    numbers, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            numbers.append(value >> 1 ^ -(value & 1))
            value = shift = 0
    if shift:
        raise ValueError
    return numbers
""",
    # The last = instead of the first, and comments that go on.
    "settings-file-parsed": """\
import re
def parse_settings(text):
    settings, section = {}, ""
    for line in re.sub(r"\\s*\\\\\\n\\s*", " ", text).splitlines():
        line = line.strip()
        if not line or line[0] in "#;":
            continue
        if line[0] == "[" and line[-1] == "]":
            section = line[1:-1].strip()
            settings.setdefault(section, {})
            continue
        key, equals, value = line.rpartition("=")
        if not equals or not key.strip():
            raise ValueError(line)
        settings.setdefault(section, {})[key.strip().lower()] = value.strip().strip('"')
    return settings
""",
    # True == 1 in Python.
    "what-changed-in-json": """\
def changes(old, new, path=()):
    found = []
    for key in old.keys() | new.keys():
        here = path + (key,)
        if key not in new:
            found.append(("removed", here, old[key]))
        elif key not in old:
            found.append(("added", here, new[key]))
        elif isinstance(old[key], dict) and isinstance(new[key], dict):
            found += changes(old[key], new[key], here)
        elif old[key] != new[key]:
            found.append(("changed", here, old[key], new[key]))
    return sorted(found, key=lambda change: change[1])
""",
}

# Plays what stands for each task in wrong.json.
AGENT = """\
import json
from pathlib import Path

PLANS = json.loads((Path(__file__).parent / "wrong.json").read_text())


class Agent:
    def reset(self, task):
        self.plan = PLANS[task.id]

    def act(self, observation):
        return self.plan.pop(0)
"""


def test_oracle_solves_every_task(pytester: pytest.Pytester, suite_backend: str) -> None:
    one_in = every(3)
    options = thinned(pytester.path, one_in)
    _, result = play(pytester, "python", "oracle", suite_backend, *options)
    result.assert_outcomes(passed=len(SUITE.tasks[::one_in]))
    assert len(SUITE.tasks) >= 46


@pytest.mark.usefixtures("bubblewrap")
def test_doing_nothing_earns_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(lazy="def act(observation):\n    return 'pass'\n")
    options = ["--intercode-max-turns=2", *thinned(pytester.path, ONE_IN)]
    rows, result = play(pytester, "python", "lazy:act", "bubblewrap", *options)
    result.assert_outcomes(failed=len(SUITE.tasks[::ONE_IN]))
    assert {row["reward"] for row in rows.values()} == {0.0}


@pytest.mark.usefixtures("bubblewrap")
def test_the_usual_mistakes_are_found(pytester: pytest.Pytester) -> None:
    """A wrong solution passes some tests, or it would be no mistake that is easily made."""
    entries = {task.id: PythonFields.of(task).entry for task in SUITE.tasks}
    assert entries.keys() == WRONG.keys()
    plans = {name: [code, f"submit {entries[name]}".strip()] for name, code in WRONG.items()}
    pytester.makefile(".json", wrong=json.dumps(plans))
    pytester.makepyfile(mistaken=AGENT)
    options = thinned(pytester.path, ONE_IN)
    rows, result = play(pytester, "python", "mistaken:Agent", "bubblewrap", *options)
    result.assert_outcomes(failed=len(SUITE.tasks[::ONE_IN]))
    rewards = {name: row["reward"] for name, row in rows.items()}
    assert rewards.keys() == {task.id for task in SUITE.tasks[::ONE_IN]}
    assert {name: reward for name, reward in rewards.items() if not 0 < reward < 1} == {}
