// Sentences of the console that are made of several facts.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { imbalanceOf } from '../../src/console/words.js';

test('books say what is missing and what is too many, also if the sums are equal', () => {
  assert.equal(imbalanceOf([5, 0, 1]), '6 records are missing');
  assert.equal(imbalanceOf([-1]), '1 record is too many');
  assert.equal(imbalanceOf([5, -5]), '5 records are missing and 5 records are too many');
});
