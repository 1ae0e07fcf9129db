// Decompresses zstd (RFC 8878). `fzstd` decodes the blocks of each frame. This file checks what `fzstd` takes on trust: that each frame is
// complete, has the size and checksum that it states, and needs neither a dictionary nor more memory than allowed.

import { Decompress } from 'fzstd';
import xxhash from 'xxhash-wasm';
import { imports } from '../contract/limits.js';

/** Why content cannot be decompressed, in words that follow the name of the file. */
export class Undecodable extends Error {}

export function corrupt(reason: string): Undecodable {
  return new Undecodable(`it is corrupt: ${reason}`);
}

export const endsTooEarly = 'it ends too early';

/** Yields the content of all frames, and checks each frame at its end. Throws Undecodable. */
export async function* unzstd(compressed: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const source = createSource(compressed);
  const { create64 } = await xxhash();
  while (!(await source.isAtEnd())) {
    const magic = await source.take(4);
    if (isSkippable(magic)) {
      await source.skip((await source.take(4)).readUInt32LE());
      continue;
    }
    if (magic.readUInt32LE() !== frameMagic) throw corrupt('something that is not zstd follows in it');
    const header = await readHeader(source);
    const hash = create64();
    let bytes = 0;
    const parts: Uint8Array[] = [];
    const decoder = new Decompress((part) => {
      hash.update(part);
      bytes += part.length;
      if (part.length > 0) parts.push(part);
    });
    let block: Block | undefined = await readBlock(source, header.blockBytesMax);
    decode(decoder, Buffer.concat([magic, header.bytes, block.header]), false);
    while (block !== undefined) {
      const { isLast, contentBytes }: Block = block;
      const content = await source.take(contentBytes);
      const checksum = isLast && header.hasChecksum ? await source.take(4) : Buffer.alloc(0);
      block = isLast ? undefined : await readBlock(source, header.blockBytesMax);
      // Decoded together with the header of the next block: otherwise the decoder would hold the content back until the frame ends.
      decode(decoder, Buffer.concat([content, block?.header ?? checksum]), isLast);
      if (isLast && header.hasChecksum && BigInt(checksum.readUInt32LE()) !== (hash.digest() & 0xffff_ffffn))
        throw corrupt('a checksum in it is wrong');
      if (isLast && header.contentBytes !== undefined && header.contentBytes !== BigInt(bytes))
        throw corrupt(`it holds ${bytes} bytes where it says ${header.contentBytes}`);
      yield* parts.splice(0);
    }
  }
}

const frameMagic = 0xfd2fb528;

/** Whether this is the beginning of zstd content: a frame, or a skippable frame. */
export function isZstd(head: Buffer): boolean {
  return head.length >= 4 && (head.readUInt32LE() === frameMagic || isSkippable(head));
}

function isSkippable(magic: Buffer): boolean {
  return (magic.readUInt32LE() & 0xffff_fff0) === 0x184d_2a50;
}

function decode(decoder: Decompress, bytes: Buffer, isLast: boolean): void {
  try {
    decoder.push(bytes, isLast);
  } catch (error) {
    throw corrupt((error as Error).message);
  }
}

type Header = {
  readonly bytes: Buffer;
  readonly hasChecksum: boolean;
  readonly contentBytes: bigint | undefined;
  readonly blockBytesMax: number;
};

/** The header of a frame, after its magic number. */
async function readHeader(source: Source): Promise<Header> {
  const first = await source.take(1);
  const descriptor = first[0] as number;
  const isSingle = (descriptor & 0x20) !== 0;
  const dictionaryBytes = [0, 1, 2, 4][descriptor & 3] as number;
  const sizeBytes = [isSingle ? 1 : 0, 2, 4, 8][descriptor >> 6] as number;
  if ((descriptor & 0x08) !== 0) throw corrupt('invalid zstd data');
  const window = await source.take(isSingle ? 0 : 1);
  const dictionary = await source.take(dictionaryBytes);
  const size = await source.take(sizeBytes);
  if (dictionary.some((byte) => byte !== 0)) throw new Undecodable('it needs a dictionary of zstd');
  const contentBytes = sizeBytes === 0 ? undefined : uintOf(size) + (sizeBytes === 2 ? 256n : 0n);
  const windowBytes = isSingle ? Number(contentBytes) : windowOf(window[0] as number);
  if (windowBytes > imports.zstdWindowBytesMax)
    throw new Undecodable('it was compressed with a window of more than 128 MiB; compress it without --long');
  return {
    bytes: Buffer.concat([first, window, dictionary, size]),
    hasChecksum: (descriptor & 0x04) !== 0,
    contentBytes,
    blockBytesMax: Math.min(windowBytes, imports.zstdBlockBytesMax),
  };
}

function windowOf(descriptor: number): number {
  const base = 2 ** (10 + (descriptor >> 3));
  return base + (base / 8) * (descriptor & 7);
}

function uintOf(bytes: Buffer): bigint {
  return bytes.reduceRight((number, byte) => (number << 8n) | BigInt(byte), 0n);
}

type Block = { readonly isLast: boolean; readonly header: Buffer; readonly contentBytes: number };

/** Reads the header of a block; the block's content follows it. */
async function readBlock(source: Source, bytesMax: number): Promise<Block> {
  const header = await source.take(3);
  const fields = header.readUIntLE(0, 3);
  const type = (fields >> 1) & 3;
  const size = fields >> 3;
  if (type === 3 || size > bytesMax) throw corrupt('invalid zstd data');
  // A block of type 1 is one byte that is repeated `size` times.
  return { isLast: (fields & 1) === 1, header, contentBytes: type === 1 ? 1 : size };
}

type Source = ReturnType<typeof createSource>;

function createSource(content: AsyncIterable<Uint8Array>) {
  const chunks = content[Symbol.asyncIterator]();
  let rest: Buffer = Buffer.alloc(0);
  /** Reads the next chunk into `rest`. Settles with false if there is none. */
  const next = async () => {
    const { value, done } = await chunks.next();
    if (done !== true) rest = Buffer.from(value.buffer, value.byteOffset, value.length);
    return done !== true;
  };
  const part = (count: number) => {
    const taken = rest.subarray(0, count);
    rest = rest.subarray(taken.length);
    return taken;
  };
  const more = async () => {
    if (!(await next())) throw corrupt(endsTooEarly);
  };
  return {
    isAtEnd: async (): Promise<boolean> => {
      while (rest.length === 0) if (!(await next())) return true;
      return false;
    },
    /** The next bytes. Throws Undecodable if there are fewer. */
    take: async (count: number): Promise<Buffer> => {
      if (rest.length >= count) return part(count);
      const parts: Buffer[] = [];
      for (let missing = count; missing > 0; ) {
        if (rest.length === 0) await more();
        const taken = part(missing);
        parts.push(taken);
        missing -= taken.length;
      }
      return Buffer.concat(parts);
    },
    skip: async (count: number): Promise<void> => {
      for (let missing = count; missing > 0; ) {
        if (rest.length === 0) await more();
        missing -= part(missing).length;
      }
    },
  };
}
