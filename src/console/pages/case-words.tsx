// A case in words.

import { actionText } from '../commands.js';
import { type Case, soonDays } from '../parts/case.js';
import { amountText, dayOf, dayText, today } from '../parts/parts.js';

/** The day on which a case is due, and whether that is near or past. */
export function Due({ of: { due_on, state, closed_at } }: { readonly of: Case }) {
  const dayMs = 24 * 60 * 60 * 1000;
  const until = closed_at === undefined ? today() : dayOf(new Date(closed_at));
  const days = Math.round((Date.parse(due_on) - Date.parse(until)) / dayMs);
  const late = days < 0 ? `${amountText(-days, 'day')} late` : '';
  const soon = days === 0 ? 'today' : days === 1 ? 'tomorrow' : `in ${days} days`;
  return (
    <>
      {dayText(due_on)}{' '}
      {late !== '' ? (
        <span class="chip bad">{late}</span>
      ) : (
        state === 'open' && <span class={days <= soonDays ? 'chip warn' : 'muted'}>{soon}</span>
      )}
    </>
  );
}

/** What was done in a case, in words: `previewed a deletion, asked for an export (2)`. */
export function doneText({ done }: Case): string {
  return Object.entries(done)
    .map(([action, times]) => `${actionText(action)}${times === 1 ? '' : ` (${times.toLocaleString()})`}`)
    .join(', ');
}
