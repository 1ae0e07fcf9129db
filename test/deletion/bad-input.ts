// The table of bad input to the deletion API: for each endpoint what can be wrong, and its answer as `status code field`. The
// tests that send it are in deletion-access.test.ts. All that an entry does not say is right.

import { gzipSync } from 'node:zlib';
import { bodies, counts, deletions } from '../../src/contract/limits.js';

export const api = '/api/public/v0';

type BodyRow = readonly [what: string, body: string | Buffer, answer: string];
type QueryRow = readonly [query: string, answer: string];

export type ListEndpoint = {
  /** `ID` stands for a request of the caller. */
  readonly path: string;
  /** What its body needs beside the users. */
  readonly beside: object;
  readonly bytesMax: number;
  readonly usersMax: number;
  /** The answer to a list that is right; undefined where other tests are about that. */
  readonly accepted?: string;
  /** Bad values of what only this endpoint takes. */
  readonly own: readonly BodyRow[];
  /** A body with fields that this endpoint does not know, its answer, and the fields as the answer names them. */
  readonly ignored: readonly [body: string, answer: string, fields: string];
};

const bob = [{ identity: 'bob' }];
const mostUsers = Array.from({ length: counts.deletionTargetsMax }, (_, id) => ({ user_id: id }));
const deletionOf = (more: object) => JSON.stringify({ users: bob, ...more });
/** With these fields beside the users, which are right only where others know them, and one in a user. */
const withForeign = (more: object) => JSON.stringify({ ...more, users: [{ identity: 'bob', name: 7 }] });
const foreign = { reference: 7, dry_run: 'yes', suppress: null };

export const listEndpoints: readonly ListEndpoint[] = [
  {
    path: '/user_deletion',
    beside: {},
    bytesMax: bodies.deletionBytesMax,
    usersMax: counts.deletionTargetsMax,
    accepted: '201',
    own: [
      ['a reference', deletionOf({ reference: 'r' }), '201'],
      ['the longest reference', deletionOf({ reference: '\u{1f600}'.repeat(deletions.referenceMax) }), '201'],
      [
        'a longer reference',
        deletionOf({ reference: 'r'.repeat(deletions.referenceMax + 1) }),
        '400 too_long reference',
      ],
      ['an empty reference', deletionOf({ reference: '' }), '400 empty reference'],
      ['a reference that is a number', deletionOf({ reference: 7 }), '400 invalid_type reference'],
      ['a reference of null', deletionOf({ reference: null }), '400 invalid_type reference'],
      [
        'a lone surrogate in a reference',
        '{"users":[{"identity":"bob"}],"reference":"a\\ud83d"}',
        '400 invalid_text reference',
      ],
      [
        'a reference of other users',
        JSON.stringify({ users: [{ user_id: 8 }], reference: 'r' }),
        '409 reference_taken reference',
      ],
      ['dry_run in words', deletionOf({ dry_run: 'yes' }), '400 invalid_type dry_run'],
      ['dry_run of null', deletionOf({ dry_run: null }), '400 invalid_type dry_run'],
      ['dry_run as a number', deletionOf({ dry_run: 1 }), '400 invalid_type dry_run'],
      ['a dry run of nobody', '{"users":[],"dry_run":true}', '400 empty users'],
      ['a dry run of a user without a name', '{"users":[{}],"dry_run":true}', '400 missing_user users.0'],
      ['erase at another time', deletionOf({ erase: 'later' }), '400 invalid_type erase'],
      ['erase of null', deletionOf({ erase: null }), '400 invalid_type erase'],
      ['suppress in words', deletionOf({ suppress: 'true' }), '400 invalid_type suppress'],
      ['suppress of null', deletionOf({ suppress: null }), '400 invalid_type suppress'],
    ],
    ignored: [withForeign({ dryrun: true, supress: 'yes' }), '201', 'dryrun, supress, name'],
  },
  {
    path: '/deletion_status/ID/lookup',
    beside: {},
    bytesMax: bodies.lookupBytesMax,
    usersMax: counts.lookupUsersMax,
    accepted: '409 still_pending',
    own: [],
    ignored: [withForeign(foreign), '409 still_pending', 'reference, dry_run, suppress, name'],
  },
  {
    path: '/user_export',
    beside: {},
    bytesMax: bodies.singleBytesMax,
    usersMax: counts.exportUsersMax,
    accepted: '201',
    own: [],
    ignored: [withForeign(foreign), '201', 'reference, dry_run, suppress, name'],
  },
  {
    path: '/user_suppression',
    beside: { suppress: true },
    bytesMax: bodies.deletionBytesMax,
    usersMax: counts.deletionTargetsMax,
    own: [
      ['no wish', JSON.stringify({ users: bob }), '400 missing_field suppress'],
      ['suppress in words', JSON.stringify({ users: bob, suppress: 'true' }), '400 invalid_type suppress'],
      ['suppress of null', JSON.stringify({ users: bob, suppress: null }), '400 invalid_type suppress'],
      ['suppress as a number', JSON.stringify({ users: bob, suppress: 0 }), '400 invalid_type suppress'],
      ['as many as it takes', JSON.stringify({ users: mostUsers, suppress: false }), '200'],
    ],
    ignored: [withForeign({ ...foreign, suppress: false }), '200', 'reference, dry_run, name'],
  },
  {
    path: '/user_suppression/lookup',
    beside: {},
    bytesMax: bodies.lookupBytesMax,
    usersMax: counts.lookupUsersMax,
    accepted: '200',
    own: [],
    ignored: [withForeign(foreign), '200', 'reference, dry_run, suppress, name'],
  },
];

const long = '\u{1f600}'.repeat(255);

/** Lists that are right; each of them is accepted. */
export const goodUsers: readonly (readonly [what: string, users: string])[] = [
  ['a user_id', '[{"user_id":7}]'],
  ['the user_id 0', '[{"user_id":0}]'],
  ['the largest user_id', '[{"user_id":9007199254740991}]'],
  ['the same as a string', '[{"user_id":"9007199254740991"}]'],
  ['a user_id as 1e3', '[{"user_id":1e3}]'],
  ['a user_id as 7.0', '[{"user_id":7.0}]'],
  ['an identity', '[{"identity":"bob"}]'],
  ['an identity with NUL', '[{"identity":"n\\u0000l"}]'],
  ['255 characters', JSON.stringify([{ identity: long }])],
  ['an anonymous_id', '[{"anonymous_id":"5f0c3a52-3a6e-4a5e-9d0b-0e6f6f6f2d11"}]'],
  ['a field that is not known', '[{"identity":"bob","name":"Bob"}]'],
  ['a user named twice', '[{"identity":"bob"},{"identity":"bob"}]'],
];

/** Lists that are not, and the answers of every endpoint that takes one. */
export const badUsers: readonly (readonly [what: string, users: string, answer: string])[] = [
  ['no user', '[]', '400 empty users'],
  ['null', 'null', '400 invalid_type users'],
  ['an object', '{}', '400 invalid_type users'],
  ['a string', '"bob"', '400 invalid_type users'],
  ['a string in the list', '["bob"]', '400 invalid_type users.0'],
  ['null in the list', '[null]', '400 invalid_type users.0'],
  ['a list in the list', '[[]]', '400 invalid_type users.0'],
  ['a user without a name', '[{}]', '400 missing_user users.0'],
  ['one good and one bad', '[{"identity":"bob"},{}]', '400 missing_user users.1'],
  ['identity and user_id', '[{"identity":"bob","user_id":7}]', '400 ambiguous_user users.0'],
  ['identity and anonymous_id', '[{"identity":"bob","anonymous_id":"a"}]', '400 ambiguous_user users.0'],
  ['user_id and anonymous_id', '[{"anonymous_id":"a","user_id":7}]', '400 ambiguous_user users.0'],
  ['2^53', '[{"user_id":9007199254740992}]', '400 invalid_user_id users.0.user_id'],
  ['2^53 as a string', '[{"user_id":"9007199254740992"}]', '400 invalid_user_id users.0.user_id'],
  ['a negative user_id', '[{"user_id":-1}]', '400 invalid_user_id users.0.user_id'],
  ['a negative zero', '[{"user_id":-0}]', '400 invalid_user_id users.0.user_id'],
  ['a fraction', '[{"user_id":1.5}]', '400 invalid_user_id users.0.user_id'],
  ['an infinite number', '[{"user_id":1e999}]', '400 invalid_type users.0.user_id'],
  ['a leading zero', '[{"user_id":"07"}]', '400 invalid_user_id users.0.user_id'],
  ['a blank', '[{"user_id":" 7"}]', '400 invalid_user_id users.0.user_id'],
  ['a hexadecimal user_id', '[{"user_id":"0x7"}]', '400 invalid_user_id users.0.user_id'],
  ['an empty user_id', '[{"user_id":""}]', '400 invalid_user_id users.0.user_id'],
  ['a boolean', '[{"user_id":true}]', '400 invalid_type users.0.user_id'],
  ['a user_id of null', '[{"user_id":null}]', '400 invalid_type users.0.user_id'],
  ['an empty identity', '[{"identity":""}]', '400 empty users.0.identity'],
  ['an identity of null', '[{"identity":null}]', '400 invalid_type users.0.identity'],
  ['an identity that is a number', '[{"identity":7}]', '400 invalid_type users.0.identity'],
  ['256 characters', JSON.stringify([{ identity: `${long}\u{1f600}` }]), '400 too_long users.0.identity'],
  ['a lone surrogate', '[{"identity":"a\\ud83d"}]', '400 invalid_text users.0.identity'],
  ['a lone low surrogate', '[{"identity":"\\uDE00a"}]', '400 invalid_text users.0.identity'],
  ['an empty anonymous_id', '[{"anonymous_id":""}]', '400 empty users.0.anonymous_id'],
  ['an anonymous_id that is a number', '[{"anonymous_id":7}]', '400 invalid_type users.0.anonymous_id'],
  [
    'a lone surrogate in an anonymous_id',
    '[{"anonymous_id":"\\ud800"}]',
    '400 invalid_text users.0.anonymous_id',
  ],
];

/** Bodies that are no document with a list. */
export const badBodies: readonly BodyRow[] = [
  ['nothing', '', '400 invalid_json'],
  ['no JSON', '{"users":[', '400 invalid_json'],
  ['something behind it', '{"users":[{"identity":"bob"}],"suppress":true}}', '400 invalid_json'],
  [
    'no UTF-8',
    Buffer.from('{"users":[{"identity":"j\xfcrgen"}],"suppress":true}', 'latin1'),
    '400 invalid_json',
  ],
  ['nesting', `{"users":${'['.repeat(65)}${']'.repeat(65)}}`, '400 too_deep'],
  ['an empty object', '{}', '400 missing_field users'],
  ['the list in another place', '{"__proto__":{"users":[{"identity":"bob"}]}}', '400 missing_field users'],
  ['a list', '[]', '400 invalid_type'],
  ['null', 'null', '400 invalid_type'],
  ['a string', '"bob"', '400 invalid_type'],
];

/** Headers of a body, and the answers. The body is right in itself. */
export const badHeaders: readonly (readonly [headers: Readonly<Record<string, string>>, answer: string])[] = [
  [{ 'Content-Type': '' }, '400 invalid_content_type'],
  [{ 'Content-Type': 'text/plain' }, '400 invalid_content_type'],
  [{ 'Content-Type': 'application/x-www-form-urlencoded' }, '400 invalid_content_type'],
  [{ 'Content-Type': 'application/json; charset=latin1' }, '400 invalid_content_type'],
  [{ 'Content-Type': 'application/json', 'Content-Encoding': 'br' }, '415 unsupported_encoding'],
  [{ 'Content-Type': 'application/json', 'Content-Encoding': 'gzip' }, '400 invalid_encoding'],
];

/** Larger bodies are only sent compressed. */
const plainBytesMax = 4 * 1024 * 1024;

/** A list of too many users, and bodies that are too large, as they come and once they are inflated. */
export function oversized({ beside, bytesMax, usersMax }: ListEndpoint) {
  const users = Array.from({ length: usersMax + 1 }, (_, n) => ({ user_id: n }));
  return {
    tooMany: JSON.stringify({ users, ...beside }),
    most: JSON.stringify({ users: users.slice(1), ...beside }),
    tooLarge: bytesMax > plainBytesMax ? [] : [Buffer.alloc(bytesMax + 1, ' ')],
    inflatedTooLarge: gzipSync(Buffer.alloc(bytesMax + 1, ' ')),
  };
}

/** Queries of endpoints that take one. */
export const badQueries: Readonly<Record<string, readonly QueryRow[]>> = {
  '/user_deletions': [
    ['?state=done', '400 invalid_parameter state'],
    ['?state=toString', '400 invalid_parameter state'],
    ['?cursor=x', '400 invalid_parameter cursor'],
    ['?cursor=%00', '400 invalid_parameter cursor'],
    [`?cursor=${'A'.repeat(1_000)}`, '400 invalid_parameter cursor'],
    ['?reference=j%FCrgen', '400 invalid_parameter'],
    ['?reference=%', '400 invalid_parameter'],
    ['?unknown=1', '200'],
  ],
  '/deletion_status/ID/users': [
    ['?cursor=x', '400 invalid_parameter cursor'],
    ['?cursor=-1', '400 invalid_parameter cursor'],
    ['?cursor=1e3', '400 invalid_parameter cursor'],
    ['?cursor=9999999999', '400 invalid_parameter cursor'],
    ['?cursor=%FF', '400 invalid_parameter'],
    ['?cursor=0', '409 still_pending'],
  ],
  '/user_suppression': [
    [`?identity=${'x'.repeat(256)}`, '400 too_long identity'],
    ['?user_id=x', '400 invalid_user_id user_id'],
    ['?user_id=07', '400 invalid_user_id user_id'],
    ['?user_id=-0', '400 invalid_user_id user_id'],
    ['?user_id=9007199254740992', '400 invalid_user_id user_id'],
    ['?identity=a&user_id=1', '400 ambiguous_user identity'],
    ['?user_id=1&anonymous_id=a', '400 ambiguous_user user_id'],
    ['?identity=a&identity=b', '400 ambiguous_user identity'],
    ['?identity=j%FCrgen', '400 invalid_parameter'],
    ['?identity=%', '400 invalid_parameter'],
    ['?unknown=1', '200'],
  ],
  '/deletion_status/ID': [['?cursor=x', '200']],
  '/deletion_status/ID/certificate': [['?cursor=x', '409 still_pending']],
};

/** Every path, and the methods that it takes. */
export const methods: Readonly<Record<string, readonly string[]>> = {
  '/auth_token': ['POST'],
  '/user_deletion': ['POST'],
  '/user_deletions': ['GET'],
  '/deletion_status/ID': ['GET'],
  '/deletion_status/ID/users': ['GET'],
  '/deletion_status/ID/lookup': ['POST'],
  '/deletion_status/ID/certificate': ['GET'],
  '/signing_key': ['GET'],
  '/user_export': ['POST'],
  '/user_export/EXPORT': ['GET'],
  '/user_export/EXPORT/data': ['GET'],
  '/user_suppression': ['POST', 'GET'],
  '/user_suppression/lookup': ['POST'],
};

export const tokenEndpoints = Object.entries(methods)
  .filter(([path]) => !['/auth_token', '/signing_key'].includes(path))
  .flatMap(([path, its]) => its.map((method) => ({ method, path })));

export const namingEndpoints = tokenEndpoints.filter(({ path }) => /ID|EXPORT/.test(path));

/** Ids that name nothing for any caller. `own` is one that does. */
export const oddIds = (own: string): readonly string[] => [
  '3d6f0a52-8f6e-4c9e-9a57-0123456789ab',
  own.toUpperCase(),
  own.slice(0, -1),
  `${own}0`,
  `${own}%00`,
  `%20${own}`,
  '0',
  '..',
  '%2e%2e%2f',
  '__proto__',
  'constructor',
  '*',
  '%FF',
  'x'.repeat(1_000),
];

/** Ways to come without a good token, which `good` is. */
export const noToken = (good: string): Readonly<Record<string, readonly (readonly [string, string])[]>> => ({
  'no header': [],
  'an empty header': [['Authorization', '']],
  'the scheme alone': [['Authorization', 'Bearer']],
  'an unknown token': [['Authorization', `Bearer slt_${'A'.repeat(43)}`]],
  'a token cut short': [['Authorization', `Bearer ${good.slice(0, -1)}`]],
  'a token in other case': [['Authorization', `Bearer ${good.toUpperCase()}`]],
  'another scheme': [['Authorization', `Basic ${good}`]],
  'no scheme': [['Authorization', good]],
  'two headers': [
    ['Authorization', `Bearer ${good}`],
    ['Authorization', `Bearer ${good}`],
  ],
  'two tokens': [['Authorization', `Bearer ${good}, Bearer ${good}`]],
  'another header': [['X-Access-Token', good]],
  'a long token': [['Authorization', `Bearer ${'x'.repeat(2_000)}`]],
});
