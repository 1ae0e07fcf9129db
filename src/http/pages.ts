// The pages for administrators on ADMIN_PORT: static files, read once. Nothing but this server's own files
// runs in them, and nothing else is loaded.

import { readdirSync, readFileSync } from 'node:fs';
import { extname } from 'node:path';
import { Exchange, type Headers } from './exchange.js';
import { type Route, withoutBody } from './server.js';

const folder = new URL('./pages/', import.meta.url);

const types: Readonly<Record<string, string>> = {
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
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
    .map((name) => fileRoute(`/pages/${name}`, readPage(name), types[extname(name)] as string, always));
}

/** The Event Visualizer's page; without an ADMIN_TOKEN it says that it is off. */
export function visualizerPageRoute(administration: boolean): Route {
  const html = readPage('visualizer.html').replace('{{administration}}', administration ? 'on' : 'off');
  return pageRoute('/visualizer', html, ["connect-src 'self'", "require-trusted-types-for 'script'"]);
}

/** A page that may do what the directives of its policy say, beside its own scripts and styles. */
export function pageRoute(path: string, html: string, directives: readonly string[]): Route {
  const policy = [
    "default-src 'none'",
    "style-src 'self'",
    'img-src data:',
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    ...(directives.some((directive) => directive.startsWith('script-src')) ? [] : ["script-src 'self'"]),
    ...directives,
  ].join('; ');
  return fileRoute(path, html, 'text/html; charset=utf-8', [
    ...always,
    ['Content-Security-Policy', policy],
    ['X-Frame-Options', 'DENY'],
    ['Cross-Origin-Opener-Policy', 'same-origin'],
  ]);
}

export function readPage(name: string): string {
  return readFileSync(new URL(name, folder), 'utf8');
}

export function fileRoute(path: string, text: string, type: string, headers: Headers): Route {
  return {
    method: 'get',
    path,
    handle: (res, req) => withoutBody(new Exchange(res, req)).reply(200, text, headers, type),
  };
}
