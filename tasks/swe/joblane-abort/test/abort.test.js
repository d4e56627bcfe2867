'use strict';

const test = require('node:test');
const assert = require('node:assert/strict');
const { getEventListeners } = require('node:events');
const { setTimeout: sleep } = require('node:timers/promises');
const { Lane } = require('../lib/index.js');

// busy(lane): takes a place of the lane until the function that is returned is called
function busy(lane) {
  let open;
  lane.add(() => new Promise((resolve) => {
    open = resolve;
  }));
  return open;
}

// outcome(promise): what came of it, "pending" if nothing within 500 ms
function outcome(promise) {
  let timer;
  const late = new Promise((resolve) => {
    timer = setTimeout(resolve, 500, 'pending');
  });
  const settled = promise.then(
    (value) => `value ${value}`,
    (error) => `error ${error.message ?? error}`,
  );
  return Promise.race([settled, late]).finally(() => clearTimeout(timer));
}

// gate(): a promise, "passed", and what fulfils it, "open"
function gate() {
  let open;
  const passed = new Promise((resolve) => {
    open = resolve;
  });
  return { passed, open };
}

test('a job that waits is given up at once', async () => {
  const lane = new Lane();
  const open = busy(lane);
  const controller = new AbortController();
  let begun = false;
  const job = lane.add(() => {
    begun = true;
  }, { signal: controller.signal });
  assert.equal(lane.size, 1);
  controller.abort(new Error('not needed'));
  assert.equal(await outcome(job), 'error not needed');
  assert.equal(lane.size, 0);
  open();
  assert.equal(await outcome(lane.idle()), 'value undefined');
  assert.equal(begun, false);
});

test('the reason is that of the signal', async () => {
  const lane = new Lane();
  busy(lane);
  const controller = new AbortController();
  const job = lane.add(async () => {}, { signal: controller.signal });
  controller.abort();
  await assert.rejects(job, { name: 'AbortError' });
  const other = new AbortController();
  const second = lane.add(async () => {}, { signal: other.signal });
  other.abort('enough');
  assert.equal(await outcome(second), 'error enough');
});

test('a signal that is aborted already', async () => {
  const lane = new Lane();
  let begun = false;
  const job = lane.add(() => {
    begun = true;
  }, { signal: AbortSignal.abort(new Error('too late')) });
  assert.equal(await outcome(job), 'error too late');
  assert.equal(begun, false);
  assert.equal(await outcome(lane.idle()), 'value undefined');
});

test('a job that runs is told, and its promise is rejected at once', async () => {
  const lane = new Lane();
  const controller = new AbortController();
  const begun = gate();
  const end = gate();
  let told;
  const job = lane.add(async ({ signal }) => {
    signal.addEventListener('abort', () => {
      told = signal.reason.message;
    });
    begun.open();
    await end.passed;
    return 'done all the same';
  }, { signal: controller.signal });
  await begun.passed;
  controller.abort(new Error('stop'));
  assert.equal(told, 'stop');
  assert.equal(await outcome(job), 'error stop');
  end.open();
});

test('a job that runs keeps its place until it ends', async () => {
  const lane = new Lane();
  const controller = new AbortController();
  const begun = gate();
  const end = gate();
  const order = [];
  const first = lane.add(async () => {
    begun.open();
    await end.passed;
    order.push('first ends');
  }, { signal: controller.signal });
  const second = lane.add(async () => order.push('second begins'));
  await begun.passed;
  controller.abort();
  await outcome(first);
  await sleep(5);
  end.open();
  await second;
  assert.deepEqual(order, ['first ends', 'second begins']);
});

test('idle waits for a job that was given up while it ran', async () => {
  const lane = new Lane();
  const controller = new AbortController();
  const end = gate();
  let ended = false;
  const job = lane.add(async () => {
    await end.passed;
    ended = true;
  }, { signal: controller.signal });
  controller.abort();
  await outcome(job);
  setTimeout(end.open, 5);
  await lane.idle();
  assert.equal(ended, true);
});

test('no further try after it is given up', async () => {
  const lane = new Lane();
  const controller = new AbortController();
  const begun = gate();
  const end = gate();
  let tried = 0;
  const job = lane.add(async () => {
    tried += 1;
    begun.open();
    await end.passed;
    throw new Error('failed');
  }, { signal: controller.signal, retries: 5, delay: 1 });
  await begun.passed;
  controller.abort(new Error('enough'));
  assert.equal(await outcome(job), 'error enough');
  end.open();
  await lane.idle();
  await sleep(30);
  assert.equal(tried, 1);
});

test('a job that waits for its next try is given up at once', async () => {
  const lane = new Lane();
  const controller = new AbortController();
  let tried = 0;
  const job = lane.add(async () => {
    tried += 1;
    throw new Error('failed');
  }, { signal: controller.signal, retries: 5, delay: 10000 });
  await sleep(10);
  controller.abort(new Error('enough'));
  assert.equal(await outcome(job), 'error enough');
  assert.equal(await outcome(lane.idle()), 'value undefined');
  assert.equal(tried, 1);
});

test('a job that waits again after a failed try is given up', async () => {
  const lane = new Lane();
  const controller = new AbortController();
  let tried = 0;
  const job = lane.add(async () => {
    tried += 1;
    throw new Error('failed');
  }, { signal: controller.signal, retries: 5, delay: 200 });
  await sleep(1);
  const open = busy(lane);
  for (let looks = 0; lane.size === 0 && looks < 5000; looks += 1) await sleep(1);
  assert.equal(lane.size, 1);
  controller.abort(new Error('enough'));
  assert.equal(await outcome(job), 'error enough');
  assert.equal(lane.size, 0);
  open();
  await lane.idle();
  assert.equal(tried, 1);
});

test('the others keep their order', async () => {
  const lane = new Lane();
  const open = busy(lane);
  const order = [];
  const controllers = [];
  const jobs = [];
  for (let at = 0; at < 60; at += 1) {
    const controller = new AbortController();
    controllers.push(controller);
    const options = { priority: (at * 7) % 5, signal: controller.signal };
    jobs.push(outcome(lane.add(() => order.push(at), options)));
  }
  for (const at of [0, 59, 4, 31, 30, 17, 18, 45, 2]) controllers[at].abort('gone');
  assert.equal(lane.size, 51);
  open();
  await Promise.all(jobs);
  const expected = Array.from({ length: 60 }, (_, at) => at)
    .filter((at) => !controllers[at].signal.aborted)
    .sort((a, b) => ((b * 7) % 5) - ((a * 7) % 5) || a - b);
  assert.deepEqual(order, expected);
});

test('one signal for many jobs', async () => {
  const lane = new Lane({ concurrency: 2 });
  const controller = new AbortController();
  const { signal } = controller;
  const jobs = Array.from({ length: 6 }, () => lane.add(() => sleep(20), { signal }));
  const other = lane.add(async () => 'other');
  const outcomes = Promise.all(jobs.map(outcome));
  controller.abort(new Error('all'));
  assert.deepEqual(await outcomes, Array(6).fill('error all'));
  assert.equal(await outcome(other), 'value other');
});

test('no listeners are left on a signal', async () => {
  const lane = new Lane();
  const { signal } = new AbortController();
  for (let at = 0; at < 3; at += 1) await lane.add(async () => at, { signal });
  const failed = lane.add(async () => {
    throw new Error('failed');
  }, { signal, retries: 1, delay: 1 });
  await assert.rejects(failed, /failed/);
  assert.equal(getEventListeners(signal, 'abort').length, 0);
});

test('an abort after the end changes nothing', async () => {
  const lane = new Lane();
  const controller = new AbortController();
  const job = lane.add(async () => 'done', { signal: controller.signal });
  assert.equal(await job, 'done');
  controller.abort();
  assert.equal(await outcome(job), 'value done');
  assert.equal(await lane.add(async () => 'next'), 'next');
});

test('jobs without a signal', async () => {
  assert.equal(await new Lane().add(({ signal }) => String(signal)), 'undefined');
});
