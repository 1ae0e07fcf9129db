// Large buffers that are used again. V8 collects all garbage each time 64 MiB of new buffers were made, however few objects there are:
// in bulk loads that took a quarter of the API's time and two fifths of the worker's.

const KiB = 1024;

type Sizes = {
  /** A taker of fewer bytes gets as many, since making them is cheap. */
  readonly bytesMin: number;
  /** All others get a multiple of this. */
  readonly stepBytes: number;
  /** Those that were given first go first, so that the kept ones have the sizes that are wanted now. */
  readonly keptBytesMax: number;
};

export function createSpareBuffers({ bytesMin: least, stepBytes, keptBytesMax }: Sizes) {
  const spares: Buffer[] = [];
  const taken = new WeakMap<ArrayBufferLike, Buffer>();
  let keptBytes = 0;
  const isKept = (bytes: number) => bytes >= least && bytes <= keptBytesMax;
  const sizeFor = (bytesMin: number) =>
    isKept(bytesMin) ? Math.ceil(bytesMin / stepBytes) * stepBytes : bytesMin;
  return {
    /** The size of the buffer that a taker of so many bytes gets. */
    sizeFor,
    /** A buffer of at least so many bytes, whatever they are. */
    take(bytesMin: number): Buffer {
      if (!isKept(bytesMin)) return Buffer.allocUnsafe(bytesMin);
      const bytes = sizeFor(bytesMin);
      const index = spares.findLastIndex(({ length }) => length === bytes);
      if (index >= 0) keptBytes -= bytes;
      const buffer = index < 0 ? Buffer.allocUnsafeSlow(bytes) : (spares.splice(index, 1)[0] as Buffer);
      taken.set(buffer.buffer, buffer);
      return buffer;
    },
    /**
     * Keeps the memory of a buffer, or of a view of it, for another taker; does nothing with memory that did not come from here. From now on
     * nobody may read or write it, so what was sent from it must have been answered: a request that was given up may still be on its way,
     * and would carry the next taker's bytes.
     */
    give(view: ArrayBufferView): void {
      // Asking a small typed array for its memory would move it out of V8's heap.
      const buffer = isKept(view.byteLength) ? taken.get(view.buffer) : undefined;
      if (buffer === undefined) return;
      taken.delete(buffer.buffer);
      spares.push(buffer);
      keptBytes += buffer.length;
      while (keptBytes > keptBytesMax) keptBytes -= (spares.shift() as Buffer).length;
    },
  };
}

/** For the bodies of requests, and for what is kept of them until their commit. They take at most a quarter more than they need. */
export const bodyBuffers = createSpareBuffers({
  bytesMin: 16 * KiB,
  stepBytes: 4 * KiB,
  keptBytesMax: 8 * KiB * KiB,
});
