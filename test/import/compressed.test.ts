// Compressed files: read to their end whatever they are made of, and refused whole if anything in them is wrong.

import assert from 'node:assert/strict';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import xxhash from 'xxhash-wasm';
import { contentOf } from '../../src/import/content.js';
import { assertAllSound, type Input, openInputs } from '../../src/import/inputs.js';
import { ImportError, type ImportOptions, readOptions } from '../../src/import/options.js';
import { runDry, runImport } from '../../src/import/run.js';
import { unzstd } from '../../src/import/zstd.js';
import { removeTempDir, tempDir } from '../harness/temp-dir.js';
import { type AnsweringServer, startAnsweringServer } from '../support/answering-server.js';

const goesOn = new AbortController().signal;
let folder: string;
let hash64: (bytes: Uint8Array) => bigint;
before(async () => {
  folder = tempDir('import-compressed');
  hash64 = (await xxhash()).h64Raw;
});
after(() => removeTempDir(folder));

function put(name: string, content: Uint8Array): string {
  const path = join(folder, name);
  writeFileSync(path, content);
  return path;
}

async function read(name: string, content: Uint8Array): Promise<string> {
  const [input] = await openInputs([put(name, content)], undefined);
  await assertAllSound([input as Input], goesOn);
  const parts: Buffer[] = [];
  for await (const part of contentOf(input as Input, () => undefined)) parts.push(part);
  return Buffer.concat(parts).toString('utf8');
}

function refused(name: string, content: Uint8Array, reason: string): Promise<void> {
  const path = join(folder, name);
  return assert.rejects(
    read(name, content),
    (error) =>
      error instanceof ImportError && error.message === `${path}: ${reason}; nothing of it was imported`,
  );
}

/** A frame of one block that is not compressed. It states its size. */
function frame(text: string, { checksum = true, bytes = text.length, more = 0 } = {}): Buffer {
  const block = Buffer.alloc(3);
  block.writeUIntLE((text.length << 3) | 1, 0, 3);
  const hash = Buffer.alloc(4);
  hash.writeUInt32LE(Number(hash64(Buffer.from(text)) & 0xffff_ffffn));
  const descriptor = 0x20 | (checksum ? 4 : 0) | more;
  return Buffer.concat([
    Buffer.from([0x28, 0xb5, 0x2f, 0xfd, descriptor, bytes]),
    block,
    Buffer.from(text),
    checksum ? hash : Buffer.alloc(0),
  ]);
}
const skippable = Buffer.from('532a4d1803000000616263', 'hex');

const csv = `user,n\n${Array.from({ length: 40 }, (_, at) => `user${(at + 1) % 7}@example.com,${(at + 1) * 31}\n`).join('')}`;
/** The same, as the program zstd writes it with -19. */
const compressedCsv = Buffer.from(
  'KLUv/WR8Av0EAHJJGBOgGxsg6razGgBFXtndvVPsf1XxANm9dGvaaTbaPiXbkevk7xqXandVUbMUSS/TLMt5RR/ScfX0Ln+4dmhWVmTPshW5Nq/2' +
    '9AkV785uq63jXQGiFIJxLAjxGIOBJGCMxgkuqBGQHHWXfQOAk5QeESAk4TlImB8kNApFMnQEwU/oIdJml7l2mJONNTe3tULgTB6cxTmGWSG6KgFR' +
    'DT5V8pw=',
  'base64',
);

describe('zstd', () => {
  test('may have many frames, empty ones and ones that only programs read', async () => {
    assert.equal(await read('one.csv.zst', compressedCsv), csv);
    const frames = [
      skippable,
      frame('a\n'),
      frame(''),
      skippable,
      compressedCsv,
      frame('b', { checksum: false }),
    ];
    assert.equal(await read('many.csv.zst', Buffer.concat(frames)), `a\n${csv}b`);
  });

  test('takes as much memory for a long frame as for a short one', async () => {
    const blockBytes = 1 << 17;
    const header = Buffer.alloc(3);
    async function* content() {
      yield Buffer.from([0x28, 0xb5, 0x2f, 0xfd, 0, 10 << 3]);
      for (let left = 2_000; left > 0; left--) {
        header.writeUIntLE((blockBytes << 3) | (left === 1 ? 1 : 0), 0, 3);
        yield Buffer.concat([header, Buffer.alloc(blockBytes, left)]);
      }
    }
    let bytes = 0;
    let most = 0;
    for await (const part of unzstd(content())) {
      bytes += part.length;
      most = Math.max(most, process.memoryUsage().arrayBuffers);
    }
    assert.equal(bytes, 2_000 * blockBytes);
    assert.ok(most < 128 * 2 ** 20, `${most} bytes of buffers`);
  });

  test('is refused whole if a frame is not what its checksum or its size says', async () => {
    const sound = frame('user\nada\n');
    const changed = Buffer.from(sound);
    changed[changed.length - 6] = 0x62;
    await refused('sum.csv.zst', Buffer.concat([sound, changed]), 'it is corrupt: a checksum in it is wrong');
    const long = frame('user\nada\n', { checksum: false, bytes: 10 });
    await refused('size.csv.zst', long, 'it is corrupt: it holds 9 bytes where it says 10');
  });

  test('is refused whichever byte of a frame with a checksum changes, and wherever it ends', async () => {
    // A file with other first four bytes would not count as zstd.
    for (let at = 4; at < compressedCsv.length; at++) {
      const changed = Buffer.from(compressedCsv);
      changed[at] = (changed[at] as number) ^ 0x15;
      await assert.rejects(read('changed.csv.zst', changed), ImportError, `byte ${at}`);
      const cut = Buffer.concat([compressedCsv, compressedCsv.subarray(0, at)]);
      await refused('cut.csv.zst', cut, 'it is corrupt: it ends too early');
    }
  });

  test('is refused if something else follows, or if it needs a dictionary or too much memory', async () => {
    const follows = 'it is corrupt: something that is not zstd follows in it';
    for (const more of [Buffer.alloc(9), Buffer.from('b,2\n')])
      await refused('more.csv.zst', Buffer.concat([compressedCsv, more]), follows);
    const needy = frame('a', { more: 1 });
    const withDictionary = Buffer.concat([needy.subarray(0, 5), Buffer.from([7]), needy.subarray(5)]);
    await refused('dictionary.csv.zst', withDictionary, 'it needs a dictionary of zstd');
    const window = (exponent: number) =>
      Buffer.from([0x28, 0xb5, 0x2f, 0xfd, 0, (exponent - 10) << 3, 1, 0, 0]);
    assert.equal(await read('window.csv.zst', window(27)), '');
    const large = 'it was compressed with a window of more than 128 MiB; compress it without --long';
    await refused('large.csv.zst', window(28), large);
  });
});

describe('gzip', () => {
  const [one, other] = [gzipSync('user\nada\n'), gzipSync('grace\n')];

  test('may have many members, and zeros between and after them', async () => {
    for (const zeros of [0, 1, 512, 300_000]) {
      const padding = Buffer.alloc(zeros);
      const whole = Buffer.concat([one, padding, other, other, padding]);
      assert.equal(await read('padded.csv.gz', whole), 'user\nada\ngrace\ngrace\n', `${zeros} zeros`);
    }
    // The first member ends where a chunk of the file does.
    const name = Buffer.alloc((1 << 18) - one.length - 1, 'n');
    const named = Buffer.concat([
      one.subarray(0, 3),
      Buffer.from([8]),
      one.subarray(4, 10),
      name,
      Buffer.from([0]),
      one.subarray(10),
    ]);
    assert.equal(named.length, 1 << 18);
    for (const zeros of [0, 3]) {
      const whole = Buffer.concat([named, Buffer.alloc(zeros), other]);
      assert.equal(await read('aligned.csv.gz', whole), 'user\nada\ngrace\n');
    }
  });

  test('is refused whole if something else follows, a checksum is wrong, or it ends too early', async () => {
    const wrong = Buffer.from(other);
    wrong[wrong.length - 8] = (wrong[wrong.length - 8] as number) ^ 1;
    for (const zeros of [0, 512]) {
      const begin = [one, Buffer.alloc(zeros)];
      const more = Buffer.concat([...begin, Buffer.from('x,1\n')]);
      await refused('more.csv.gz', more, 'it is corrupt: incorrect header check');
      await refused('sum.csv.gz', Buffer.concat([...begin, wrong]), 'it is corrupt: incorrect data check');
      const cut = Buffer.concat([...begin, other.subarray(0, -1)]);
      await refused('cut.csv.gz', cut, 'it is corrupt: it ends too early');
    }
  });
});

describe('an import', () => {
  let service: AnsweringServer;
  before(async () => {
    service = await startAnsweringServer();
    // The service answers like this to the empty request by which an import tries its options.
    service.answer = () => ({ status: 400, body: { err: { code: 'empty', message: 'No event.' } } });
  });
  after(() => service?.close());

  const optionsOf = (files: readonly string[], state: string): ImportOptions => {
    const args = ['--event', 'x', '--identity', 'user', '--app-id', '1', '--url', service.baseUrl];
    const places = ['--state', join(folder, state), '--rejects', join(folder, `${state}-r`)];
    return readOptions([...files, ...args, ...places], {}) as ImportOptions;
  };

  test('of files of which one is corrupt sends nothing, and leaves no state', async () => {
    const options = optionsOf(
      [put('sound.csv', Buffer.from(csv)), put('corrupt.csv.zst', Buffer.from(compressedCsv).fill(0, 170))],
      'corrupt',
    );
    await assert.rejects(
      runImport(options, goesOn),
      /corrupt\.csv\.zst: it is corrupt: a checksum in it is wrong; nothing of it was imported$/,
    );
    const rows = service.arrived.filter(({ body }) => body.events?.length !== 0);
    assert.deepEqual([rows.length, existsSync(options.stateFile)], [0, false]);
  });

  test('that is stopped while it checks its files sends nothing, and checks them when it continues', async () => {
    const options = optionsOf([put('stopped.csv.zst', Buffer.from(compressedCsv).fill(0, 170))], 'stopped');
    assert.deepEqual(await runImport(options, AbortSignal.abort()), {
      ...{ read: 0, stored: 0, repeats: 0, refused: 0 },
    });
    assert.equal(existsSync(options.stateFile), false);
    await assert.rejects(runImport(options, goesOn), /a checksum in it is wrong/);
    await assert.rejects(runDry(options, AbortSignal.abort()), /stopped/);
  });
});
