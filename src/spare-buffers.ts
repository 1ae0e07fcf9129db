// Large buffers that are used again. V8 collects all garbage each time 64 MiB of new buffers were made, however few objects there are:
// in bulk loads that took a fifth of the API's time and two fifths of the worker's.

export type SpareBuffers = {
  /** A buffer of at least so many bytes, whatever they are. */
  take(bytesMin: number): Buffer;
  /**
   * Keeps a buffer for another taker. From now on nobody may read or write it, so what was sent from it must have been answered: a
   * request that was given up may still be on its way, and would carry the next taker's bytes.
   */
  give(buffer: Buffer): void;
};

/** Keeps at most `countMax` buffers of this size. A taker of more, or of so few that making them is cheap, gets one of its own size. */
export function createSpareBuffers(bytes: number, countMax: number): SpareBuffers {
  const spares: Buffer[] = [];
  return {
    take(bytesMin) {
      if (bytesMin > bytes || bytesMin < bytes / 16) return Buffer.allocUnsafe(bytesMin);
      return spares.pop() ?? Buffer.allocUnsafeSlow(bytesMin < bytes / 4 ? bytesMin : bytes);
    },
    give(buffer) {
      if (buffer.length === bytes && spares.length < countMax) spares.push(buffer);
    },
  };
}
