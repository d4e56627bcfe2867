'use strict';

const test = require('node:test');
const assert = require('node:assert/strict');
const { execFileSync } = require('child_process');
const fs = require('fs');
const os = require('os');
const path = require('path');

const LIBRARY = path.join(__dirname, '..', 'lib', 'index.js');

// A spool as version 0.4 wrote it: "mail/1" with {"to":"Zoë"}
const OLD_NAME = '6d61696c2f31';
const OLD_FILE = '0000000de2bf6d807b22746f223a225a6fc3ab227d';

function temporary() {
  return path.join(fs.mkdtempSync(path.join(os.tmpdir(), 'joblane-')), 'spool');
}

// strictly(folder, code): runs code with a spool, every deprecation an error; its output
function strictly(folder, code) {
  const program = `const { Spool } = require(${JSON.stringify(LIBRARY)});
    const spool = new Spool(${JSON.stringify(folder)});
    const print = (value) => console.log(JSON.stringify(value));
    ${code}`;
  const flags = ['--throw-deprecation', '--pending-deprecation'];
  return execFileSync(process.execPath, [...flags, '-e', program], {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
  });
}

test('a spool is written without deprecated calls', () => {
  const folder = temporary();
  strictly(folder, `spool.put('mail/1', { to: 'Zoë' })`);
  const file = fs.readFileSync(path.join(folder, OLD_NAME));
  assert.equal(file.toString('hex'), OLD_FILE);
});

test('a spool of before is read without deprecated calls', () => {
  const folder = temporary();
  fs.mkdirSync(folder, { recursive: true });
  fs.writeFileSync(path.join(folder, OLD_NAME), Buffer.from(OLD_FILE, 'hex'));
  const shown = strictly(folder, `print(spool.names()); print(spool.get('mail/1'))`);
  assert.equal(shown, '["mail/1"]\n{"to":"Zoë"}\n');
});

test('every job is done without deprecated calls', () => {
  const folder = temporary();
  const shown = strictly(folder, `
    for (const name of ['7', 'ü', '']) spool.put(name + 'x', name);
    spool.done('7x');
    print(spool.names().map((name) => spool.get(name)));
  `);
  assert.equal(shown, '["","ü"]\n');
});

test('a spool is cleared without deprecated calls', () => {
  const folder = temporary();
  strictly(folder, `spool.put('x', [1]); spool.put('y', 'z'.repeat(100000)); spool.clear()`);
  assert.equal(fs.existsSync(folder), false);
});

test('a spool that is gone cannot be cleared', () => {
  const folder = temporary();
  const shown = strictly(folder, `
    spool.clear();
    try { spool.clear(); print('nothing') } catch (error) { print(error.code) }
  `);
  assert.equal(shown, '"ENOENT"\n');
});

test('damage is found without deprecated calls', () => {
  const folder = temporary();
  fs.mkdirSync(folder, { recursive: true });
  const damaged = OLD_FILE.replace('5a6f', '5a70');
  fs.writeFileSync(path.join(folder, OLD_NAME), Buffer.from(damaged, 'hex'));
  const shown = strictly(folder, `
    try { spool.get('mail/1') } catch (error) { print(error.message) }
  `);
  assert.equal(shown, '"mail/1 is damaged"\n');
});
