// The pages for administrators on ADMIN_PORT: static files, read once. Nothing but this server's own files
// runs in them, and nothing else is loaded.

import { readdirSync, readFileSync } from 'node:fs';
import { extname } from 'node:path';
import type { Exchange, Headers } from './exchange.js';
import { type Route, withoutBody } from './server.js';

const folder = new URL('./pages/', import.meta.url);

export const scriptType = 'text/javascript; charset=utf-8';

const types: Readonly<Record<string, string>> = {
  '.css': 'text/css; charset=utf-8',
  '.js': scriptType,
};

const always: Headers = [
  // A new version is there at the next load, and nothing of a page is kept.
  ['Cache-Control', 'no-store'],
  ['X-Content-Type-Options', 'nosniff'],
  ['Referrer-Policy', 'no-referrer'],
  ['Cross-Origin-Resource-Policy', 'same-origin'],
];

/** Styles and scripts, under /pages. */
export function pageFileRoutes(): Route[] {
  return readdirSync(folder)
    .filter((name) => types[extname(name)] !== undefined)
    .map((name) => fileRoute(`/pages/${name}`, readPage(name), types[extname(name)] as string));
}

/** The Event Visualizer's page; without an ADMIN_TOKEN it says that it is off. */
export function visualizerPageRoute(administration: boolean): Route {
  const html = readPage('visualizer.html').replace('{{administration}}', administration ? 'on' : 'off');
  const directives = ["script-src 'self'", "connect-src 'self'", "require-trusted-types-for 'script'"];
  return {
    method: 'get',
    path: '/visualizer',
    handle: (exchange) => pageReply(withoutBody(exchange), html, directives),
  };
}

/** Answers with a page that may do what the directives of its policy say, beside its own styles. */
export function pageReply(exchange: Exchange, html: string, directives: readonly string[]): void {
  const policy = [
    "default-src 'none'",
    "style-src 'self'",
    'img-src data:',
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    ...directives,
  ].join('; ');
  const headers: Headers = [
    ...always,
    ['Content-Security-Policy', policy],
    ['X-Frame-Options', 'DENY'],
    ['Cross-Origin-Opener-Policy', 'same-origin'],
  ];
  exchange.reply(200, html, headers, 'text/html; charset=utf-8');
}

export function readPage(name: string): string {
  return readFileSync(new URL(name, folder), 'utf8');
}

/** Serves a text under a path. */
export function fileRoute(path: string, text: string, type: string): Route {
  return {
    method: 'get',
    path,
    handle: (exchange) => withoutBody(exchange).reply(200, text, always, type),
  };
}
