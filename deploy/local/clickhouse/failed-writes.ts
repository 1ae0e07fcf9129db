// Makes a failed write end the engine. ClickHouse's own server answers such a statement with an error. The library drops what it could not
// write and continues: on a full disk it confirmed truncated parts, truncated merges that replace their sources, and empty table
// definitions (see DECISIONS.md). An engine that ends at once leaves what a kill leaves, and survives that.
//
// No setting and no exported function changes this. So the library's calls of `write` are redirected to a few instructions of ours, in the
// memory of this process. These call `write`, return its result, and end the process if there was no space or the disk failed.

import { closeSync, openSync, readFileSync, readSync } from 'node:fs';

/** The functions of the C library that this file calls. Addresses are numbers; they are below 2^53. */
export type CLibrary = {
  call(name: string, ...args: readonly (number | string | Buffer)[]): number;
};

/** The exit code: an input or output error, as defined in sysexits.h. */
export const exitCodeOfFailedWrite = 74;

const said =
  'sluice: ClickHouse could not write a file (a full disk?) and ends: it starts again when it can\n';

// Both say:
//
//   result = write(file, bytes, length);
//   if (result < 0 && errno is ENOSPC, EDQUOT, EIO or EFBIG) { write(2, said, lengthOfSaid); _exit(74); }
//   return result;
//
// Five words follow: the addresses of write, of the function that returns errno's address, of _exit and of the text, and its length.
const instructions: Readonly<Record<string, Buffer>> = {
  x64: bytesOf(`
    4883ec08       sub rsp, 8
    ff1556000000   call write
    4885c07805     if the result is negative: on below
    4883c408c3     return it
    48890424       keep it
    ff154a000000   ask for the address of errno
    8b08488b0424   read errno; the result again
    83f91c740f     ENOSPC: end
    83f97a740a     EDQUOT: end
    83f9057405     EIO: end
    83f91b75d7     not EFBIG: return
    bf02000000     write to standard error
    488b3534000000 the text
    488b1535000000 its length
    ff150f000000   call write
    bf4a000000     the code 74
    ff1514000000   call _exit
    0f1f4000       nothing, so that the words are aligned`),
  arm64: bytesOf(`
    fd7bbea9fd030091 keep the frame and the return address
    5003005800023fd6 call write
    6000f8b7         if the result is negative: on below
    fd7bc2a8c0035fd6 return it
    e00b00f9         keep it
    d002005800023fd6 ask for the address of errno
    010040b9e00b40f9 read errno; the result again
    3f700071e0000054 ENOSPC: end
    3fe80171a0000054 EDQUOT: end
    3f14007160000054 EIO: end
    3f6c007141feff54 not EFBIG: return
    40008052         write to standard error
    a1010058         the text
    c2010058         its length
    b000005800023fd6 call write
    40098052         the code 74
    d000005800023fd6 call _exit`),
};

/** The bytes of a listing: the first word of each line. */
function bytesOf(listing: string): Buffer {
  return Buffer.from(listing.replace(/^ *([0-9a-f]+) .*$/gm, '$1').replaceAll(/\s/g, ''), 'hex');
}

/**
 * To be called when the library is loaded and has not written anything yet. Throws if the library's calls of `write` cannot be redirected
 * to the instructions: a full disk would then lose data.
 */
export function endOnFailedWrite(library: string, c: CLibrary): void {
  const own = instructions[process.arch];
  const places = placesOfWrite(library);
  if (own === undefined || places.length === 0)
    throw new Error(`the calls of write in ${library} are not where they are expected`);
  const address = (name: string) => c.call('dlsym', 0, name);
  const pageBytes = c.call('sysconf', pageSizeAsked);
  const page = c.call('mmap', 0, pageBytes, readable | writable, privateMemory, -1, 0);
  if (page < 0) throw new Error('this system gives no memory for instructions (mmap)');
  const protect = (at: number, bytes: number, how: number) => {
    // The function returns 32 bits.
    if ((c.call('mprotect', at, bytes, how) | 0) !== 0)
      throw new Error(
        'this system lets nobody change what memory may be run (mprotect), as a policy may forbid it',
      );
  };
  const words = Buffer.alloc(5 * 8);
  const text = page + own.length + words.length;
  const length = Buffer.byteLength(said);
  for (const [i, word] of [
    address('write'),
    address('__errno_location'),
    address('_exit'),
    text,
    length,
  ].entries())
    words.writeBigUInt64LE(BigInt(word), i * 8);
  write(c, page, Buffer.concat([own, words, Buffer.from(said)]));
  protect(page, pageBytes, readable | executable);
  const target = Buffer.alloc(8);
  target.writeBigUInt64LE(BigInt(page));
  const base = baseOf(library);
  for (const place of places) {
    // Some of these pages are read-only once the library is loaded.
    const at = base + place;
    protect(at - (at % pageBytes), pageBytes, readable | writable);
    write(c, at, target);
  }
}

// From <unistd.h> and <sys/mman.h>.
const pageSizeAsked = 30;
const [readable, writable, executable, privateMemory] = [1, 2, 4, 0x22];

function write(c: CLibrary, address: number, bytes: Buffer): void {
  c.call('memcpy', address, bytes, bytes.length);
}

/** The address at which the library is in the memory of this process. */
function baseOf(library: string): number {
  const name = library.slice(library.lastIndexOf('/'));
  const line = readFileSync('/proc/self/maps', 'latin1')
    .split('\n')
    .find((line) => line.endsWith(name));
  if (line === undefined) throw new Error(`${library} is not loaded`);
  return Number.parseInt(line, 16);
}

// From <elf.h>: kinds of segments, and of entries of the dynamic section.
const [loadedSegment, dynamicSegment] = [1, 2];
const tag = {
  names: 5,
  symbols: 6,
  moved: 7,
  movedBytes: 8,
  called: 23,
  calledBytes: 2,
  movedByBase: 0x6ffffff9,
};

/** The offsets in the library at which the loader puts the address of `write`. */
function placesOfWrite(library: string): number[] {
  const file = openSync(library, 'r');
  try {
    const read = (at: number, length: number) => {
      const bytes = Buffer.alloc(length);
      readSync(file, bytes, 0, length, at);
      return bytes;
    };
    const wordsOf = (bytes: Buffer, wordsEach: number) =>
      Array.from({ length: Math.floor(bytes.length / 8 / wordsEach) }, (_, row) =>
        Array.from({ length: wordsEach }, (_, word) => bytes.readBigUInt64LE((row * wordsEach + word) * 8)),
      );
    const header = read(0, 64);
    const segments = wordsOf(read(Number(header.readBigUInt64LE(32)), header.readUInt16LE(56) * 56), 7).map(
      ([kind = 0n, offset, address, , bytes]) => ({
        kind: Number(kind & 0xffffffffn),
        offset: Number(offset),
        address: Number(address),
        bytes: Number(bytes),
      }),
    );
    const readLoaded = (address: number, length: number) => {
      const its = segments.find(
        ({ kind, address: from, bytes }) =>
          kind === loadedSegment && address >= from && address < from + bytes,
      );
      if (its === undefined) throw new Error(`${library} is damaged`);
      return read(address - its.address + its.offset, length);
    };
    const dynamic = segments.find(({ kind }) => kind === dynamicSegment);
    if (dynamic === undefined) throw new Error(`${library} is damaged`);
    const entries = new Map(
      wordsOf(read(dynamic.offset, dynamic.bytes), 2).map(([key, value]) => [Number(key), Number(value)]),
    );
    const entry = (key: number) => entries.get(key) ?? 0;
    // In the first table nearly all entries have no name; these come first.
    const unnamedBytes = entry(tag.movedByBase) * 24;
    const tables = [
      readLoaded(entry(tag.moved) + unnamedBytes, entry(tag.movedBytes) - unnamedBytes),
      readLoaded(entry(tag.called), entry(tag.calledBytes)),
    ];
    const nameOf = (symbol: number) => {
      const at = readLoaded(entry(tag.symbols) + symbol * 24, 4).readUInt32LE(0);
      return readLoaded(entry(tag.names) + at, 6).toString('latin1');
    };
    return tables
      .flatMap((table) => wordsOf(table, 3))
      .filter(([, info = 0n]) => nameOf(Number(info >> 32n)) === 'write\0')
      .map(([place]) => Number(place));
  } finally {
    closeSync(file);
  }
}
