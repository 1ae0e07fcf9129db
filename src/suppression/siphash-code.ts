// SipHash-1-3 as WebAssembly, which has the words of 64 bits that JavaScript lacks: three times as fast as pairs of 32-bit
// integers. It is written here instruction by instruction, since the function is short and a compiler would be one more tool.
// @see https://webassembly.github.io/spec/core/binary/instructions.html

export type SipHashCode = {
  /** The four words of the state before the first byte, low halves first. */
  readonly initial: Int32Array;
  /** The bytes to hash. */
  readonly message: Uint8Array;
  /** The state after the first half of the hash was made, like `initial`. */
  readonly state: Int32Array;
  /** Hashes so many bytes of the message; returns the low half of the hash's first 64 bits. */
  readonly hash: (bytes: number) => number;
  /** The low half of the second 64 bits, from that state. */
  readonly third: () => number;
};

// As much of it as is used; the types of Node leave it out.
type Exports = Pick<SipHashCode, 'hash' | 'third'> & { readonly memory: { readonly buffer: ArrayBuffer } };
type WebAssembly = {
  readonly Module: new (bytes: Uint8Array) => object;
  readonly Instance: new (module: object) => { readonly exports: Exports };
};
const { Module, Instance } = (globalThis as unknown as { WebAssembly: WebAssembly }).WebAssembly;

// Where things are in its memory.
const places = { state: 0, initial: 32, message: 64 };
/** A page of WebAssembly, the least that a memory has. */
const memoryBytes = 65_536;
/** A whole word is read at the end of the message. */
export const messageBytesMax = memoryBytes - places.message - 8;

// The locals: the parameter, the place in the message, where its last whole word ends, the state, a word of the message.
const [length, at, end, a, b, c, d, word] = [0, 1, 2, 3, 4, 5, 6, 7];

const get = (local: number) => [0x20, local];
const set = (local: number) => [0x21, local];
const tee = (local: number) => [0x22, local];
const number32 = (value: number) => [0x41, ...signed(value)];
const number64 = (value: number) => [0x42, ...signed(value)];
const equal32 = [0x46];
const [add32, and32, shiftLeft32] = [[0x6a], [0x71], [0x74]];
const [add64, subtract64, and64, or64, xor64] = [[0x7c], [0x7d], [0x83], [0x84], [0x85]];
const [shiftLeft64, rotateLeft64] = [[0x86], [0x89]];
const to64 = [0xad];
const to32 = [0xa7];
/** Of words of 64 bits; the address is on the stack. */
const load = (offset: number) => [0x29, 0, offset];
const store = (offset: number) => [0x37, 0, offset];
const [block, loop, closing] = [[0x02, 0x40], [0x03, 0x40], [0x0b]];
const leaveIf = (depth: number) => [0x0d, depth];
const again = [0x0c, 0];

const step = (to: number, by: number, bits: number) => [
  ...[...get(to), ...get(by), ...add64, ...set(to)],
  ...[...get(by), ...number64(bits), ...rotateLeft64, ...get(to), ...xor64, ...set(by)],
];
const swapHalves = (of: number) => [...get(of), ...number64(32), ...rotateLeft64, ...set(of)];
const round = [
  ...[...step(a, b, 13), ...swapHalves(a), ...step(c, d, 16)],
  ...[...step(a, d, 21), ...step(c, b, 17), ...swapHalves(c)],
];
const mixIn = (value: readonly number[]) => [
  ...[...value, ...tee(word), ...get(d), ...xor64, ...set(d)],
  ...round,
  ...[...get(a), ...get(word), ...xor64, ...set(a)],
];
const state = [a, b, c, d];
const eachOfState = (code: (local: number, offset: number) => number[]) =>
  state.flatMap((local, index) => code(local, 8 * index));

const wholeWord = [...get(at), ...load(places.message)];
/** What is left of the message, below its length. */
const lastWord = [
  ...[...number64(1), ...get(length), ...number32(7), ...and32, ...number32(3), ...shiftLeft32, ...to64],
  ...[...shiftLeft64, ...number64(1), ...subtract64, ...wholeWord, ...and64],
  ...[...get(length), ...to64, ...number64(56), ...shiftLeft64, ...or64],
];
const loadState = (place: number) =>
  eachOfState((local, offset) => [...number32(0), ...load(place + offset), ...set(local)]);
const lastRounds = (local: number, mark: number) => [
  ...[...get(local), ...number64(mark), ...xor64, ...set(local), ...round, ...round, ...round],
];
const lowHalf = [...get(a), ...get(b), ...xor64, ...get(c), ...xor64, ...get(d), ...xor64, ...to32];
const hashing = [
  ...loadState(places.initial),
  ...[...get(length), ...number32(-8), ...and32, ...set(end)],
  ...[...block, ...loop, ...get(at), ...get(end), ...equal32, ...leaveIf(1)],
  ...mixIn(wholeWord),
  ...[...get(at), ...number32(8), ...add32, ...set(at), ...again, ...closing, ...closing],
  ...mixIn(lastWord),
  ...lastRounds(c, 0xee),
  ...eachOfState((local, offset) => [...number32(0), ...get(local), ...store(places.state + offset)]),
  ...[...lowHalf, ...closing],
];
const hashingOn = [...loadState(places.state), ...lastRounds(b, 0xdd), ...lowHalf, ...closing];

/** Makes the functions with a memory of their own. */
export function createSipHashCode(): SipHashCode {
  const { memory, hash, third } = new Instance(new Module(moduleBytes())).exports;
  return {
    initial: new Int32Array(memory.buffer, places.initial, 8),
    message: new Uint8Array(memory.buffer, places.message, messageBytesMax),
    state: new Int32Array(memory.buffer, places.state, 8),
    hash,
    third,
  };
}

function moduleBytes(): Uint8Array {
  const [i32, i64, functionType] = [0x7f, 0x7e, 0x60];
  const body = (locals: readonly number[], instructions: readonly number[]) => {
    const code = [...locals, ...instructions];
    return [...unsigned(code.length), ...code];
  };
  // Both have the same locals; the parameter of the first one is a local of the second one.
  const bodies = [body([2, 2, i32, 5, i64], hashing), body([2, 3, i32, 5, i64], hashingOn)];
  const text = (name: string) => [name.length, ...Buffer.from(name)];
  const section = (id: number, bytes: readonly number[]) => [id, ...unsigned(bytes.length), ...bytes];
  return Uint8Array.from([
    ...[0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
    ...section(1, [2, ...[functionType, 1, i32, 1, i32], ...[functionType, 0, 1, i32]]),
    ...section(3, [2, 0, 1]),
    // Of exactly one page.
    ...section(5, [1, 1, 1, 1]),
    ...section(7, [3, ...text('hash'), 0, 0, ...text('third'), 0, 1, ...text('memory'), 2, 0]),
    ...section(10, [2, ...bodies.flat()]),
  ]);
}

/** Numbers of WebAssembly: seven bits a byte, the lowest first. */
function unsigned(value: number): number[] {
  return value < 128 ? [value] : [(value & 127) | 128, ...unsigned(value >>> 7)];
}

function signed(value: number): number[] {
  return value >= -64 && value < 64 ? [value & 127] : [(value & 127) | 128, ...signed(value >> 7)];
}
