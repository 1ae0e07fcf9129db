// The lines that a page contains. They create `sluice` at once, store the calls until the script has loaded, and load the script without
// delaying the page. A second snippet does nothing: a page records for one environment. If the script never loads, they store a thousand
// calls, and nothing else happens. They run in every browser, and throw in none.

import type { LoadOptions, Sluice } from './surface.js';

/** The version, which changes with the snippet. The script gives an older snippet the methods that it lacks. */
export const snippetVersion = 5;

/** How many calls are stored until the script has loaded; and additionally, how many calls that add nothing, such as an opt-out. */
export const snippetCallsMax = 1000;

/** The operations that are calls. */
export type Method = {
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

/** A waiting call: the method, copies of its arguments, and when it was made, in milliseconds since 1970. */
export type WaitingCall = readonly [method: string, args: readonly unknown[], atMs?: number];

export type SnippetOptions = Omit<LoadOptions, 'pageViews'> & {
  /** The snippet is text and contains no functions: a page that needs one, such as `beforeSend`, calls `load` itself. */
  readonly pageViews?: boolean | { readonly query?: boolean };
  readonly appId: string;
  /** Address of the script; default: `/sdk.js` below the base URL. */
  readonly script?: string;
};

/** The snippet as JavaScript, for a `<script>` element in the page's head. */
export function snippet({ appId, script, ...options }: SnippetOptions): string {
  const src = script ?? `${options.baseUrl.replace(/\/+$/, '')}/sdk.js`;
  return `!function(w,d,s,e,u,t){s=w.sluice=w.sluice||{};if(s.snippetVersion||s.load){try{console.warn("Sluice: a second snippet is ignored.")}catch(x){}return}s.snippetVersion=${snippetVersion};s.calls=[];s.lost=0;
function c(a,o){if(Object.prototype.toString.call(a)!="[object Object]")return a;o={};try{Object.keys(a).forEach(function(k){o[k]=a[k]});return o}catch(x){return a}}
${inScript(methods.join(' '))}.split(" ").forEach(function(m){s[m]=function(){s.calls.length<(/^track|^add/.test(m)?${snippetCallsMax}:${2 * snippetCallsMax})?s.calls.push([m,[].slice.call(arguments).map(function(a){return c(a)}),+new Date]):s.lost++;if(m=="flush")return Promise.resolve()}});
u=${inScript(src)};t=w.trustedTypes;try{e=d.createElement("script");e.async=1;e.src=t?t.createPolicy("sluice",{createScriptURL:function(a){return a}}).createScriptURL(u):u;(d.head||d.documentElement).appendChild(e)}catch(x){}
s.load(${inScript(appId)},${inScript(options)})}(window,document);`;
}

/** A value as JavaScript, escaped so that it cannot end the script element. */
function inScript(value: unknown): string {
  return JSON.stringify(value).replace(/[<>&\u2028\u2029]/g, (character) => {
    return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
  });
}
