// How an import reacts to answers, and what happens to its files when others touch them. The service answers as a test says.

import assert from 'node:assert/strict';
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { after, before, beforeEach, describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { ImportError, type ImportOptions, readOptions } from '../../src/import/options.js';
import { createNotes, runDry, runImport } from '../../src/import/run.js';
import { createSender } from '../../src/import/sender.js';
import { removeTempDir, tempDir } from '../harness/temp-dir.js';
import { type AnsweringServer, startAnsweringServer, type ToAnswer } from '../support/answering-server.js';

let folder: string;
let service: AnsweringServer;
/** The next answers to records; afterwards all are stored. */
let answers: (ToAnswer | (() => ToAnswer | Promise<ToAnswer>))[];

before(async () => {
  folder = tempDir('importing');
  service = await startAnsweringServer();
  service.answer = ({ body }) => {
    if (body.events?.length === 0) return { status: 400, body: { err: { code: 'empty' } } };
    const next = answers.shift() ?? { status: 200 };
    return typeof next === 'function' ? next() : next;
  };
});
beforeEach(() => {
  answers = [];
});
after(() => {
  service?.close();
  removeTempDir(folder);
});

const never = new AbortController().signal;
const path = (name: string) => join(folder, name);

function put(name: string, content: string | Uint8Array): string {
  writeFileSync(path(name), content);
  return path(name);
}

function run(...args: Parameters<typeof optionsOf>) {
  return runImport(optionsOf(...args), never);
}

function optionsOf(file: string, state: string, rejects: string, ...more: readonly string[]): ImportOptions {
  const args = [
    file,
    ...more,
    '--event',
    'x',
    '--identity',
    'user',
    '--app-id',
    '1',
    '--url',
    service.baseUrl,
  ];
  const files = ['--state', path(state), '--rejects', path(rejects)];
  return readOptions([...args, ...files], {}) as ImportOptions;
}

async function faultOf(importing: Promise<unknown>): Promise<string> {
  const error = await importing.then(
    () => assert.fail('it ended well'),
    (fault: unknown) => fault,
  );
  assert.ok(error instanceof ImportError, String(error));
  return error.message;
}

describe('an answer', () => {
  const options = () => ({ appId: '1', url: service.baseUrl, writeKey: undefined, importToken: undefined });
  const records = ['{"event":"a"}', '{"event":"b"}', '{"event":"c"}'];

  test('that is not from the service decides nothing about rows, whatever its status', async () => {
    answers = [
      { status: 403, body: { message: 'blocked' } },
      { status: 404, body: { error: 'no such site' } },
      { status: 200, body: { status: 'maintenance' } },
    ];
    const before = service.arrived.length;
    const sender = createSender(options(), 1, never);
    assert.deepEqual(await sender.send('events', records), { stored: 3, repeats: 0, refused: [] });
    sender.close();
    assert.deepEqual(
      service.arrived.slice(before).map(({ body }) => body.events?.length),
      [3, 3, 3, 3],
    );
  });

  test('200 counts as the service’s own if its body is what the service answers on that path', async () => {
    const sender = createSender(options(), 1, never);
    const success = { status: 200, body: { success: true } };
    answers = [{ status: 200, body: {} }, success];
    assert.deepEqual(await sender.send('messages', records), { stored: 3, repeats: 0, refused: [] });
    const known = { status: 200, body: { receipts: [{ idempotency_key: 'k', status: 'stored' }] } };
    answers = [{ status: 200, body: { status: 'maintenance' } }, known];
    assert.deepEqual([...(await sender.receipts(['k']))], [['k', 'stored']]);
    assert.deepEqual(answers, []);
    sender.close();
  });

  test('413 of a gateway decides nothing about rows, even if it lists errors', async () => {
    const errors = [{ message: 'too large' }];
    answers = [{ status: 413, body: { errors } }, { status: 200 }, { status: 200 }];
    const sender = createSender(options(), 1, never);
    assert.deepEqual(await sender.send('events', records), { stored: 3, repeats: 0, refused: [] });
    assert.deepEqual(answers, []);
    sender.close();
  });

  test('413 of a gateway halves the request, and every later one that is as large', async () => {
    const isTooLarge = (count: number) => count > 1;
    answers = Array.from({ length: 9 }, () => () => {
      const { length } = service.arrived.at(-1)?.body.events ?? [];
      return isTooLarge(length)
        ? { status: 413, body: '<html>413 Request Entity Too Large</html>' }
        : { status: 200 };
    });
    const before = service.arrived.length;
    const sender = createSender(options(), 1, never);
    for (let turn = 0; turn < 2; turn += 1)
      assert.deepEqual(await sender.send('events', records), { stored: 3, repeats: 0, refused: [] });
    assert.deepEqual(
      service.arrived.slice(before).map(({ body }) => body.events?.length),
      [3, 2, 1, 1, 1, 1, 1, 1],
    );
    answers = [{ status: 413, body: 'too large' }];
    const { refused } = await sender.send('events', records.slice(0, 1));
    assert.match(
      refused[0]?.reason ?? '',
      /A gateway before the service answers 413: it accepts no request of \d+ bytes/,
    );
    sender.close();
  });

  test('that a request came too slowly halves it, and says nothing about a single row', async () => {
    const slow = { status: 408, body: { err: { code: 'body_too_slow', message: 'Too slow.' } } };
    answers = [slow, { status: 200 }, slow, { status: 200 }];
    const before = service.arrived.length;
    const sender = createSender(options(), 1, never);
    assert.deepEqual(await sender.send('events', records), { stored: 3, repeats: 0, refused: [] });
    assert.deepEqual(
      service.arrived.slice(before).map(({ body }) => body.events?.length),
      [3, 2, 1, 1],
    );
    const known = { status: 200, body: { receipts: [{ idempotency_key: 'k', status: 'stored' }] } };
    answers = [slow, known];
    assert.deepEqual([...(await sender.receipts(['k']))], [['k', 'stored']]);
    sender.close();
  });

  test('of another server is blamed on the address, and one of the service on the cause that it names', async () => {
    const probe = (answer: ToAnswer) => {
      service.answer = () => answer;
      const url = service.baseUrl.replace('//', '//gate:secret@');
      const sender = createSender({ ...options(), url }, 1, never);
      return faultOf(sender.probe().finally(() => sender.close()));
    };
    const answering = service.answer;
    try {
      assert.match(
        await probe({ status: 404, body: { error: 'not here' } }),
        /^--url http:\/\/127\S+: it answers 404, but not as/,
      );
      assert.match(
        await probe({ status: 200, body: 'hello' }),
        /^--url http:\/\/127\S+: http:\/\/127\S+ answers 200, but not as/,
      );
      const unknown = { code: 'unknown_app_id', field: 'app_id', message: 'No such environment.' };
      assert.equal(await probe({ status: 400, body: { err: unknown } }), '--app-id 1: No such environment.');
    } finally {
      service.answer = answering;
    }
  });

  test('that limits rows says how many, for the time that is left', async () => {
    const sender = createSender(options(), 1, never);
    const headers = { 'ratelimit-policy': '"bulk_app";q=15000;w=60', 'retry-after': '1' };
    answers = [{ status: 429, body: { err: { code: 'rate_limited' } }, headers }];
    await sender.send('events', records);
    assert.deepEqual(sender.limit(), { name: 'bulk_app', rowsMax: 15_000, seconds: 60 });
    sender.close();
  });

  test('that refuses the caller rather than rows ends the import, and refuses no row', async () => {
    answers = [{ status: 415, body: { err: { code: 'unsupported_encoding', message: 'No.' } } }];
    const sender = createSender(options(), 1, never);
    assert.equal(await faultOf(sender.send('events', records)), 'No.');
    sender.close();
  });

  test('429 may come for longer than a service may be away', async () => {
    let nowMs = 0;
    const limited = () => {
      nowMs += 20 * 60_000;
      return { status: 429, body: { err: { code: 'rate_limited' } } };
    };
    answers = [limited, { status: 503, body: { err: { code: 'unavailable' } } }];
    const sender = createSender(options(), 1, never, () => nowMs);
    assert.equal((await sender.send('events', records)).stored, 3);
    // A 429 of a gateway is no limit of the service: the import waits for it no longer than for other outages.
    for (const status of [403, 429, 503]) {
      const away = (ms: number) => () => {
        nowMs += ms;
        return { status, body: {} };
      };
      answers = [away(10 * 60_000)];
      assert.equal((await sender.send('events', records)).stored, 3);
      answers = [away(20 * 60_000)];
      assert.match(
        await faultOf(sender.send('events', records)),
        new RegExp(`^gave up after 15 minutes: http:\\S+ answers ${status}, but not as this service does$`),
      );
    }
    sender.close();
  });
});

describe('the files of an import', () => {
  test('belong to one import at a time', async () => {
    const [one, other] = [put('one.csv', 'user\nada\n'), put('other.csv', 'user\ngrace\n')];
    let arrive: () => void = () => undefined;
    const arrived = new Promise<void>((settle) => {
      arrive = settle;
    });
    let answer: (answer: ToAnswer) => void = () => undefined;
    answers = [
      () => {
        arrive();
        return new Promise((settle) => {
          answer = settle;
        });
      },
    ];
    const first = run(one, 'held', 'held-r');
    await arrived;
    const words = 'another import is using it; give this one a --state and a --rejects of its own';
    assert.equal(await faultOf(run(other, 'held', 'free-r')), `--state ${path('held')}: ${words}`);
    assert.equal(await faultOf(run(other, 'free', 'held-r')), `--rejects ${path('held-r')}: ${words}`);
    answer({ status: 200 });
    assert.equal((await first).stored, 1);
    assert.equal((await run(other, 'held', 'held-r')).stored, 2, 'the counts of both');
    for (const name of ['held', 'held-r', 'free', 'free-r'])
      assert.equal(existsSync(path(`${name}.owner`)), false, name);
  });

  test('that grew continue where they were, under the keys that they had', async () => {
    const file = put('log.csv', 'user,n\nada,1\nbob,2\n');
    const keys: unknown[] = [];
    const answering = service.answer;
    service.answer = (request) => {
      keys.push(...(request.body.events ?? []).map(({ idempotency_key }) => idempotency_key));
      return answering(request);
    };
    try {
      await run(file, 'log-state', 'log-rejects');
      appendFileSync(file, 'eve,3\n');
      const notes = createNotes();
      const grown = await runImport(optionsOf(file, 'log-state', 'log-rejects'), never, notes);
      assert.deepEqual([grown.read, grown.stored], [3, 3]);
      assert.match(
        notes.words[0] ?? '',
        /log\.csv: it has grown since it was imported; its import continues after row 2/,
      );
      appendFileSync(file, 'ed,4');
      await run(file, 'log-state', 'log-rejects');
      assert.equal(keys.length, 4);
      assert.equal(
        new Set(keys.map((key) => String(key).replace(/:\d+$/, ''))).size,
        1,
        'one file, one prefix',
      );
      assert.equal(new Set(keys).size, 4);
      // The last line had no end, so nobody knows whether it is longer now.
      appendFileSync(file, '5\n');
      assert.match(
        await faultOf(run(file, 'log-state', 'log-rejects')),
        /begins with all of .*log\.csv, which was imported/,
      );
      writeFileSync(file, 'user,n\nada,9\n');
      const other = createNotes();
      await runDry(optionsOf(file, 'log-state', 'log-rejects'), never, other);
      assert.match(
        other.words[0] ?? '',
        /a file of this name with other content was imported before \(4 rows\)/,
      );
    } finally {
      service.answer = answering;
    }
  });

  test('that grew yield in total the same records as without an interruption', async () => {
    const said = (at: string, plan: string) =>
      `${JSON.stringify({ uuid: at, event: 'x', distinct_id: 'ada', timestamp: `2024-05-05 ${at}`, person_properties: { plan } })}\n`;
    const file = put('people.ndjson', said('10:00:00', 'free'));
    const answering = service.answer;
    const plans: unknown[] = [];
    const keys = new Set<unknown>();
    service.answer = (request) => {
      const { batch, idempotency_keys } = request.body as Readonly<Record<string, Record<string, unknown>[]>>;
      for (const { messageId, traits } of batch ?? []) {
        plans.push((traits as { readonly plan: unknown }).plan);
        keys.add(messageId);
      }
      for (const { idempotency_key } of request.body.events ?? []) keys.add(idempotency_key);
      if (idempotency_keys === undefined)
        return batch === undefined ? answering(request) : { status: 200, body: { success: true } };
      const receipts = idempotency_keys.map((key) => ({
        idempotency_key: key,
        status: keys.has(key) ? 'stored' : 'unknown',
      }));
      return { status: 200, body: { receipts } };
    };
    const args = [file, '--preset', 'posthog', '--app-id', '1', '--url', service.baseUrl, '--write-key', 'k'];
    const files = ['--state', path('people-s'), '--rejects', path('people-r')];
    const again = () => runImport(readOptions([...args, ...files, '--verify'], {}) as ImportOptions, never);
    try {
      await again();
      appendFileSync(file, said('09:00:00', 'pro') + said('11:00:00', 'pro'));
      assert.deepEqual((await again()).verified, { stored: 3, waiting: 0, deleted: 0, unknown: 0 });
    } finally {
      service.answer = answering;
    }
    // The second row has a value from before the first. If it counted as the latest, it would hide the third.
    assert.deepEqual(plans, ['free', 'pro']);
    assert.ok(keys.has('posthog:11:00:00:user'));
  });

  test('have the same keys however they are compressed', async () => {
    const text = 'user,n\nada,1\n';
    const keysOf = async (name: string, content: string | Buffer) => {
      const before = service.arrived.length;
      await run(put(name, content), `${name}-state`, `${name}-rejects`);
      return service.arrived
        .slice(before)
        .flatMap(({ body }) => body.events?.map((event) => event.idempotency_key));
    };
    const plain = await keysOf('plain.csv', text);
    assert.equal(plain.length, 1);
    for (const level of [1, 9])
      assert.deepEqual(await keysOf(`l${level}.csv.gz`, gzipSync(text, { level })), plain);
  });

  test('that are compressed and grew are refused, and continue once they are unpacked', async () => {
    const text = 'user\nada\nbob\n';
    const again = (name: string, content: string | Buffer) => run(put(name, content), 'packed', 'packed-r');
    const kept = await keptDuring(async () => {
      await again('day.csv.gz', gzipSync(text, { level: 1 }));
      assert.equal((await again('day.csv.gz', gzipSync(text, { level: 9 }))).read, 4, 'the same content');
      assert.match(
        await faultOf(again('day.csv.gz', gzipSync(`${text}eve\n`, { level: 1 }))),
        /day\.csv\.gz: it begins with all of \S+day\.csv\.gz, which was imported before/,
      );
      await again('day.csv', `${text}eve\n`);
      assert.match(
        await faultOf(again('more.csv.gz', gzipSync(`${text}eve\ned\n`))),
        /more\.csv\.gz: it begins with all of \S+day\.csv, which was imported before/,
      );
      const corrupt = gzipSync(`${text}eve\ned\n`).subarray(0, 20);
      assert.match(
        await faultOf(again('more.csv.gz', corrupt)),
        /it ends too early; nothing of it was imported/,
      );
    });
    assert.deepEqual(kept, ['ada', 'bob', 'eve']);
  });

  test('whose rows share a key are counted by a dry run, equal and different ones separately', async () => {
    const orders = put('orders.csv', 'user,id,n\nada,1,x\nada,1,y\nada,2,x\n');
    const refunds = put('refunds.csv', 'user,id,n\nada,2,x\nada,2,z\n');
    const notes = createNotes();
    await runDry(optionsOf(orders, 'keys-state', 'keys-rejects', refunds, '--key', 'id'), never, notes);
    assert.deepEqual([notes.sameKeys.equal, notes.sameKeys.different], [1, 2]);
    assert.match(notes.sameKeys.places.join(), /orders\.csv:3,\S+refunds\.csv:3$/);
  });

  test('do not count as done if one changes during the import', async () => {
    for (const [name, change] of [
      ['appended.csv', () => appendFileSync(path('appended.csv'), 'grace\n')],
      ['removed.csv', () => rmSync(path('removed.csv'))],
    ] as const) {
      const file = put(name, 'user\nada\n');
      answers = [
        () => {
          change();
          return { status: 200 };
        },
      ];
      assert.equal(
        await faultOf(run(file, `${name}-s`, `${name}-r`)),
        `${file}: it was changed while it was read; import a copy that does not change`,
      );
      assert.match(readFileSync(path(`${name}-s`), 'utf8'), /"place":2,"done":false,/);
    }
  });

  /** The users of the rows that a service keeps while `imports` run, if it keeps the first row of each key. */
  async function keptDuring(imports: () => Promise<void>): Promise<string[]> {
    const kept = new Map<unknown, string>();
    const answering = service.answer;
    service.answer = (request) => {
      for (const { idempotency_key: key, identity } of request.body.events ?? [])
        if (!kept.has(key)) kept.set(key, String(identity));
      return answering(request);
    };
    try {
      await imports();
    } finally {
      service.answer = answering;
    }
    return [...kept.values()];
  }

  /** A folder with a log that changes once the file before it is sent. */
  function changingLog(name: string, content: string, change: (log: string) => void) {
    mkdirSync(path(name));
    put(`${name}/a.csv`, 'user\nfirst\n');
    const log = put(`${name}/log.csv`, content);
    answers = [
      () => {
        change(log);
        return { status: 200 };
      },
    ];
    const again = () => run(path(name), `${name}-s`, `${name}-r`);
    return { again, changed: `${log}: it was changed while it was read; import a copy that does not change` };
  }

  test('have the rows with which they were found: none of a log that took the name of a rotated one', async () => {
    const { again, changed } = changingLog('rotated', 'user\nada\nbob\n', (log) => {
      renameSync(log, `${log}.1`);
      writeFileSync(log, 'user\neve\n');
    });
    const kept = await keptDuring(async () => {
      assert.equal(await faultOf(again()), changed);
      assert.equal((await again()).refused, 0);
    });
    assert.deepEqual(kept, ['first', 'eve', 'ada', 'bob']);
  });

  test('have the rows with which they were found: none that another program is writing', async () => {
    const { again, changed } = changingLog('torn', 'user\nada\n', (log) => appendFileSync(log, 'bo'));
    const kept = await keptDuring(async () => {
      assert.equal(await faultOf(again()), changed);
      appendFileSync(path('torn/log.csv'), 'b\n');
      assert.equal((await again()).refused, 0);
    });
    assert.deepEqual(kept, ['first', 'ada', 'bob']);
  });

  test('have each row once if they grow while they are found', async () => {
    const log = put('growing.csv', 'user\nada\n');
    const again = () => run(log, 'growing', 'growing-r');
    const kept = await keptDuring(async () => {
      const growing = again();
      appendFileSync(log, 'bob\n');
      assert.match(await faultOf(growing), /growing\.csv: it was changed while it was read/);
      appendFileSync(log, 'eve\n');
      await again();
    });
    assert.deepEqual(kept, ['ada', 'bob', 'eve']);
  });

  test('are reported as changed, not as unreadable, if the content now in their place cannot be read', async () => {
    const row = `ada,${'x'.repeat(1_000)}\n`;
    const file = put('replaced.csv', `user,x\n${row.repeat(4_000)}`);
    answers = [
      () => {
        writeFileSync(file, row.replace('ada', 'Jos\u00e9').repeat(4_000), 'latin1');
        return { status: 200 };
      },
    ];
    assert.match(await faultOf(run(file, 'replaced', 'replaced-r')), /replaced\.csv: it was changed while/);
  });

  test('are sent at the rate that the options name, all together', async () => {
    const [first = '', ...others] = [1, 2, 3].map((n) => put(`paced-${n}.csv`, `user,n\nada,${n}\n`));
    const beganMs = performance.now();
    assert.equal((await run(first, 'paced', 'paced-r', ...others, '--rate', '5')).stored, 3);
    assert.ok((service.arrived.at(-1)?.atMs ?? 0) - beganMs >= 399);
  });

  test('are verified whatever became of other files of the same state', async () => {
    await run(put('with-reject.csv', 'user,n\n,1\n'), 'among', 'among-r');
    answers = [{ status: 415, body: { err: { code: 'unsupported_encoding', message: 'No.' } } }];
    await faultOf(run(put('begun.csv', 'user,n\nada,1\n'), 'among', 'among-r'));
    const answering = service.answer;
    service.answer = (request) => {
      const { idempotency_keys: keys } = request.body as { readonly idempotency_keys?: readonly string[] };
      const receipts = keys?.map((key) => ({ idempotency_key: key, status: 'unknown' }));
      return receipts === undefined ? answering(request) : { status: 200, body: { receipts } };
    };
    try {
      const file = put('lost.csv', 'user,n\nbob,1\n');
      const { verified } = await run(file, 'among', 'among-r', '--verify', '--write-key', 'k');
      assert.deepEqual(verified, { stored: 0, waiting: 0, deleted: 0, unknown: 1 });
    } finally {
      service.answer = answering;
    }
  });

  test('that are not empty and have no row are named', async () => {
    const bare = put('bare.csv', 'user,x\n');
    const none = put('none.csv', '');
    // The second import finds that all is done.
    for (const begin of [runDry, runImport, runImport]) {
      const notes = createNotes();
      await begin(optionsOf(bare, 'bare', 'bare-r', none), never, notes);
      assert.deepEqual(notes.words, [`${bare}: no row was found in its 7 bytes`]);
    }
  });

  test('that were begun in one format do not continue in another, where the same place is another row', async () => {
    const file = put('either.txt', '[\n{"user": "ada"},\n{"user": "grace"}]\n');
    const words = `${file}: the state has its rows as ndjson, and now it is read as json; name another --state and --rejects`;
    assert.equal((await run(file, 'either', 'either-r', '--format', 'ndjson')).refused, 3);
    assert.equal(await faultOf(run(file, 'either', 'either-r', '--format', 'json')), words);
    assert.equal((await run(file, 'either-2', 'either-r2', '--format', 'json')).stored, 2);
    // A file without a row in one format may have one in another.
    const empty = put('empty.txt', '[]\n');
    assert.equal((await run(empty, 'empty', 'empty-r', '--format', 'json')).read, 0);
    assert.equal((await run(empty, 'empty', 'empty-r', '--format', 'ndjson')).refused, 1);
  });

  test('are not taken for a state or for rejects', async () => {
    const file = put('input.csv', 'user\nada\n');
    const state = (files: unknown) => JSON.stringify({ version: 1, app_id: '1', rejects_bytes: 0, files });
    for (const content of [null, { h: {} }, { h: null }, { h: { place: '5', read: 0, stored: 0 } }]) {
      put('odd', state(content));
      assert.equal(
        await faultOf(run(file, 'odd', 'odd-r')),
        `--state ${path('odd')}: it is not the state of an import`,
      );
    }
    // With the state of an unfinished import, the importer would cut the rejects, and here they are another input file.
    const other = put('other-input.csv', 'user\nada\n,\n');
    answers = [{ status: 415, body: { err: { code: 'unsupported_encoding', message: 'No.' } } }];
    assert.equal(await faultOf(run(file, 'begun', 'begun-r')), 'No.');
    const words = `--rejects ${other}: it is a file to import; name another file`;
    assert.equal(await faultOf(run(other, 'begun', 'other-input.csv')), words);
    assert.equal(readFileSync(other, 'utf8'), 'user\nada\n,\n');
  });

  test('with a number beyond all doubles are refused, and refused again from the rejects', async () => {
    const file = put('beyond.ndjson', '{"user":"ada","x":1e400,"y":[-1e999,"Infinity"]}\n');
    const refused = { read: 1, stored: 0, repeats: 0, refused: 1 };
    assert.deepEqual(await run(file, 'beyond', 'beyond-r'), refused);
    assert.match(
      readFileSync(path('beyond-r'), 'utf8'),
      /^\{"user":"ada","x":1e400,"y":\[-1e400,"Infinity"\],/,
    );
    assert.deepEqual(await run(path('beyond-r'), 'again', 'again-r', '--format', 'ndjson'), refused);
  });

  test('keep their refused rows: once an import is done, none is cut off again', async () => {
    const file = put('refused.csv', 'user,x\nada\n,1\ngrace,2\n');
    const again = () => run(file, 'refused', 'refused-r');
    assert.deepEqual(await again(), { read: 3, stored: 1, repeats: 0, refused: 2 });
    const rejected = readFileSync(path('refused-r'), 'utf8');
    assert.equal((await again()).refused, 2);
    assert.equal(readFileSync(path('refused-r'), 'utf8'), rejected);
    // A kill during another file leaves a state that knows of it. The rejects may then be longer than the state says.
    let known = '';
    answers = [
      () => {
        known = readFileSync(path('refused'), 'utf8');
        return { status: 200 };
      },
    ];
    assert.equal((await run(put('second.csv', 'user\nada\n'), 'refused', 'refused-r')).stored, 2);
    assert.match(known, /second\.csv","place":0,"done":false/);
    for (const content of [`${rejected.trim()} mended\n`, rejected.slice(0, -20), undefined]) {
      if (content === undefined) rmSync(path('refused-r'));
      else put('refused-r', content);
      const bytes = content?.length ?? 0;
      assert.match(
        await faultOf(again()),
        new RegExp(
          `refused-r: it has ${bytes} bytes, but this import left ${rejected.length}; import a corrected file`,
        ),
      );
      if (content === undefined) assert.equal(existsSync(path('refused-r')), false);
      else assert.equal(readFileSync(path('refused-r'), 'utf8'), content);
    }
    // Another file in the same import does not lift the refusal either.
    put('refused-r', `${rejected.trim()} mended\n`);
    assert.match(
      await faultOf(run(put('more.csv', 'user\nada\n'), 'refused', 'refused-r')),
      /it has \d+ bytes/,
    );
  });
});
