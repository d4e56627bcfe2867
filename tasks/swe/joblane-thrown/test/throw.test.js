'use strict';

const test = require('node:test');
const assert = require('node:assert/strict');
const { Lane } = require('../lib/index.js');

const fail = () => {
  throw new Error('thrown at once');
};

// settled(promise): what came of it, or "nothing" if it takes longer than a moment
function settled(promise) {
  let timer;
  const late = new Promise((resolve) => {
    timer = setTimeout(resolve, 300, 'nothing');
  });
  const outcome = promise.then(
    (value) => `value ${value}`,
    (error) => `error ${error.message}`,
  );
  return Promise.race([outcome, late]).finally(() => clearTimeout(timer));
}

test('the promise of a job that throws is rejected', async () => {
  assert.equal(await settled(new Lane().add(fail)), 'error thrown at once');
});

test('a job that throws first does not stop the lane', async () => {
  const lane = new Lane();
  const first = settled(lane.add(fail));
  const second = settled(lane.add(async () => 2));
  assert.deepEqual([await first, await second], ['error thrown at once', 'value 2']);
});

test('a job that throws after having waited does not stop the lane', async () => {
  const lane = new Lane({ concurrency: 2 });
  const jobs = [async () => 1, async () => 2, fail, fail, fail, async () => 6];
  const outcomes = await Promise.all(jobs.map((job) => settled(lane.add(job))));
  assert.deepEqual(outcomes, [
    'value 1',
    'value 2',
    'error thrown at once',
    'error thrown at once',
    'error thrown at once',
    'value 6',
  ]);
});

test('a job may return a value that is no promise', async () => {
  const lane = new Lane();
  const outcomes = await Promise.all([
    settled(lane.add(() => 7)),
    settled(lane.add(() => undefined)),
    settled(lane.add(() => null)),
    settled(lane.add(async () => 'after')),
  ]);
  assert.deepEqual(outcomes, ['value 7', 'value undefined', 'value null', 'value after']);
});

test('a job may return something else that has a then', async () => {
  const thenable = { then: (resolve) => setTimeout(resolve, 1, 'later') };
  assert.equal(await settled(new Lane().add(() => thenable)), 'value later');
});

test('what is no function is an error of that job', async () => {
  const lane = new Lane();
  const first = settled(lane.add('no function'));
  const second = settled(lane.add(async () => 2));
  assert.match(await first, /^error /);
  assert.equal(await second, 'value 2');
});

test('the lane is idle after jobs that threw', async () => {
  const lane = new Lane();
  lane.add(fail).catch(() => {});
  lane.add(fail).catch(() => {});
  assert.equal(await settled(lane.idle()), 'value undefined');
});

test('a job begins as soon as there is room for it', () => {
  const lane = new Lane();
  let begun = false;
  lane.add(async () => {
    begun = true;
  });
  assert.equal(begun, true);
});
