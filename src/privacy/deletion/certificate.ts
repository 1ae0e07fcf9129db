// The certificate of a complete deletion: what was deleted when, by which request, with the counts, signed by the deployment. It is derived
// from the request's document alone. So it says no more than was counted, names no user, and is the same whenever it is requested.

import { createPublicKey, type KeyObject, sign, verify } from 'node:crypto';
import { keyIdOf, privatePartOf, publicPartOf, readSigningKey } from '../../accounts/signing-key.js';
import type { ClickHouseClient } from '../../clickhouse/client.js';
import { administration } from '../../contract/limits.js';
import type { Redis } from '../../redis/client.js';
import type { SigningKey } from '../../registry/documents.js';
import type { DeletionRequest } from './request.js';
import { userTables } from './user-tables.js';
import { rowsOf } from './view.js';

export type SignedCertificate = {
  readonly certificate: object;
  readonly signature: {
    readonly algorithm: 'Ed25519';
    readonly key_id: string;
    /** In base64, of the certificate's canonical text in UTF-8. */
    readonly value: string;
  };
};

const statement =
  'After the deletion every table in tables_counted was counted and held no row of the named users that was acknowledged before the submission.';

/** The certificate of a complete request; undefined while it is not complete. */
export function certify(request: DeletionRequest, key: SigningKey): SignedCertificate | undefined {
  if (request.status !== 'complete') return undefined;
  const { found = [], submitted_by } = request;
  // What is undefined is neither written nor signed.
  const certificate = {
    type: 'sluice-deletion-1',
    deletion_request_id: request.deletion_request_id,
    account_id: request.account_id,
    app_id: request.app_id,
    // Without an API key there is no time of its creation.
    key_created_at: submitted_by === undefined ? request.key_created_at : undefined,
    submitted_by,
    reference: request.reference,
    submitted_at: request.submitted_at,
    hidden_at: request.hidden_at,
    verified_at: request.verified_at,
    completed_at: request.completed_at,
    backups_end_at: request.backups_end_at,
    users: request.targets,
    users_found: request.users_found,
    rows_deleted: rowsOf(found),
    found,
    tables_counted: request.verified_tables,
    statement,
  };
  const value = sign(null, Buffer.from(canonicalJson(certificate)), privatePartOf(key)).toString('base64');
  return { certificate, signature: { algorithm: 'Ed25519', key_id: key.key_id, value } };
}

/** Whether the owner of the key has signed a certificate; if not, why. */
export type Verification =
  | { readonly genuine: true; readonly key_id: string; readonly certificate: object }
  | { readonly genuine: false; readonly reason: string };

/** Checks the text of a certificate. The text may be anything. */
export function verifyCertificate(text: string, publicKey: KeyObject): Verification {
  const document = isLong(text) ? undefined : parse(text);
  const form = document === undefined ? undefined : formOf(text);
  const { certificate, signature, ...beside } = fieldsOf(document);
  const { algorithm, key_id, value, ...besideValue } = fieldsOf(signature);
  if (
    form === undefined ||
    typeof certificate !== 'object' ||
    certificate === null ||
    typeof value !== 'string'
  )
    return { genuine: false, reason: 'this is not a certificate' };
  const known = keyIdOf(publicKey);
  if (algorithm !== 'Ed25519' || key_id !== known) {
    return { genuine: false, reason: `it does not name the key ${known}` };
  }
  const signed = Buffer.from(value, 'base64');
  const isSigned =
    signed.toString('base64') === value &&
    verify(null, Buffer.from(canonicalJson(certificate)), publicKey, signed);
  if (!isSigned) return { genuine: false, reason: 'the signature does not belong to this certificate' };
  // A reader might think that the signature covers it.
  if (Object.keys({ ...beside, ...besideValue }).length > 0)
    return { genuine: false, reason: 'something that was not signed stands beside the certificate' };
  // Of two values with one name only the last is checked, but a reader may see the first.
  if (form.names !== countFields(document)) return { genuine: false, reason: 'it has a name twice' };
  // The signature covers values, not their spelling: a reader may not take -0, 0e999 or 1e-400 for 0.
  if (!form.hasPlainNumbers)
    return { genuine: false, reason: 'it has a number in another form than was signed' };
  return { genuine: true, key_id: known, certificate };
}

/** Checks the text of a certificate with the key of this deployment. */
export async function verifyOwn(
  redis: Redis,
  clickhouse: ClickHouseClient,
  text: string,
): Promise<Verification> {
  const { public_key } = publicPartOf(await readSigningKey(redis, clickhouse));
  return verifyCertificate(text, createPublicKey(public_key));
}

/** Reads a public key in PEM, or the answer of the endpoint that shows it; undefined if it is neither. */
export function readPublicKey(text: string): KeyObject | undefined {
  const { public_key: ofAnswer } = fieldsOf(parse(text));
  try {
    const key = createPublicKey(typeof ofAnswer === 'string' ? ofAnswer : text);
    return key.asymmetricKeyType === 'ed25519' ? key : undefined;
  } catch {
    return undefined;
  }
}

/**
 * A text that depends only on a document's content: without whitespace, the names in each object sorted by UTF-16 units.
 * @see https://www.rfc-editor.org/rfc/rfc8785 (our documents have texts, whole numbers, lists and objects)
 */
export function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const entries = Object.entries(value).filter(([, field]) => field !== undefined);
  const sorted = entries.sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${sorted.map(([name, field]) => `${JSON.stringify(name)}:${canonicalJson(field)}`).join(',')}}`;
}

/** More commas and colons than a certificate has. Anybody may send a text, and the cost of checking grows with them. */
const separatorsMax = 8 * userTables.length * administration.environmentsPerAccountMax;

function isLong(text: string): boolean {
  return text.split(/[,:]/, separatorsMax + 1).length > separatorsMax;
}

/** More levels than a certificate has, and few enough for recursion. */
const levelsMax = 16;

/** Whole strings and numbers, and the brackets and colons between them. For valid JSON only. */
const tokens = /"[^"\\]*(?:\\.[^"\\]*)*"|[[\]{}:]|-?\d[\d.eE+-]*/g;

/**
 * How many names the objects in a JSON text have, repeats included, and whether each number is written as JSON.stringify writes it;
 * undefined if the text has too many levels.
 */
function formOf(text: string): { readonly names: number; readonly hasPlainNumbers: boolean } | undefined {
  let [level, names, hasPlainNumbers] = [0, 0, true];
  for (const [token] of text.matchAll(tokens)) {
    if (token === '{' || token === '[') level += 1;
    else if (token === '}' || token === ']') level -= 1;
    else if (token === ':') names += 1;
    else if (!token.startsWith('"') && JSON.stringify(Number(token)) !== token) hasPlainNumbers = false;
    if (level > levelsMax) return undefined;
  }
  return { names, hasPlainNumbers };
}

/** How many fields the objects of a document have. */
function countFields(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0;
  const fields: unknown[] = Object.values(value);
  const own = Array.isArray(value) ? 0 : fields.length;
  return fields.reduce((sum: number, field) => sum + countFields(field), own);
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function fieldsOf(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}
