// The form of a user_id: the text that the client library makes.

import { userIdMax } from './limits.js';

export const userIdForm = /^(?:0|[1-9][0-9]{0,15})$/;

/** Whether `text` is the canonical decimal form of an integer from 0 to 2^53 - 1. */
export function isUserId(text: string): boolean {
  return userIdForm.test(text) && (text.length < 16 || Number(text) <= userIdMax);
}
