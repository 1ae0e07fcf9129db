// Sentences of the console that combine several facts.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { callerText, imbalanceOf } from '../../src/console/words.js';

test('the books say how many records are missing and how many are surplus, even if the two numbers are equal', () => {
  assert.equal(imbalanceOf([5, 0, 1]), '6 records are missing');
  assert.equal(imbalanceOf([-1]), '1 record is too many');
  assert.equal(imbalanceOf([5, -5]), '5 records are missing and 5 records are too many');
});

test('a program that opened a case is not shown by a fingerprint alone', () => {
  for (const [name, text] of [
    ['0a1b2c3d', 'a program with ADMIN_TOKEN (0a1b2c3d)'],
    ['pk_1', 'a program with the key pk_1'],
    ['deadbeef@example.com', 'deadbeef@example.com'],
  ] as const)
    assert.equal(callerText(name), text);
});
