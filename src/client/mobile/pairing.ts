// Pairing with the Event Visualizer: the server gives a secret and a short code, the code is shown until it is
// entered or too old, and the batches of the app carry the secret until one side ends it. The device is not
// told when the code is entered; it learns from the answers to its batches whether the pairing still lives.

import type { Clock, Transport, TransportAnswer } from '../core/adapters.js';
import type { Client } from '../core/client.js';
import type { CollectAnswer } from '../core/messages.js';
import type { PairingAdapters } from './adapters.js';
import { attempt } from './attempt.js';

export type Pairing = {
  /** Asks for a code and shows it; while one is shown or the pairing is known to live, nothing new begins. */
  start(target: PairingTarget): void;
  /** Ends the pairing here and at the server, also one that is just being asked for. */
  stop(): void;
  /** To be told of each answer to a batch, and of the secret that the batch carried. */
  onAnswer(answer: CollectAnswer, secret: string | undefined): void;
};

export type PairingTarget = { readonly appId: string; readonly baseUrl: string };

export type PairingOptions = {
  readonly client: Pick<Client, 'setPairing' | 'warn'>;
  readonly transport: Transport;
  readonly clock: Clock;
  readonly display: () => PairingAdapters | undefined;
};

/** One pairing, from the question to its end. */
type Current = PairingTarget & {
  secret?: string;
  /** While it is shown. */
  code?: string;
  /** Whether an answer since the code became too old showed that the pairing lives. */
  alive: boolean;
};

const requestMs = 10_000;

/** When the server does not say how long the code is good for, and at most. */
const codeMs = 10 * 60_000;
const codeMsMax = 24 * 60 * 60_000;

/** Makes the pairing of a client, which has none at first. Nothing here throws or rejects. */
export function createPairing({ client, transport, clock, display }: PairingOptions): Pairing {
  let current: Current | undefined;

  function start(target: PairingTarget): void {
    if (current?.appId === target.appId) {
      if (current.code !== undefined) show(current.code);
      const goesOn = current.secret === undefined || current.code !== undefined || current.alive;
      if (goesOn) return;
    }
    stop();
    const asked: Current = { ...target, alive: false };
    current = asked;
    void ask(asked);
  }

  async function ask(asked: Current): Promise<void> {
    const answer = await post(asked, '', { app_id: asked.appId });
    const opened = readOpened(answer);
    if (opened === undefined) {
      if (current !== asked) return;
      current = undefined;
      client.warn(`pairing with the Event Visualizer failed: ${reasonOf(answer)}.`);
      return;
    }
    asked.secret = opened.secret;
    if (current !== asked) {
      endAtServer(asked);
      return;
    }
    asked.code = opened.code;
    clock.setTimer(opened.codeMs, () => hide(asked));
    client.setPairing(opened.secret);
    show(opened.code);
  }

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
    attempt(client.warn, 'hidePairingCode', () => display()?.hidePairingCode?.());
  }

  return {
    start,
    stop,
    onAnswer(answer, secret) {
      // Answers to batches of former pairings may still come.
      if (current === undefined || secret === undefined || secret !== current.secret) return;
      if (answer.pairing === 'ended') leave();
      else if (current.code === undefined) current.alive = true;
    },
  };
}

type Opened = { readonly secret: string; readonly code: string; readonly codeMs: number };

function readOpened({ status, body }: TransportAnswer): Opened | undefined {
  if (status !== 201 && status !== 200) return undefined;
  try {
    const { pairing, code, expires_in: seconds } = JSON.parse(body);
    if (typeof pairing !== 'string' || pairing === '' || typeof code !== 'string') return undefined;
    return { secret: pairing, code, codeMs: seconds > 0 ? Math.min(seconds * 1000, codeMsMax) : codeMs };
  } catch {
    return undefined;
  }
}

function reasonOf({ status, body }: TransportAnswer): string {
  if (status === 0) return 'no answer came';
  try {
    const { message } = JSON.parse(body).err;
    if (typeof message === 'string') return `${message} (${status})`;
  } catch {
    // No answer of Sluice: its status says enough.
  }
  return `the server answered ${status}`;
}
