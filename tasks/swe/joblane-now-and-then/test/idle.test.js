'use strict';

const test = require('node:test');
const assert = require('node:assert/strict');
const { setTimeout: sleep } = require('node:timers/promises');
const { Lane } = require('../lib/index.js');

function failing(times) {
  let tried = 0;
  return async () => {
    tried += 1;
    if (tried <= times) throw new Error(`try ${tried}`);
    return tried;
  };
}

test('idle waits for the only job to be tried again', async () => {
  const lane = new Lane();
  let done = false;
  lane.add(failing(1), { retries: 1, delay: 30 }).then(() => {
    done = true;
  });
  await lane.idle();
  assert.equal(done, true);
});

test('idle waits for every further try', async () => {
  const lane = new Lane({ concurrency: 3 });
  const results = [];
  for (const delay of [5, 20, 10]) {
    lane.add(failing(2), { retries: 2, delay }).then((tried) => results.push(tried));
  }
  await lane.idle();
  assert.deepEqual(results, [3, 3, 3]);
});

test('idle waits for a job that fails for good', async () => {
  const lane = new Lane();
  let seen;
  lane.add(failing(9), { retries: 2, delay: 5 }).catch((error) => {
    seen = error.message;
  });
  await lane.idle();
  assert.equal(seen, 'try 3');
});

test('idle asked for while a job waits for its next try', async () => {
  const lane = new Lane();
  let done = false;
  lane.add(failing(1), { retries: 1, delay: 60 }).then(() => {
    done = true;
  });
  await sleep(10);
  await lane.idle();
  assert.equal(done, true);
});

test('idle waits for jobs that are added meanwhile', async () => {
  const lane = new Lane();
  const order = [];
  lane.add(failing(1), { retries: 1, delay: 200 }).then(() => order.push('again'));
  const idle = lane.idle().then(() => order.push('idle'));
  await sleep(5);
  lane.add(() => sleep(300)).then(() => order.push('slow'));
  await idle;
  assert.equal(order.at(-1), 'idle');
  assert.equal(order.length, 3);
});

test('a place is free while a job waits for its next try', async () => {
  const lane = new Lane();
  const order = [];
  const again = lane.add(failing(1), { retries: 1, delay: 40 }).then(() => order.push('again'));
  const quick = lane.add(async () => order.push('quick'));
  await Promise.all([again, quick]);
  assert.deepEqual(order, ['quick', 'again']);
});

test('a lane may become idle more than once', async () => {
  const lane = new Lane();
  for (let round = 1; round <= 3; round += 1) {
    let done = 0;
    lane.add(failing(1), { retries: 1, delay: 3 }).then(() => {
      done += 1;
    });
    await lane.idle();
    assert.equal(done, 1);
  }
  await lane.idle();
});
