// The calls of the library that were made in this tab, each with how long it took until ClickHouse could answer for it; and the users
// who made them.

import { computed, signal } from '@preact/signals';
import type { Answer } from '../commands.js';

export type Arrived = Pick<Answer<'showLive'>, 'events'> & {
  /** Merged as they are now. */
  readonly users: readonly {
    readonly identity: string;
    readonly user_ids: readonly string[];
    readonly properties: Readonly<Record<string, string>>;
  }[];
};

/** Words if the call sends nothing, else whether it has arrived. */
export type Outcome = string | ((answer: Arrived) => boolean);
/** Of a call of which nothing is left. */
export const refused = 'refused';

type Caller = { readonly userId: string | undefined; readonly identity?: string | undefined };
type Call = {
  readonly key: number;
  readonly code: string;
  /** What the library said of it in the browser's console. */
  readonly told: readonly string[];
  readonly tone: '' | 'accent' | 'good' | 'warn' | 'bad';
  readonly words: string;
  readonly arrived?: (answer: Arrived) => boolean;
  readonly calledAt: number;
};

const callsMax = 50;
/** After this time the cause is something else than waiting. */
const waitMsMax = 20_000;
/** Users that are asked for, the latest first. */
const idsMax = 5;

export const calls = signal<readonly Call[]>([]);
export const isWaiting = computed(() => calls.value.some(({ tone }) => tone === 'accent'));
export const userIds: string[] = [];
export const identities: string[] = [];

let told: string[] = [];
const { warn } = console;
console.warn = (line, ...more) => {
  warn.call(console, line, ...more);
  if (String(line).startsWith('Sluice: ')) told.push(String(line).slice('Sluice: '.length));
};

let lastMark = 0;

/** A value by which this page finds its own message again. */
export function mark(): string {
  lastMark += 1;
  return `${Date.now().toString(36)}-${lastMark}`;
}

export function hasEvent(call: string): Outcome {
  return ({ events }) => events.some(({ properties }) => properties.call === call);
}

/** Whether the library has refused something of the present call, as its words begin. */
export function wasRefused(beginning = ''): boolean {
  return told.some((line) => line.startsWith(beginning));
}

export function makeCall(caller: Caller, code: string, work: () => Outcome): void {
  told = [];
  const outcome = work();
  const state: Pick<Call, 'tone' | 'words' | 'arrived'> =
    typeof outcome === 'string'
      ? { tone: outcome === refused ? 'bad' : '', words: outcome }
      : { tone: 'accent', words: 'on its way…', arrived: outcome };
  const key = (calls.value[0]?.key ?? 0) + 1;
  calls.value = [{ key, code, told: [...told], calledAt: performance.now(), ...state }, ...calls.value].slice(
    0,
    callsMax,
  );
  rememberUser(caller);
}

/** Looks which calls have arrived. One that was made offline may still come after it was late. */
export function settleCalls(answer: Arrived): void {
  const now = performance.now();
  calls.value = calls.value.map((call) => {
    if (call.arrived === undefined || call.tone === 'good') return call;
    const tookMs = now - call.calledAt;
    if (call.arrived(answer))
      return { ...call, tone: 'good', words: `queryable after ${(tookMs / 1000).toFixed(1)} s` };
    return tookMs > waitMsMax ? { ...call, tone: 'warn', words: 'not there after 20 s' } : call;
  });
}

/** From now on also asks for this user; an absent or empty name asks for none. */
export function rememberUser({ userId, identity }: Caller): void {
  remember(userIds, userId);
  remember(identities, identity);
}

function remember(list: string[], id: string | undefined): void {
  if (id === undefined || id === '') return;
  const at = list.indexOf(id);
  if (at >= 0) list.splice(at, 1);
  list.unshift(id);
  list.length = Math.min(list.length, idsMax);
}
