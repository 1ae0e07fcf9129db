// Objects of S3 as files of an import, from a local server that speaks its protocol (s3rver), by AWS's own client.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createServer, type Server, request as send } from 'node:http';
import { createRequire } from 'node:module';
import type { AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { CreateBucketCommand, PutObjectCommand, S3Client } from '@aws-sdk/client-s3';
import { openInputs } from '../../src/import/inputs.js';
import { ImportError } from '../../src/import/options.js';
import { listen } from '../harness/listen.js';
import { tempDir } from '../harness/temp-dir.js';

type S3rver = { readonly httpServer: Server; run(): Promise<unknown>; close(): Promise<unknown> };
/** The package has no types. */
const S3rver = createRequire(import.meta.url)('s3rver') as new (options: object) => S3rver;

let server: S3rver;
let client: S3Client;
/** Runs once the objects are listed. */
let afterListing: (() => Promise<unknown>) | undefined;
const environment = { ...process.env };

/** A proxy between the client and the server. */
const front = createServer((request, reply) => {
  const { port } = server.httpServer.address() as AddressInfo;
  const { method, url: path, headers } = request;
  const isListing = method === 'GET' && path?.includes('list-type=2') === true;
  const passed = send({ port, host: '127.0.0.1', method, path, headers }, async (answer) => {
    const then = isListing ? afterListing : undefined;
    afterListing = isListing ? undefined : afterListing;
    await then?.();
    reply.writeHead(answer.statusCode ?? 500, answer.headers);
    answer.pipe(reply);
  });
  request.pipe(passed);
});

const put = (Key: string, Body: string | Uint8Array) =>
  client.send(new PutObjectCommand({ Bucket: 'archive', Key, Body }));

before(async () => {
  server = new S3rver({ port: 0, address: '127.0.0.1', silent: true, directory: tempDir('s3') });
  await server.run();
  const { url } = await listen(front);
  Object.assign(process.env, {
    AWS_ACCESS_KEY_ID: 'S3RVER',
    AWS_SECRET_ACCESS_KEY: 'S3RVER',
    AWS_REGION: 'eu-central-1',
    AWS_ENDPOINT_URL_S3: url,
    AWS_REQUEST_CHECKSUM_CALCULATION: 'WHEN_REQUIRED',
    AWS_EC2_METADATA_DISABLED: 'true',
    AWS_MAX_ATTEMPTS: '1',
    AWS_CONFIG_FILE: '/dev/null',
    AWS_SHARED_CREDENTIALS_FILE: '/dev/null',
  });
  client = new S3Client({ forcePathStyle: true });
  await client.send(new CreateBucketCommand({ Bucket: 'archive' }));
  await put('logs/hour-10.ndjson.gz', gzipSync('{"hour":10}\n'));
  await put('logs/hour-9.ndjson', '{"hour":9}\n');
  await put('logs/hour-9.ndjson.old', '{"hour":0}\n');
  await put('logs/_SUCCESS', '');
  await put('logs/folder/', '');
});

after(async () => {
  process.env = environment;
  client?.destroy();
  front.close();
  await server?.close();
});

async function faultOf(address: string): Promise<string> {
  const fault = await openInputs([address]).then(
    () => assert.fail('it was read'),
    (error: unknown) => error,
  );
  assert.ok(fault instanceof ImportError, String(fault));
  return fault.message;
}

test('a prefix stands for all objects whose names begin so, in natural order, and an exact name for one', async () => {
  const inputs = await openInputs(['s3://archive/logs/hour']);
  assert.deepEqual(
    inputs.map(({ name, format, compression }) => [name, format, compression]),
    [
      ['s3://archive/logs/hour-9.ndjson', 'ndjson', 'none'],
      ['s3://archive/logs/hour-9.ndjson.old', 'ndjson', 'none'],
      ['s3://archive/logs/hour-10.ndjson.gz', 'ndjson', 'gzip'],
    ],
  );
  assert.equal(readFileSync(inputs[0]?.path ?? '', 'utf8'), '{"hour":9}\n');
  const exact = await openInputs(['s3://archive/logs/hour-9.ndjson']);
  assert.deepEqual(
    exact.map(({ hash }) => hash),
    [inputs[0]?.hash],
  );
  assert.equal((await openInputs(['s3://archive'])).length, 3);
});

test('an object that is missing, or may not be read, is reported in one line', async () => {
  assert.equal(await faultOf('s3://nowhere/logs'), 's3://nowhere/logs: there is no such bucket');
  assert.equal(await faultOf('s3://archive/log/'), "s3://archive/log/: no object's name begins with that");
  assert.equal(await faultOf('s3:///logs'), 's3:///logs: it must be s3://BUCKET/PREFIX');
  const { AWS_SECRET_ACCESS_KEY: secret, AWS_ACCESS_KEY_ID: id, AWS_REGION: region } = process.env;
  process.env.AWS_ACCESS_KEY_ID = 'nobody';
  assert.match(
    await faultOf('s3://archive/logs'),
    /^s3:\/\/archive\/logs: it cannot be read: The AWS Access Key Id/,
  );
  delete process.env.AWS_SECRET_ACCESS_KEY;
  delete process.env.AWS_ACCESS_KEY_ID;
  assert.match(await faultOf('s3://archive/logs'), /there are no credentials: set AWS_ACCESS_KEY_ID/);
  Object.assign(process.env, { AWS_SECRET_ACCESS_KEY: secret, AWS_ACCESS_KEY_ID: id });
  delete process.env.AWS_REGION;
  assert.match(await faultOf('s3://archive/logs'), /the region is unknown: set AWS_REGION$/);
  process.env.AWS_REGION = region;
});

test('an object that changes between listing and reading, or goes, ends the import', async () => {
  afterListing = () => put('logs/hour-9.ndjson', '{"hour":"other"}\n');
  assert.equal(
    await faultOf('s3://archive/logs/hour-9.ndjson'),
    's3://archive/logs/hour-9.ndjson: it was changed meanwhile; import a copy that does not change',
  );
});
