// Renders the documentation's Markdown as HTML. It knows only the syntax that our pages use.

/** `hrefOf`: the address of a link; undefined leaves only the link's text. */
export function htmlOf(markdown: string, hrefOf: (target: string) => string | undefined): string {
  return blocks(markdown.split('\n'), (text) => inline(text, hrefOf));
}

/** The id of a heading, as GitHub forms it. */
function anchorOf(heading: string): string {
  return heading
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
    .replaceAll(/\s/g, '-');
}

export function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;');
}

const fence = /^```(\w*)$/;
const heading = /^(#+) (.+)$/;
const item = /^(- |\d+\. )(.*)$/;
/** A number begins a list only after a blank line, since wrapped lines may begin with a number. */
const interrupts = /^(```|#+ |- |\|)/;

function blocks(lines: readonly string[], inlineOf: (text: string) => string): string {
  const html: string[] = [];
  let at = 0;
  /** Takes the next lines for as long as `holds` is true. */
  const take = (holds: (line: string) => boolean): string[] => {
    const from = at;
    while (at < lines.length && holds(lines[at] ?? '')) at += 1;
    return lines.slice(from, at);
  };
  while (at < lines.length) {
    const line = lines[at] ?? '';
    const [, level, title] = heading.exec(line) ?? [];
    if (line.trim() === '') at += 1;
    else if (fence.test(line)) {
      at += 1;
      const program = take((next) => next !== '```');
      at += 1;
      // Diagrams are left out, since drawing them would need another program.
      if (line !== '```mermaid') html.push(`<pre><code>${escaped(program.join('\n'))}</code></pre>`);
    } else if (level !== undefined && title !== undefined) {
      at += 1;
      html.push(`<h${level.length} id="${anchorOf(title)}">${inlineOf(title)}</h${level.length}>`);
    } else if (line.startsWith('|'))
      html.push(
        table(
          take((next) => next.startsWith('|')),
          inlineOf,
        ),
      );
    else if (item.test(line)) html.push(list());
    else {
      at += 1;
      const text = [line, ...take((next) => next.trim() !== '' && !interrupts.test(next))];
      html.push(`<p>${inlineOf(text.join(' '))}</p>`);
    }
  }
  return html.join('\n');

  function list(): string {
    const tag = lines[at]?.startsWith('- ') ? 'ul' : 'ol';
    const items: string[] = [];
    for (;;) {
      const [, mark, first] = item.exec(lines[at] ?? '') ?? [];
      if (mark === undefined || first === undefined || (mark === '- ') !== (tag === 'ul')) break;
      at += 1;
      const indent = ' '.repeat(mark.length);
      // Blank lines belong to the list if the line after them is indented.
      const more = take((next) => {
        const following = next.trim() === '' ? (lines[at + 1] ?? '') : next;
        return (
          following.startsWith(' ') || (next.trim() !== '' && !interrupts.test(next) && !item.test(next))
        );
      });
      const inner = blocks(
        [first, ...more.map((next) => (next.startsWith(indent) ? next.slice(indent.length) : next))],
        inlineOf,
      );
      items.push(`<li>${inner.replace(/^<p>(.*)<\/p>/, '$1')}</li>`);
    }
    return `<${tag}>${items.join('')}</${tag}>`;
  }
}

function table([head = '', , ...rows]: readonly string[], inlineOf: (text: string) => string): string {
  const cellsOf = (row: string) =>
    row
      .replaceAll(/^\||\|$/g, '')
      .split(/(?<!\\)\|/)
      .map((cell) => inlineOf(cell.trim().replaceAll('\\|', '|')));
  const titles = cellsOf(head);
  const body = rows.map((row) => {
    const cells = cellsOf(row).map((cell) => `<td>${cell}</td>`);
    return `<tr>${cells.join('')}</tr>`;
  });
  const heads = titles.map((title) => `<th scope="col">${title}</th>`).join('');
  return `<table><thead><tr>${heads}</tr></thead><tbody>${body.join('')}</tbody></table>`;
}

/** Code, images (as their text), links, bold and emphasis. */
const spans =
  /(`+)(.+?)\1|!\[([^\]]*)\]\([^)]*\)|\[((?:`[^`]*`|[^\]`])*)\]\(([^)\s]+)\)|\*\*(.+?)\*\*|\*([^\s*][^*]*)\*/g;

function inline(text: string, hrefOf: (target: string) => string | undefined): string {
  let html = '';
  let from = 0;
  for (const found of text.matchAll(spans)) {
    html += escaped(text.slice(from, found.index));
    from = found.index + found[0].length;
    const [, , code, picture, words, target, bold, emphasis] = found;
    if (code !== undefined) html += `<code>${escaped(code.trim())}</code>`;
    else if (picture !== undefined) html += `<em>${escaped(picture)}</em>`;
    else if (words !== undefined && target !== undefined) {
      const href = hrefOf(target);
      const said = inline(words, hrefOf);
      html += href === undefined ? said : `<a href="${escaped(href)}">${said}</a>`;
    } else if (bold !== undefined) html += `<strong>${inline(bold, hrefOf)}</strong>`;
    else html += `<em>${inline(emphasis ?? '', hrefOf)}</em>`;
  }
  return html + escaped(text.slice(from));
}
