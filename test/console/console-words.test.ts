// Sentences of the console that combine several facts.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { imbalanceOf } from '../../src/console/words.js';

test('the books say how many records are missing and how many are surplus, even if the two numbers are equal', () => {
  assert.equal(imbalanceOf([5, 0, 1]), '6 records are missing');
  assert.equal(imbalanceOf([-1]), '1 record is too many');
  assert.equal(imbalanceOf([5, -5]), '5 records are missing and 5 records are too many');
});
