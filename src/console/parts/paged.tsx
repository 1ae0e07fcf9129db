// Long lists, which the service sends in pages.

import type { ComponentChildren } from 'preact';
import { useRef, useState } from 'preact/hooks';
import { csvOf } from '../../parsing/csv/write.js';
import { saveFile } from './file.js';
import { ActionButton } from './form.js';
import { Loaded } from './parts.js';
import { type Resource, useLoad } from './resource.js';

export type Paged<Page> = {
  readonly pages: Resource<readonly Page[]>;
  /** Loads the page after the last one; undefined if there is none. */
  readonly more: (() => Promise<void>) | undefined;
  readonly reload: () => void;
};

/**
 * Loads a list page by page. `of` identifies the list, as in useLoad. `load` loads the page at a cursor, or the first page without one;
 * `next` returns the cursor after a page. With `everyMs` all open pages are reloaded regularly, on average one page in that time.
 */
export function usePages<Page, Cursor>(
  of: string,
  load: (after?: Cursor) => Promise<Page>,
  next: (page: Page) => Cursor | undefined,
  everyMs?: number,
): Paged<Page> {
  const [opened, setOpened] = useState<{ readonly of: string; readonly further: readonly Page[] }>({
    of,
    further: [],
  });
  const present = useRef(of);
  present.current = of;
  const further = opened.of === of ? opened.further : [];
  const open = 1 + further.length;
  const loadOpen = async () => {
    const pages = [await load()];
    while (pages.length < open) {
      const cursor = next(pages.at(-1) as Page);
      if (cursor === undefined) break;
      pages.push(await load(cursor));
    }
    return { open, pages };
  };
  const { data, ...loaded } = useLoad(of, loadOpen, everyMs === undefined ? undefined : everyMs * open);
  // Pages opened since the last load follow the loaded ones.
  const pages = data && [...data.pages, ...further.slice(data.open - 1)];
  const last = pages?.at(-1);
  const cursor = last === undefined ? undefined : next(last);
  return {
    pages: { ...loaded, data: pages },
    more:
      cursor === undefined
        ? undefined
        : async () => {
            const page = await load(cursor);
            if (present.current === of) setOpened({ of, further: [...further, page] });
          },
    reload: () => {
      setOpened({ of, further: [] });
      loaded.reload();
    },
  };
}

/**
 * A button that loads a whole list, page by page, and saves it as CSV. `load` and `next` are those of `usePages`; `rowsOf` returns the rows of
 * a page; `says` shows how many rows are loaded meanwhile.
 */
export function DownloadAll<Page, Cursor>(props: {
  readonly button: string;
  readonly small?: true;
  readonly file: string;
  readonly load: (after?: Cursor) => Promise<Page>;
  readonly next: (page: Page) => Cursor | undefined;
  readonly header: readonly string[];
  readonly rowsOf: (page: Page) => readonly (readonly (string | number)[])[];
  readonly says: (loaded: number) => ComponentChildren;
}) {
  const { load, next, rowsOf } = props;
  const [loaded, setLoaded] = useState<number | undefined>(undefined);
  const download = async (signal: AbortSignal) => {
    const rows: (readonly (string | number)[])[] = [props.header];
    let cursor: Cursor | undefined;
    try {
      do {
        setLoaded(rows.length - 1);
        const page = await load(cursor);
        rows.push(...rowsOf(page));
        cursor = next(page);
      } while (cursor !== undefined && !signal.aborted);
    } finally {
      setLoaded(undefined);
    }
    // Excel takes a file without a byte order mark for ANSI.
    if (!signal.aborted) saveFile(`${props.file}.csv`, 'text/csv', `\ufeff${csvOf(rows)}`);
  };
  return (
    <>
      <ActionButton button={props.button} small={props.small === true} work={download} />
      {loaded !== undefined && props.says(loaded)}
    </>
  );
}

/** The pages that are loaded, and a button for the next one. */
export function Pages<Page>(props: {
  readonly from: Paged<Page>;
  readonly button: string;
  readonly children: (pages: readonly Page[]) => ComponentChildren;
}) {
  const { pages, more } = props.from;
  return (
    <Loaded from={pages}>
      {(loaded) => (
        <>
          {props.children(loaded)}
          {more !== undefined && <ActionButton button={props.button} work={more} />}
        </>
      )}
    </Loaded>
  );
}
