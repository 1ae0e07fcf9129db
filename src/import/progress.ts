// What an import prints on stderr while it runs: a progress bar on a terminal, otherwise a line every ten seconds.

import { SingleBar } from 'cli-progress';
import type { RateLimit, Sender } from './sender.js';
import type { Counts } from './state.js';

const everyMs = { bar: 250, line: 10_000 };

/** Shows the progress. `share`: how much of the bytes or rows of all files is done, from 0 to 1. */
export function showProgress(
  counts: () => Counts,
  share: () => number,
  { waiting, limit }: Pick<Sender, 'waiting' | 'limit'>,
) {
  const beganMs = performance.now();
  const before = counts().read;
  /** The share that was shown first: a continued import starts with what was done before. */
  let first: { readonly share: number; readonly ms: number } | undefined;
  const rate = () =>
    Math.round((counts().read - before) / Math.max(0.001, (performance.now() - beganMs) / 1000));
  const words = () => {
    const { read, refused } = counts();
    const [now, nowMs] = [share(), performance.now()];
    if (now > 0) first ??= { share: now, ms: nowMs };
    const done = now - (first?.share ?? now);
    const spentS = done > 0 ? ((nowMs - (first?.ms ?? nowMs)) / 1000) * ((1 - now) / done) : undefined;
    const met = limit();
    // The speed of rows before they met a limit says nothing about their speed under it.
    const limitedS = met === undefined || now === 0 ? 0 : ((read / now - read) / met.rowsMax) * met.seconds;
    const leftS = spentS === undefined ? undefined : Math.max(spentS, limitedS);
    const why = waiting();
    return [
      `${read.toLocaleString('en')} rows`,
      `${rate().toLocaleString('en')}/s`,
      ...(leftS === undefined ? [] : [`${Math.ceil(leftS).toLocaleString('en')} s left`]),
      ...(refused === 0 ? [] : [`${refused.toLocaleString('en')} refused`]),
      ...(why === undefined ? [] : [why === 'limits' ? limitWords(met) : 'waiting for the service']),
    ].join(', ');
  };
  if (!process.stderr.isTTY) {
    const timer = setInterval(() => {
      process.stderr.write(`import: ${Math.floor(share() * 100)}%, ${words()}\n`);
    }, everyMs.line);
    return { stop: () => clearInterval(timer) };
  }
  const bar = new SingleBar({
    format: '{bar} {percentage}% {words}',
    stream: process.stderr,
    barsize: 24,
    clearOnComplete: true,
    gracefulExit: false,
  });
  bar.start(1000, 0, { words: '' });
  const timer = setInterval(() => bar.update(Math.floor(share() * 1000), { words: words() }), everyMs.bar);
  return {
    stop: () => {
      clearInterval(timer);
      bar.update(1000, { words: words() });
      bar.stop();
    },
  };
}

function limitWords(limit: RateLimit | undefined): string {
  const which =
    limit === undefined
      ? ''
      : ` (${limit.name}: ${limit.rowsMax.toLocaleString('en')} in ${limit.seconds} s)`;
  return `waiting for limits${which}; --import-token lifts them`;
}
