// Whether all is well, and what needs attention.

import type { Answer } from '../api.js';
import { soonDays } from '../parts/case.js';
import { amountText, durationText, today } from '../parts/parts.js';
import { useResource } from '../parts/resource.js';
import { onLink } from '../router.js';
import { may } from '../session.js';

type OverviewOf = Answer<'showOverview'>;

/** Shows nothing of an old answer, which says nothing about the present. */
export function Wellness(props: {
  readonly overview: OverviewOf;
  readonly isOld: boolean;
  /** The path of the account. */
  readonly path: string;
}) {
  const { overview, isOld, path } = props;
  const { problems, queryable_seconds: seconds, deletions } = overview;
  const tone = isOld ? 'unknown' : problems.length === 0 ? 'good' : 'bad';
  return (
    <section class={`card wellness ${tone}`} aria-label="State">
      {isOld ? (
        <p class="sentence" role="status">
          Whether all is well is not known now.
        </p>
      ) : problems.length === 0 ? (
        <p class="sentence" role="status">
          All is well: records are accepted and stored.
        </p>
      ) : (
        <p class="sentence" role="alert">
          Not all is well: {problems.join('; ')}.
        </p>
      )}
      <p>
        {seconds > 0 && `A record can be queried ${secondsText(seconds)} after it is accepted. `}
        {deletions.pending === 0 ? (
          'No deletion is pending.'
        ) : (
          <a href="/deletions" onClick={onLink}>
            {pendingText(deletions)}
          </a>
        )}
      </p>
      {may('listCases') && <DueCases path={path} />}
      {may('listProposals') && <Proposed path={path} />}
    </section>
  );
}

const deskEveryMs = 60_000;
/** The cases that are overdue, and those that are due soon. */
function DueCases({ path }: { readonly path: string }) {
  const { data = [] } = useResource<'listCases'>(`${path}/cases`, deskEveryMs);
  const soon = today(soonDays);
  const late = data.filter(({ due_on }) => due_on < today()).length;
  const near = data.filter(({ due_on }) => due_on <= soon).length - late;
  if (late + near === 0) return null;
  return (
    <p>
      <a href="/cases" onClick={onLink}>
        {late > 0 && <span class="chip bad">{amountText(late, 'case is late', 'cases are late')}</span>}
        {late > 0 && near > 0 && ' '}
        {near > 0 && `${amountText(near, 'case is', 'cases are')} due within ${soonDays} days.`}
      </a>
    </p>
  );
}

/** Deletions that wait for a second privacy officer. */
function Proposed({ path }: { readonly path: string }) {
  const { data = [] } = useResource<'listProposals'>(`${path}/deletion_proposals`, deskEveryMs);
  if (data.length === 0) return null;
  return (
    <p>
      <a href="/deletions" onClick={onLink}>
        {amountText(data.length, 'deletion waits', 'deletions wait')} for a second privacy officer.
      </a>
    </p>
  );
}

function pendingText({ pending, oldest_at }: OverviewOf['deletions']): string {
  const age = durationText((Date.now() - Date.parse(oldest_at ?? '')) / 1000);
  return pending === 1
    ? `1 deletion is pending, submitted ${age} ago.`
    : `${pending.toLocaleString()} deletions are pending; the oldest was submitted ${age} ago.`;
}

function secondsText(seconds: number): string {
  return `${seconds.toLocaleString(undefined, { maximumFractionDigits: seconds < 10 ? 1 : 0 })} s`;
}
