// A dry run: what a deletion would find.

import { StateNotLoaded } from '../../contract/errors.js';
import type { SubmitOptions } from '../../privacy/deletion/submit.js';
import { type TargetList, targetsOf } from '../../privacy/deletion/targets.js';
import { rowsOf } from '../../privacy/deletion/view.js';
import { audited } from '../../registry/audit/audit.js';
import type { Exchange } from '../protocol/exchange.js';
import { isOwnFault } from '../protocol/fault.js';
import { inDetails, type SubmissionOptions, type Submitter } from './submitter.js';
import { refuse } from './token-caller.js';

/** Answers with what a deletion would find. It reveals which users have rows, so it leaves a line in the audit log. */
export async function answerPreview(
  { audit, previews, log }: SubmissionOptions,
  exchange: Exchange,
  submission: SubmitOptions,
  { accountId, appId, actor, caseId }: Submitter,
  list: TargetList,
): Promise<void> {
  const targets = targetsOf(list);
  const find = () =>
    previews.preview(submission, accountId, targets).catch((error: unknown) => {
      if (error instanceof StateNotLoaded || isOwnFault(error)) throw error;
      log.warn({ error }, 'the preview of a deletion failed');
      return 'failed' as const;
    });
  const preview = await audited(
    audit,
    actor,
    {
      action: 'preview_deletion',
      account_id: accountId,
      app_id: appId,
      details: { users: targets.length, ...inDetails(caseId) },
    },
    find,
    {
      endingOf: (found) =>
        typeof found === 'string'
          ? { outcome: 'refused' }
          : { outcome: 'done', details: { users_found: found.usersFound } },
      outcomeOfError: () => 'refused',
    },
  );
  if (typeof preview === 'string') return refuse(exchange, 'overloaded', whyNoPreview[preview]);
  const { found, usersFound, unclear } = preview;
  const positions = new Map(list.map((target, position) => [target, position]));
  const listed = unclear.map(({ target, rows, similar }) => ({
    place: positions.get(target) ?? 0,
    found: rows !== '0',
    rows: Number(rows),
    similar,
  }));
  const body = {
    dry_run: true,
    users: targets.length,
    users_found: usersFound,
    rows: rowsOf(found),
    found,
    unclear: listed.sort((a, b) => a.place - b.place),
  };
  exchange.reply(200, JSON.stringify(body));
}

const whyNoPreview = {
  busy: 'Nothing was stored: too many dry runs at once.',
  too_long: 'Nothing was stored: the look-up took too long. Name fewer users, or submit the deletion.',
  failed: 'Nothing was stored: the users could not be looked up.',
};
