// Objects of S3 as files of an import: which objects an address names, and their content. AWS's own client reads them, with the
// credentials, region and endpoint of the environment (AWS_ACCESS_KEY_ID, AWS_PROFILE, AWS_REGION, AWS_ENDPOINT_URL_S3, …), like AWS's
// command line. The client is loaded at the first such address, and is not among the packages that everybody installs.

import type { Readable } from 'node:stream';
import type { S3Client } from '@aws-sdk/client-s3';
import { ImportError } from './options.js';

type Library = typeof import('@aws-sdk/client-s3');

/** An object. `etag` identifies the content that was listed. */
export type S3Object = {
  readonly name: string;
  readonly bucket: string;
  readonly key: string;
  readonly etag: string;
};

export type S3 = Awaited<ReturnType<typeof connectS3>>;

export function isS3Address(word: string): boolean {
  return /^s3:\/\//i.test(word);
}

/** Connects to S3. A stop ends the reading. */
export async function connectS3(stop: AbortSignal) {
  const library = await loadLibrary();
  // Both AWS and other servers accept the bucket in the path.
  const client = new library.S3Client({ forcePathStyle: true, followRegionRedirects: true });
  const options = { abortSignal: stop };

  return {
    /** The object with exactly this name, or else all objects whose names begin with it. Throws ImportError if there is none. */
    list: (address: string) =>
      asImportError(address, async () => listObjects(library, client, address, options)),
    /** The content of an object. Throws ImportError if it is not the content that was listed. */
    read: ({ name, bucket: Bucket, key: Key, etag }: S3Object) =>
      asImportError(name, async () => {
        const { Body, ETag } = await client.send(new library.GetObjectCommand({ Bucket, Key }), options);
        if (ETag !== etag)
          throw new ImportError(`${name}: it was changed meanwhile; import a copy that does not change`);
        return Body as Readable;
      }),
  };
}

async function listObjects(
  { paginateListObjectsV2 }: Library,
  client: S3Client,
  address: string,
  options: { readonly abortSignal: AbortSignal },
): Promise<S3Object[]> {
  const [, bucket = '', prefix = ''] = /^s3:\/\/([^/]+)\/?(.*)$/is.exec(address) ?? [];
  if (bucket === '') throw new ImportError(`${address}: it must be s3://BUCKET/PREFIX`);
  const objects: S3Object[] = [];
  for await (const page of paginateListObjectsV2({ client }, { Bucket: bucket, Prefix: prefix }, options)) {
    for (const { Key: key = '', ETag: etag = '' } of page.Contents ?? [])
      objects.push({ name: `s3://${bucket}/${key}`, bucket, key, etag });
  }
  const exact = objects.filter(({ key }) => key === prefix);
  // Some tools create objects that stand for folders and hold no rows.
  const found = exact.length > 0 ? exact : objects.filter(({ key }) => !key.endsWith('/'));
  if (found.length === 0) throw new ImportError(`${address}: no object's name begins with that`);
  return found;
}

async function loadLibrary(): Promise<Library> {
  try {
    return await import('@aws-sdk/client-s3');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_MODULE_NOT_FOUND') throw error;
    throw new ImportError("s3:// needs AWS's client: npm install @aws-sdk/client-s3");
  }
}

async function asImportError<Result>(name: string, ask: () => Promise<Result>): Promise<Result> {
  try {
    return await ask();
  } catch (error) {
    if (error instanceof ImportError) throw error;
    throw new ImportError(`${name}: ${reasonOf(error as Error)}`);
  }
}

const reasons: Readonly<Record<string, string>> = {
  NoSuchBucket: 'there is no such bucket',
  NoSuchKey: 'it was changed meanwhile; import a copy that does not change',
  AbortError: 'stopped',
  AccessDenied: 'it may not be read with these credentials',
  CredentialsProviderError:
    'there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE',
};

function reasonOf({ name, message }: Error): string {
  if (message === 'Region is missing') return 'the region is unknown: set AWS_REGION';
  return reasons[name] ?? `it cannot be read: ${message || name}`;
}
