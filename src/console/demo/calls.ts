// The calls of the library that were made in this tab, each with the time until its effect could be queried in ClickHouse, and the
// users who made them.

import { computed, signal } from '@preact/signals';
import type { Answer } from '../api.js';

export type Arrived = Pick<Answer<'showLive'>, 'events'> & {
  /** The users, as they are merged now. */
  readonly users: readonly {
    readonly identity: string;
    readonly user_ids: readonly string[];
    readonly properties: Readonly<Record<string, string>>;
  }[];
};

/** What a call should lead to: a text if it sends nothing, otherwise a check whether its effect has arrived. */
export type Outcome = string | ((answer: Arrived) => boolean);
/** The text for a call of which the library sent nothing. */
export const refused = 'refused';

type Caller = { readonly userId: string | undefined; readonly identity?: string | undefined };
type Call = {
  readonly key: number;
  readonly code: string;
  /** What the library said about the call in the browser's console. */
  readonly messages: readonly string[];
  readonly tone: '' | 'accent' | 'good' | 'warn' | 'bad';
  readonly words: string;
  readonly arrived?: (answer: Arrived) => boolean;
  readonly calledAt: number;
};

const callsMax = 50;
/** A call that takes longer than this is not merely waiting: something is wrong. */
const waitMsMax = 20_000;
/** How many users the page asks about, the latest ones. */
const idsMax = 5;

export const calls = signal<readonly Call[]>([]);
export const isWaiting = computed(() => calls.value.some(({ tone }) => tone === 'accent'));
export const userIds: string[] = [];
export const identities: string[] = [];

let messages: string[] = [];
const { warn } = console;
console.warn = (line, ...more) => {
  warn.call(console, line, ...more);
  if (String(line).startsWith('Sluice: ')) messages.push(String(line).slice('Sluice: '.length));
};

let lastMark = 0;

/** A random value by which this page recognises its own message. */
export function mark(): string {
  lastMark += 1;
  return `${Date.now().toString(36)}-${lastMark}`;
}

export function hasEvent(call: string): Outcome {
  return ({ events }) => events.some(({ properties }) => properties.call === call);
}

/** Whether the library has refused a part of the current call with a warning that begins like this. */
export function wasRefused(beginning = ''): boolean {
  return messages.some((line) => line.startsWith(beginning));
}

export function makeCall(caller: Caller, code: string, work: () => Outcome): void {
  messages = [];
  const outcome = work();
  const state: Pick<Call, 'tone' | 'words' | 'arrived'> =
    typeof outcome === 'string'
      ? { tone: outcome === refused ? 'bad' : '', words: outcome }
      : { tone: 'accent', words: 'on its way…', arrived: outcome };
  const key = (calls.value[0]?.key ?? 0) + 1;
  calls.value = [
    { key, code, messages: [...messages], calledAt: performance.now(), ...state },
    ...calls.value,
  ].slice(0, callsMax);
  rememberUser(caller);
}

/** Records which calls have arrived. A call made offline may still arrive after it counted as late. */
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

/** Also asks about this user from now on. Skips absent and empty names. */
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
