// A clock of Redis that a fault can set while Redis runs: the real time plus an offset, which a small preloaded library reads from a
// mapped file. (libfaketime deadlocks with the allocator of Debian's Redis.)

import { execFileSync, spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { removeTempDir, tempDir } from '../harness/temp-dir.js';

export type RedisClock = {
  /** The environment of a Redis that uses this clock. */
  readonly env: NodeJS.ProcessEnv;
  /** Moves the clock at once; a negative value moves it back. */
  moveBy(seconds: number): void;
  remove(): void;
};

const source = `
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *offset_s;

__attribute__((constructor)) static void open_offset(void) {
  int file = open(getenv("CLOCK_OFFSET_FILE"), O_RDONLY);
  void *mapped = mmap(NULL, sizeof *offset_s, PROT_READ, MAP_SHARED, file, 0);
  if (file < 0 || mapped == MAP_FAILED) abort();
  offset_s = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int result = syscall(SYS_clock_gettime, clock, now);
  int is_date = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
  if (result == 0 && is_date && offset_s) now->tv_sec += *offset_s;
  return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *seconds) {
  struct timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  if (seconds) *seconds = precise.tv_sec;
  return precise.tv_sec;
}
`;

export function canSetRedisClock(): boolean {
  return spawnSync('cc', ['--version'], { stdio: 'ignore' }).status === 0;
}

/** Creates a clock that shows the real time. */
export function createRedisClock(): RedisClock {
  const dir = tempDir('clock');
  const [library, file] = [join(dir, 'clock.so'), join(dir, 'offset')];
  execFileSync('cc', ['-shared', '-fPIC', '-O1', '-o', library, '-x', 'c', '-'], { input: source });
  let offsetS = 0n;
  const write = () => {
    const bytes = Buffer.alloc(8);
    bytes.writeBigInt64LE(offsetS);
    writeFileSync(file, bytes, { flag: 'r+' });
  };
  writeFileSync(file, Buffer.alloc(8));
  return {
    env: { LD_PRELOAD: library, CLOCK_OFFSET_FILE: file },
    moveBy: (seconds) => {
      offsetS += BigInt(seconds);
      write();
    },
    remove: () => removeTempDir(dir),
  };
}
