// Commands: deletion requests, their evidence and certificates.

import { readFileSync } from 'node:fs';
import { readSigningKey } from '../../accounts/signing-key.js';
import { deletionStates } from '../../contract/deletion-states.js';
import { AdministrationError } from '../../contract/errors.js';
import { administration, bodies } from '../../contract/limits.js';
import { everyone, operatorsOnly, privacyOfficers } from '../../contract/roles.js';
import { oneOf, optional, text } from '../../contract/typebox.js';
import type { AdminContext } from '../../operations/context.js';
import { certify, readPublicKey, verifyCertificate, verifyOwn } from '../../privacy/deletion/certificate.js';
import { listEvidence } from '../../privacy/deletion/evidence.js';
import { isListCursor, listOfAccounts } from '../../privacy/deletion/listed.js';
import { listProposals, withdrawProposal } from '../../privacy/deletion/proposals.js';
import { type DeletionRequest, endDeletion, readDeletion } from '../../privacy/deletion/request.js';
import { registryKeys } from '../../redis/keys.js';
import { readOnReplicas } from '../../redis/replicas.js';
import { readRegistry } from '../../registry/registry.js';
import { does, type Fields, onCommandLine, scope, shows, wholeNumber } from '../command.js';

const listedStates = ['pending', ...Object.keys(deletionStates)];
const cursor = optional(text('The cursor of the previous page.'));

export const deletionCommands = {
  listDeletions: shows({
    summary: 'Deletion requests, the newest first, in pages',
    may: everyone,
    http: 'GET /deletions',
    cli: 'deletions list [--limit NUMBER] [--account ACCOUNT_ID] [--state STATE] [--reference TEXT]   deletion requests, the newest first',
    byCommandLine: async (run, { limit, ...asked }) => {
      const countMax = Number(limit ?? administration.listedMax);
      const found: object[] = [];
      let next: string | undefined;
      do {
        const page = (await run({ ...asked, limit, ...(next && { cursor: next }) })) as Page;
        found.push(...page.deletions);
        next = page.cursor;
      } while (next !== undefined && found.length < countMax);
      return found.slice(0, countMax);
    },
    given: {
      ...scope,
      state: optional(oneOf(listedStates, 'Only those with this status or state.')),
      reference: optional(text('Only those with this reference.')),
      cursor,
      limit: optional(wholeNumber(1, administration.countMax, onCommandLine)),
    },
    run: async ({ redis }, { account_id, state, reference, cursor: after }): Promise<Page> => {
      if (after !== undefined && !isListCursor(after))
        throw new AdministrationError('cursor must come from an earlier page');
      const ids = account_id === undefined ? [...(await readRegistry(redis)).accounts.keys()] : [account_id];
      const { requests, next } = await readOnReplicas(redis, registryKeys.deletions, () =>
        listOfAccounts(redis, ids, { state, reference, after }),
      );
      return { deletions: requests, ...(next === undefined ? {} : { cursor: next }) };
    },
  }),
  listProposals: shows({
    summary: 'Deletions that a second person has to confirm, by submitting the same list',
    may: privacyOfficers,
    http: 'GET /accounts/:account_id/deletion_proposals',
    run: ({ redis }, { account_id }) =>
      readOnReplicas(redis, registryKeys.deletionProposals(account_id), () =>
        listProposals(redis, account_id),
      ),
  }),
  withdrawProposal: does('withdrew a proposed deletion', {
    summary: 'Withdraw a deletion that awaits a second person',
    may: privacyOfficers,
    http: 'DELETE /accounts/:account_id/deletion_proposals/:proposal_id',
    details: ({ proposal_id }) => ({ proposal_id }),
    run: async ({ redis }, { account_id, proposal_id }) => {
      const withdrawn = await withdrawProposal(redis, account_id, proposal_id);
      if (withdrawn === undefined) throw new AdministrationError('there is no such proposal (any more)');
      return withdrawn;
    },
  }),
  showDeletion: shows({
    summary: 'A deletion request with its evidence',
    may: everyone,
    http: 'GET /deletions/:deletion_request_id',
    cli: 'deletions show DELETION_REQUEST_ID   the progress of one, and its evidence',
    run: (context, { deletion_request_id: id }) => findDeletion(context, id),
  }),
  endDeletion: does('ended a deletion that cannot be carried out', {
    summary: 'End a request whose targets are lost',
    may: operatorsOnly,
    http: 'POST /deletions/:deletion_request_id/end',
    cli: 'deletions end DELETION_REQUEST_ID   ends one that can never be carried out: its targets are lost',
    run: async (context, { deletion_request_id: id }) => {
      const request = await findDeletion(context, id);
      const ended = request.state === 'targets_lost' ? await endDeletion(context.redis, request) : undefined;
      if (ended === undefined)
        throw new AdministrationError(
          `only a request whose targets are lost can be ended; this one is ${request.state}`,
        );
      return ended;
    },
  }),
  listDeletionUsers: shows({
    summary: 'What was counted for each user of a complete deletion, by position in the list, without names',
    may: everyone,
    http: 'GET /deletions/:deletion_request_id/users',
    given: { cursor },
    takesTurns: true,
    run: async (context, { deletion_request_id: id, cursor: from = '0' }) => {
      const { status } = await findDeletion(context, id);
      if (status !== 'complete') throw new AdministrationError('the deletion is not complete yet');
      if (!/^\d{1,9}$/.test(from)) throw new AdministrationError('cursor must come from an earlier answer');
      const { users, next } = await listEvidence(context.clickhouse, id, Number(from));
      return { users, ...(next === undefined ? {} : { cursor: String(next) }) };
    },
  }),
  showCertificate: shows({
    summary: 'The signed certificate of a complete deletion',
    may: everyone,
    http: 'GET /deletions/:deletion_request_id/certificate',
    run: async (context, { deletion_request_id: id }) => {
      const request = await findDeletion(context, id);
      const signed = certify(request, await readSigningKey(context.redis, context.clickhouse));
      if (signed === undefined) throw new AdministrationError('the deletion is not complete yet');
      return signed;
    },
  }),
  showVerified: shows({
    summary: 'Whether a certificate of a deletion is genuine',
    may: everyone,
    http: 'POST /certificates/verify',
    cli: 'certificate verify FILE [--key FILE]   whether the certificate of a deletion is genuine; with a public key in FILE without the service',
    byCommandLine: (run, words) => run(filesOf(words)),
    withoutService: (words) => {
      const { text: certificate, key } = filesOf(words);
      return key === undefined ? undefined : checkCertificate(certificate, key);
    },
    // The unchanged text, since parsed fields no longer show a repeated name or how a number was written.
    given: { text: text() },
    textOfBody: 'text',
    bodyBytesMax: bodies.adminListBytesMax,
    run: ({ redis, clickhouse }, { text: certificate }) => verifyOwn(redis, clickhouse, certificate),
  }),
};

type Page = { readonly deletions: readonly DeletionRequest[]; readonly cursor?: string };

async function findDeletion({ redis }: AdminContext, id: string): Promise<DeletionRequest> {
  const request = await readOnReplicas(redis, registryKeys.deletions, () => readDeletion(redis, id));
  if (request === undefined) throw new AdministrationError('there is no such deletion request');
  return request;
}

/** Checks a certificate with a public key. Throws AdministrationError if that is not a key. */
function checkCertificate(certificate: string, keyText: string) {
  const key = readPublicKey(keyText);
  if (key === undefined) throw new AdministrationError('the key is not an Ed25519 public key');
  return verifyCertificate(certificate, key);
}

function filesOf({ file, key }: Fields) {
  return { text: contentOf(String(file)), key: key === undefined ? undefined : contentOf(String(key)) };
}

function contentOf(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw new AdministrationError(`${file} cannot be read (${(error as NodeJS.ErrnoException).code})`);
  }
}
