// The pages for administrators on ADMIN_PORT: static files, read once. Pages load and run this server's own files only.

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { extname, join } from 'node:path';
import type { Log } from '../../log.js';
import type { Exchange, Headers } from '../protocol/exchange.js';
import { notFound, type Route, withoutBody } from '../protocol/server.js';
import { serveEncoded } from './encoded.js';

const folder = new URL('./static/', import.meta.url);

export const scriptType = 'text/javascript; charset=utf-8';

const types: Readonly<Record<string, string>> = {
  '.css': 'text/css; charset=utf-8',
  '.js': scriptType,
};

const protectionsOfAll: Headers = [
  ['X-Content-Type-Options', 'nosniff'],
  ['Referrer-Policy', 'no-referrer'],
];
const protections: Headers = [...protectionsOfAll, ['Cross-Origin-Resource-Policy', 'same-origin']];

/** The next load gets a new version, and browsers keep nothing of a page. */
const always: Headers = [['Cache-Control', 'no-store'], ...protections];

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

/** The addresses of the console's pages. One page shows them all. */
export const consolePaths = [
  '/',
  '/invitation',
  '/privacy-and-security',
  '/users',
  '/deletions',
  '/data-quality',
  '/live',
  '/settings',
  '/api',
];

/** The console: its page under each of its addresses, and its scripts from the folder `built`. */
export function consoleRoutes(built: string, log: Log): Route[] {
  const html = readPage('console.html');
  const directives = [
    "script-src 'self'",
    "connect-src 'self'",
    "frame-src 'self'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ];
  return [
    ...consolePaths.map(
      (path): Route => ({
        method: 'get',
        path,
        handle: (exchange) => pageReply(withoutBody(exchange), html, directives),
      }),
    ),
    scriptRoute('/console.js', join(built, 'console.js'), protections, log),
    scriptRoute('/user-lists.js', join(built, 'user-lists.js'), protections, log),
    referenceRoute(),
    // The frame has no origin, so it is none of ours.
    scriptRoute(
      '/reference.js',
      join(built, 'reference.js'),
      [...protectionsOfAll, ['Cross-Origin-Resource-Policy', 'cross-origin']],
      log,
    ),
  ];
}

function scriptRoute(path: string, file: string, headers: Headers, log: Log): Route {
  const isBuilt = existsSync(file);
  if (!isBuilt) log.warn({ path: file }, 'a script of the console was not built and is not served');
  const handle = isBuilt ? serveEncoded(scriptType, 'no-cache', headers, readFileSync(file)) : notFound;
  return { method: 'get', path, handle };
}

/**
 * The frame of the console's page API. Its viewer may set styles and HTML as it likes, so it is alone: without an origin, it
 * neither reads answers of the service nor reaches the page around it.
 */
function referenceRoute(): Route {
  const html = readPage('reference.html');
  const policy = [
    'sandbox allow-scripts',
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'unsafe-inline'",
    'img-src data:',
    'font-src data:',
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'self'",
  ].join('; ');
  const headers: Headers = [...always, ['Content-Security-Policy', policy]];
  return {
    method: 'get',
    path: '/reference',
    handle: (exchange) => withoutBody(exchange).reply(200, html, headers, 'text/html; charset=utf-8'),
  };
}

/** Answers with a page. Its policy allows its own styles and what the directives say. */
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
