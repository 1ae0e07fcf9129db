// The pages for administrators on ADMIN_PORT: files of src/console, read once. Pages load and run only this server's own files.

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { basename, extname, join } from 'node:path';
import type { Log } from '../../log.js';
import type { Exchange, Headers } from '../protocol/exchange.js';
import { notFound, type Route } from '../protocol/server.js';
import { serveEncoded } from './encoded.js';

const types: Readonly<Record<string, string>> = {
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
};

const protectionsOfAll: Headers = [
  ['X-Content-Type-Options', 'nosniff'],
  ['Referrer-Policy', 'no-referrer'],
];
const protections: Headers = [...protectionsOfAll, ['Cross-Origin-Resource-Policy', 'same-origin']];

/** Browsers do not cache a page, so each load gets the newest version. */
const always: Headers = [['Cache-Control', 'no-store'], ...protections];

/** The addresses of the console's pages. One HTML page serves them all. */
export const consolePaths = [
  '/',
  '/invitation',
  '/visualizer',
  '/keys-and-access',
  '/privacy-and-security',
  '/users',
  '/deletions',
  '/cases',
  '/certificate',
  '/verify',
  '/data-quality',
  '/live',
  '/operations',
  '/settings',
  '/api',
];

/** The console: its page under each of its addresses, and its files from the folder `built`. */
export function consoleRoutes(built: string, log: Log): Route[] {
  const html = readFileSync(join(built, 'console.html'), 'utf8');
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
        handle: (exchange) => pageReply(exchange.dropBody(), html, directives),
      }),
    ),
    {
      method: 'any',
      path: '/*',
      // People get a page, programs get JSON.
      handle: (exchange, req) =>
        req.getMethod() === 'get' && req.getHeader('accept').includes('text/html')
          ? pageReply(exchange.dropBody(), html, directives, 404)
          : notFound(exchange),
    },
    ...builtRoutes(
      built,
      ['console.js', ...partsOf(built), 'styles/console.css', 'styles/docs.css', 'sign.svg'],
      log,
    ),
    referenceRoute(readFileSync(join(built, 'reference/reference.html'), 'utf8')),
    // The frame has no origin, so these files are cross-origin to it.
    ...builtRoutes(built, ['reference.js'], log, [
      ...protectionsOfAll,
      ['Cross-Origin-Resource-Policy', 'cross-origin'],
    ]),
  ];
}

/** The scripts besides the console's own; their names are hashes of their content. */
function partsOf(built: string): readonly string[] {
  return readdirSync(built).filter((name) => /^console-\w+\.js$/.test(name));
}

/** Scripts and styles from the folder `built`, each at its name. */
export function builtRoutes(
  built: string,
  files: readonly string[],
  log: Log,
  headers: Headers = protections,
): Route[] {
  return files.map((file) => {
    const path = join(built, file);
    const isBuilt = existsSync(path);
    if (!isBuilt) log.warn({ path }, 'a file of the console was not built and is not served');
    const type = types[extname(file)] ?? '';
    const handle = isBuilt ? serveEncoded(type, 'no-cache', headers, readFileSync(path)) : notFound;
    return { method: 'get', path: `/${basename(file)}`, handle };
  });
}

/**
 * The frame of the console's API page. Its viewer may set any styles and HTML, so it is isolated: without an origin it can neither read
 * answers of the service nor reach the page around it.
 */
function referenceRoute(html: string): Route {
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
    handle: (exchange) => exchange.dropBody().reply(200, html, headers, 'text/html; charset=utf-8'),
  };
}

/** Answers with a page. Its policy allows the server's own styles, and what `directives` allow. */
export function pageReply(
  exchange: Exchange,
  html: string,
  directives: readonly string[],
  status = 200,
): void {
  const policy = [
    "default-src 'none'",
    "style-src 'self'",
    "img-src 'self'",
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
  exchange.reply(status, html, headers, 'text/html; charset=utf-8');
}
