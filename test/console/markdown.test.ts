// The documentation's Markdown as HTML.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { htmlOf } from '../../src/http/pages/markdown.js';

const html = (...lines: string[]) =>
  htmlOf(lines.join('\n'), (target) => (target.startsWith('gone') ? undefined : target));

test('headings have the anchors that links name', () => {
  assert.equal(
    html('## `Redis` is *lost*, or not?'),
    '<h2 id="redis-is-lost-or-not"><code>Redis</code> is <em>lost</em>, or not?</h2>',
  );
});

test('text that looks like HTML stays text', () => {
  assert.equal(html('a < b & `<img>` "c"'), '<p>a &lt; b &amp; <code>&lt;img></code> &quot;c&quot;</p>');
  assert.equal(
    html('```sh', 'echo "<b>" **no**', '', '# no heading', '```'),
    '<pre><code>echo &quot;&lt;b>&quot; **no**\n\n# no heading</code></pre>',
  );
});

test('a link that leads nowhere here leaves its words', () => {
  assert.equal(
    html('[see `a]`](b.md#c), [d](gone.ts), ![a picture](e.svg)'),
    '<p><a href="b.md#c">see <code>a]</code></a>, d, <em>a picture</em></p>',
  );
});

test('lists hold paragraphs, code and lists', () => {
  assert.equal(
    html(
      '- one',
      '  goes on',
      '- **two**',
      '  - inner',
      '',
      '  ```text',
      '  code',
      '  ```',
      '',
      '1. first',
      '2. second',
    ),
    '<ul><li>one goes on</li><li><strong>two</strong>\n<ul><li>inner</li></ul>\n<pre><code>code</code></pre></li></ul>\n<ol><li>first</li><li>second</li></ol>',
  );
});

test('a wrapped line that begins with a number begins no list', () => {
  assert.equal(html('the port is', '9010. It is open'), '<p>the port is 9010. It is open</p>');
});

test('cells of a table may have bars', () => {
  assert.equal(
    html('| a | b |', '|---|---:|', '| `x \\| y` | 2 |'),
    '<table><thead><tr><th scope="col">a</th><th scope="col">b</th></tr></thead><tbody><tr><td><code>x | y</code></td><td>2</td></tr></tbody></table>',
  );
});
