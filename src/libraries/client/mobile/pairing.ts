// Pairing with the Event Visualizer: the server issues a secret and a short code. The code is shown until it expires, and the batches of
// the app carry the secret until one side ends the pairing. The device is not told when the code is entered or when the pairing ends: it
// learns that from the answers to its batches, and when it asks for a code again.

import type { Clock, Transport, TransportAnswer } from '../core/adapters.js';
import type { Client } from '../core/client.js';
import { parseJson } from '../core/json.js';
import type { CollectAnswer } from '../core/messages.js';
import type { PairingAdapters } from './adapters.js';
import { attempt } from './attempt.js';

export type PairingTarget = { readonly appId: string; readonly baseUrl: string };

export type PairingOptions = {
  readonly client: Pick<Client, 'setPairing' | 'warn'>;
  readonly transport: Transport;
  readonly clock: Clock;
  readonly display: () => PairingAdapters | undefined;
};

/** One pairing, from its request to its end. */
type Current = PairingTarget & {
  asking: boolean;
  secret?: string;
  /** Set while the code is shown. */
  code?: string;
  stopTimer: () => void;
};

const requestMs = 10_000;

/** The longest time for which a code is valid; assumed if the server does not say. */
const codeMs = 10 * 60_000;
const codeMsMax = 24 * 60 * 60_000;

/** Makes the pairing of a client; at first there is none. Nothing here throws or rejects. */
export function createPairing({ client, transport, clock, display }: PairingOptions) {
  let current: Current | undefined;

  /** Asks for a code and shows it. While the pairing is waiting or live, the server answers with the same code. */
  function start(target: PairingTarget): void {
    if (current?.appId !== target.appId) stop();
    current ??= { ...target, asking: false, stopTimer: () => {} };
    if (current.code !== undefined) show(current.code);
    if (!current.asking) void ask(current);
  }

  async function ask(asked: Current): Promise<void> {
    const { appId, secret } = asked;
    asked.asking = true;
    const answer = await post(asked, '', { app_id: appId, ...(secret !== undefined && { pairing: secret }) });
    asked.asking = false;
    const opened = readOpened(answer);
    if (current !== asked) {
      if (opened !== undefined) endAtServer({ ...asked, secret: opened.secret });
      return;
    }
    if (opened === undefined) {
      // An earlier pairing may still be live.
      if (secret === undefined) current = undefined;
      client.warn(`pairing with the Event Visualizer failed: ${reasonOf(answer)}.`);
      return;
    }
    if (opened.secret !== secret) client.setPairing(opened.secret);
    asked.secret = opened.secret;
    asked.stopTimer();
    asked.stopTimer = clock.setTimer(opened.codeMs, () => hide(asked));
    if (opened.code === asked.code) return;
    asked.code = opened.code;
    show(opened.code);
  }

  /** Ends the pairing on the device and at the server, even while it is still being requested. */
  function stop(): void {
    const stopped = leave();
    if (stopped?.secret !== undefined) endAtServer(stopped);
  }

  /** Ends the pairing on the device only. */
  function leave(): Current | undefined {
    const left = current;
    current = undefined;
    if (left?.secret !== undefined) client.setPairing(undefined);
    if (left !== undefined) hide(left);
    return left;
  }

  function endAtServer({ appId, baseUrl, secret }: Current): void {
    void post({ appId, baseUrl }, '/stop', { app_id: appId, pairing: secret });
  }

  function post({ baseUrl }: PairingTarget, path: string, body: object): Promise<TransportAnswer> {
    const url = `${baseUrl}/api/visualizer/pairings${path}`;
    return transport.send(url, JSON.stringify(body), requestMs).answer;
  }

  function show(code: string): void {
    const shown = attempt(client.warn, 'showPairingCode', () => {
      const show = display()?.showPairingCode;
      show?.(code);
      return show !== undefined;
    });
    if (shown !== true) client.warn(`the pairing code for the Event Visualizer is ${code}.`);
  }

  function hide(paired: Current): void {
    if (paired.code === undefined) return;
    delete paired.code;
    paired.stopTimer();
    attempt(client.warn, 'hidePairingCode', () => display()?.hidePairingCode?.());
  }

  return {
    start,
    stop,
    /** To be called with each answer to a batch, and with the secret that the batch carried. */
    onAnswer(answer: CollectAnswer, secret: string | undefined): void {
      // Answers to batches of former pairings may still arrive.
      if (current === undefined || secret === undefined || secret !== current.secret) return;
      // A device that is asking again is about to get another pairing.
      if (answer.pairing === 'ended' && !current.asking) leave();
    },
  };
}

type Opened = { readonly secret: string; readonly code: string; readonly codeMs: number };

function readOpened({ status, body }: TransportAnswer): Opened | undefined {
  if (status !== 201 && status !== 200) return undefined;
  const { pairing, code, expires_in: seconds } = parseJson(body);
  if (typeof pairing !== 'string' || pairing === '' || typeof code !== 'string') return undefined;
  return {
    secret: pairing,
    code,
    codeMs: typeof seconds === 'number' && seconds > 0 ? Math.min(seconds * 1000, codeMsMax) : codeMs,
  };
}

function reasonOf({ status, body }: TransportAnswer): string {
  if (status === 0) return 'no answer came';
  const message: unknown = parseJson(body).err?.message;
  // Otherwise the answer does not come from Sluice, and its status says enough.
  return typeof message === 'string' ? `${message} (${status})` : `the server answered ${status}`;
}
