// The lines that a page carries: they make `sluice` at once, keep the calls until the script is there, and load
// it without holding up the page. If it never comes, they keep a thousand calls and nothing else happens.

import type { LoadOptions, Sluice } from './sluice.js';

/** Changes when the snippet does; an older one is given the methods that it lacks once the script is there. */
export const snippetVersion = 3;

/** Calls that are kept until the script is there. */
export const snippetCallsMax = 1000;

type Method = {
  [Name in keyof Sluice]: Sluice[Name] extends (...args: never[]) => unknown ? Name : never;
}[keyof Sluice];

export const methods: readonly Method[] = [
  'load',
  'track',
  'identify',
  'resetIdentity',
  'addUserProperties',
  'addEventProperties',
  'removeEventProperty',
  'clearEventProperties',
  'optOut',
  'optIn',
  'flush',
];

/** A call that waits: the method, its arguments, and when it was made, in milliseconds since 1970. */
export type WaitingCall = readonly [method: string, args: readonly unknown[], atMs?: number];

export type SnippetOptions = LoadOptions & {
  readonly appId: string;
  /** Address of the script; default: `/sdk.js` of the base URL. */
  readonly script?: string;
};

/** The snippet as JavaScript, to stand in a `<script>` element in the page's head. */
export function snippet({ appId, script, ...options }: SnippetOptions): string {
  const src = script ?? `${options.baseUrl.replace(/\/+$/, '')}/sdk.js`;
  return `!function(w,d,s,e){s=w.sluice=w.sluice||{};if(s.snippetVersion||s.load)return;s.snippetVersion=${snippetVersion};s.calls=[];
${inScript(methods.join(' '))}.split(" ").forEach(function(m){s[m]=function(){s.calls.length<${snippetCallsMax}&&s.calls.push([m,[].slice.call(arguments),+new Date]);if(m=="flush")return Promise.resolve()}});
e=d.createElement("script");e.async=1;e.src=${inScript(src)};(d.head||d.documentElement).appendChild(e)}(window,document);
sluice.load(${inScript(appId)},${inScript(options)});`;
}

/** A value as JavaScript that nothing in it can end the script element. */
function inScript(value: unknown): string {
  return JSON.stringify(value).replace(/[<>&\u2028\u2029]/g, (character) => {
    return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
  });
}
