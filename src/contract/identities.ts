// Words that programs send instead of an identity when they have none. Identifying users by one of them
// merges strangers into one profile, which cannot be undone. This is the union of what comparable services refuse.
// Imports nothing, since the client library reads it too.

const words = new Set([
  'anon',
  'anonymous',
  'distinct_id',
  'distinctid',
  'email',
  'false',
  'guest',
  'id',
  'identity',
  'lmy47d',
  'n/a',
  'na',
  'nan',
  'nil',
  'none',
  'not_authenticated',
  'null',
  'true',
  'undefined',
  'unknown',
  'user',
  'user_id',
  'userid',
  '<nil>',
  '0',
  '-1',
  '[]',
  '{}',
  '[object object]',
  '00000000-0000-0000-0000-000000000000',
]);

/** Whether an identity is blank or such a word, ignoring case and any quotes and white space around it. */
export function wouldMergeStrangers(identity: string): boolean {
  let word = identity.trim();
  for (let bare = unquote(word); bare !== word; bare = unquote(word)) word = bare;
  return word === '' || words.has(word.toLowerCase());
}

function unquote(text: string): string {
  return text.replace(/^(['"`])(.*)\1$/s, '$2').trim();
}
