// How the bytes of a segment become rows that end with their stamps.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { stampRows, withoutRows } from '../../src/clickhouse/stamps.js';
import fc from '../support/fast-check.js';

const stamped = (segment: string) => stampRows(Buffer.from(segment)).bytes.toString();

test('ends every row with the stamps of the commit above it', () => {
  assert.equal(
    stamped(',9,0,"1.5"]\n["",0\n,9,1,"1.5"]\n["a",0\n["b",1\n,9,2,"1.6"]\n["c",0\n'),
    '["",0,9,0,"1.5"]\n["a",0,9,1,"1.5"]\n["b",1,9,1,"1.5"]\n["c",0,9,2,"1.6"]\n',
  );
});

test('does not mistake a comma, bracket or dollar sign in a row for its end, and keeps every byte', () => {
  const row = `[${JSON.stringify('\n, ],\n[ $& $1 ü 🧀 \u2028')},3`;
  assert.equal(stamped(`,9,1,"1.5"]\n${row}\n${row}\n`), `${row},9,1,"1.5"]\n${row},9,1,"1.5"]\n`);
});

test('leaves rows without stamps above them as they are', () => {
  assert.equal(stamped('["a",0,9,1,"1.5"]\n'), '["a",0,9,1,"1.5"]\n');
  assert.equal(stamped('["a",9]\n["b",9]\n,7]\n["c"\n'), '["a",9]\n["b",9]\n["c",7]\n');
});

test('accepts stamps without rows, left by a commit whose rows were all taken out', () => {
  assert.equal(stamped(',1]\n,2]\n["a"\n,3]\n'), '["a",2]\n');
});

test('refuses a segment that ends within a line', () => {
  for (const segment of ['', ',9,1', ',9]\n["a"']) assert.throws(() => stamped(segment), /within a line/);
});

test('returns the rows of any commits in their order, complete or without some of them', () => {
  const commits = fc.array(fc.array(fc.string({ unit: 'binary' }), { maxLength: 5 }), {
    minLength: 1,
    maxLength: 6,
  });
  fc.assert(
    fc.property(commits, fc.infiniteStream(fc.boolean()), (texts, takes) => {
      const rows = texts.flatMap((commit, number) =>
        commit.map((text) => [text.toWellFormed(), number] as const),
      );
      const taken = new Set(rows.flatMap((_, index) => (takes.next().value ? [index] : [])));
      const segment = Buffer.from(
        texts
          .map(
            (commit, number) =>
              `,${number}]\n${commit.map((text) => `[${JSON.stringify(text.toWellFormed())}\n`).join('')}`,
          )
          .join(''),
      );
      const read = (bytes: Buffer) =>
        stampRows(bytes)
          .bytes.toString()
          .split('\n')
          .slice(0, -1)
          .map((line) => JSON.parse(line) as unknown);
      assert.deepEqual(read(segment), rows);
      assert.deepEqual(
        read(withoutRows(segment, taken)),
        rows.filter((_, index) => !taken.has(index)),
      );
    }),
  );
});

test('counts the rows, and accepts stamps of any length', () => {
  const stamps = `,${'9'.repeat(500)}]\n`;
  const rows = Array.from({ length: 100 }, (_, row) => `["r${row}"`);
  const { bytes, rows: count } = stampRows(Buffer.from(`${stamps}${rows.join('\n')}\n`));
  assert.equal(count, 100);
  assert.equal(bytes.toString(), rows.map((row) => row + stamps).join(''));
});
