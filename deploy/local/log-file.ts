// Owns the log file of one child. The child writes to it directly, so its log is kept even when the supervisor is gone. The supervisor
// reads along, shows warnings and errors, and limits the size.

import {
  closeSync,
  copyFileSync,
  fstatSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readSync,
  rmSync,
} from 'node:fs';
import { dirname } from 'node:path';

const fileBytesMax = 20 * 1024 * 1024;
const readBytesMax = 1024 * 1024;
const pollMs = 250;
/** How many lines of one child are shown in one period; further ones are only counted. */
const shownLinesMax = 5;
const shownPeriodMs = 10_000;

/** Opens the file for appending, and reads along. Calls `show` with each line that is worth showing. */
export function openLogFile(
  path: string,
  isWorthShowing: (line: string) => boolean,
  show: (line: string) => void,
) {
  mkdirSync(dirname(path), { recursive: true });
  const fd = openSync(path, 'a+');
  let readTo = fstatSync(fd).size;
  let rest = '';
  let last: string | undefined;
  let shown = 0;
  let hidden = 0;
  let periodStartedAt = performance.now();

  const timer = setInterval(flush, pollMs);
  timer.unref();

  function flush(): void {
    const { size } = fstatSync(fd);
    // If a child writes faster than this, only a part is shown; the file has everything.
    if (size - readTo > readBytesMax) readTo = size - readBytesMax;
    if (size > readTo) {
      const bytes = Buffer.alloc(size - readTo);
      readTo += readSync(fd, bytes, 0, bytes.length, readTo);
      const lines = (rest + bytes.toString('utf8')).split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) take(line);
    }
    if (performance.now() - periodStartedAt > shownPeriodMs) {
      if (hidden > 0) show(`${hidden} more lines, see ${path}`);
      periodStartedAt = performance.now();
      shown = 0;
      hidden = 0;
    }
    if (size > fileBytesMax) rotate();
  }

  function take(line: string): void {
    if (line !== '') last = line;
    if (!isWorthShowing(line)) return;
    if (shown < shownLinesMax) show(line);
    if (shown < shownLinesMax) shown += 1;
    else hidden += 1;
  }

  /** The child keeps its file descriptor, so the content is moved away and the file stays. */
  function rotate(): void {
    const earlier = `${path}.1`;
    rmSync(earlier, { force: true });
    try {
      copyFileSync(path, earlier);
    } catch {
      // On a full disk the content is given up: the log must end neither the supervisor nor, by its size, anything else.
    }
    ftruncateSync(fd, 0);
    readTo = 0;
  }

  return {
    path,
    /** For the child's stdout and stderr. */
    fd,
    /** Shows at once what was written since the last check. */
    flush,
    /** The last line written since the file was opened, for the message about a child that ended. */
    lastLine: () => rest || last,
    close() {
      flush();
      clearInterval(timer);
      closeSync(fd);
    },
  };
}
