// The documentation of this version, at /docs on ADMIN_PORT, so that the console's help describes the version that is running. The build
// copies the pages; their addresses are their places in the repository, so links between them work.

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Route } from '../protocol/server.js';
import { htmlOf } from './markdown.js';
import { pageReply } from './pages.js';

/** `built`: the folder with the pages. */
export function docsRoutes(built: string): Route[] {
  const paths = readdirSync(built, { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.md'))
    .sort();
  const known = new Set(paths);
  const textOf = (path: string) => readFileSync(join(built, path), 'utf8');
  const index = () => {
    const titles = paths.map((path) => [path, /^# (.+)$/m.exec(textOf(path))?.[1] ?? path] as const);
    const links = titles
      .toSorted(([, a], [, b]) => a.localeCompare(b, 'en'))
      .map(([path, title]) => `- [${title.replaceAll('`', '')}](${path})`);
    return `# Documentation\n\n${links.join('\n')}\n`;
  };
  // A page never changes while this version runs, and rendering it blocks other requests for a few milliseconds.
  const drawn = new Map<string, string>();
  const pageOf = (path: string): string => {
    const html = drawn.get(path) ?? draw(path);
    drawn.set(path, html);
    return html;
  };
  const draw = (path: string): string => {
    const text = path === '' ? index() : textOf(path);
    return page(
      htmlOf(text, (target) => hrefOf(path, target, known)),
      /^# (.+)$/m.exec(text)?.[1] ?? path,
    );
  };
  return [['', ''] as const, ...paths.map((path) => [`/${path}`, path] as const)].map(([address, path]) => ({
    method: 'get',
    path: `/docs${address}`,
    handle: (exchange) => pageReply(exchange.dropBody(), pageOf(path), []),
  }));
}

/** The address of a link; undefined if its target is not among the pages, since it would lead nowhere here. */
function hrefOf(path: string, target: string, known: ReadonlySet<string>): string | undefined {
  if (/^(https?:\/\/|#)/.test(target)) return target;
  const { pathname, hash } = new URL(target, `file:///${path}`);
  return known.has(pathname.slice(1)) ? `/docs${pathname}${hash}` : undefined;
}

function page(html: string, title: string): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title.replaceAll('`', '')} · Sluice</title>
<link rel="icon" href="/sign.svg" type="image/svg+xml">
<link rel="stylesheet" href="/docs.css">
</head>
<body>
<header class="bar">
<a class="brand" href="/docs"><img class="sign" src="/sign.svg" alt="" width="24" height="24"> Sluice <span class="of">documentation</span></a>
<nav aria-label="Console"><a href="/">Console</a></nav>
</header>
<main class="prose">
${html}
</main>
</body>
</html>
`;
}
