'use strict';

const test = require('node:test');
const assert = require('node:assert/strict');
const { Lane } = require('../lib/index.js');

const MANY = 60000;

// spent(): seconds of processor time that this process has used
function spent() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

// quickly(step): calls step(0), step(1)... and fails when the time is over
function quickly(step) {
  const end = spent() + 2;
  for (let at = 0; at < MANY; at += 1) {
    step(at);
    if (at % 200 === 0 && spent() > end) assert.fail(`only ${at} of ${MANY} in 2 s`);
  }
}

// opened(): a lane whose only place is taken until open() is called
function opened() {
  const lane = new Lane();
  let open;
  lane.add(() => new Promise((resolve) => {
    open = resolve;
  }));
  return { lane, open };
}

test('many jobs of the same priority', async () => {
  const { lane, open } = opened();
  let last = -1;
  let wrong = 0;
  quickly((at) => {
    lane.add(() => {
      if (at !== last + 1) wrong += 1;
      last = at;
    });
  });
  assert.equal(lane.size, MANY);
  const begun = spent();
  open();
  await lane.idle();
  assert.equal(wrong, 0);
  assert.equal(last, MANY - 1);
  assert.ok(spent() - begun < 2, 'they take too long to run');
});

test('many jobs of any priority', async () => {
  const { lane, open } = opened();
  const seen = [];
  quickly((at) => {
    const priority = (at * 7919) % 13;
    lane.add(() => seen.push(priority * 100000 - at), { priority });
  });
  open();
  await lane.idle();
  assert.equal(seen.length, MANY);
  const sorted = Float64Array.from(seen).sort().reverse();
  assert.ok(seen.every((value, at) => value === sorted[at]), 'they run out of order');
});

test('more urgent jobs come while others run', async () => {
  const lane = new Lane();
  const order = [];
  lane.add(() => {
    for (const [name, priority] of [['d', 1], ['b', 2], ['a', 3], ['c', 2]]) {
      lane.add(() => {
        order.push(name);
        if (name === 'b') lane.add(() => order.push('b2'), { priority: 9 });
      }, { priority });
    }
  });
  await lane.idle();
  assert.deepEqual(order, ['a', 'b', 'b2', 'c', 'd']);
});

test('a job that is tried again keeps its priority and its turn', async () => {
  const lane = new Lane();
  const order = [];
  let tried = 0;
  const again = lane.add(async () => {
    tried += 1;
    if (tried === 1) throw new Error('not yet');
    order.push('again');
  }, { retries: 1, delay: 1 });
  let open;
  const blocked = lane.add(() => new Promise((resolve) => {
    open = resolve;
  }));
  const later = ['x', 'y'].map((name) => lane.add(async () => order.push(name)));
  const urgent = lane.add(async () => order.push('urgent'), { priority: 1 });
  let looks = 0;
  const look = setInterval(() => {
    looks += 1;
    if (lane.size < 4 && looks < 5000) return; // the first one does not wait again yet
    clearInterval(look);
    open();
  }, 1);
  await Promise.all([again, blocked, ...later, urgent]);
  assert.deepEqual(order, ['urgent', 'again', 'x', 'y']);
});

test('priorities may be any numbers', async () => {
  const { lane, open } = opened();
  const order = [];
  for (const priority of [0, -Infinity, 0.5, Infinity, -1, Infinity, 1e300]) {
    lane.add(() => order.push(priority), { priority });
  }
  open();
  await lane.idle();
  assert.deepEqual(order, [Infinity, Infinity, 1e300, 0.5, 0, -1, -Infinity]);
});
