// Long lists that the service answers with page by page.

import type { ComponentChildren } from 'preact';
import { useRef, useState } from 'preact/hooks';
import { Act } from './form.js';
import { Loaded } from './parts.js';
import { type Resource, useLoad } from './resource.js';

export type Paged<Page> = {
  readonly first: Resource<Page>;
  readonly further: readonly Page[];
  /** Loads the page after the last one; undefined if there is none. */
  readonly more: (() => Promise<void>) | undefined;
  readonly reload: () => void;
};

/** `of` names the list, as with useLoad. `after`: what `next` said of the page before; undefined for the first page. */
export function usePages<Page, Cursor>(
  of: string,
  load: (after?: Cursor) => Promise<Page>,
  next: (page: Page) => Cursor | undefined,
  everyMs?: number,
): Paged<Page> {
  const [known, setKnown] = useState<{ readonly of: string; readonly further: readonly Page[] }>({
    of,
    further: [],
  });
  const present = useRef(of);
  present.current = of;
  const further = known.of === of ? known.further : [];
  // Further pages go on from where the first one ended, so it stays as it is.
  const first = useLoad(of, () => load(), further.length === 0 ? everyMs : undefined);
  const last = further.at(-1) ?? first.data;
  const cursor = last === undefined ? undefined : next(last);
  return {
    first,
    further,
    more:
      cursor === undefined
        ? undefined
        : async () => {
            const page = await load(cursor);
            if (present.current === of) setKnown({ of, further: [...further, page] });
          },
    reload: () => {
      setKnown({ of, further: [] });
      first.reload();
    },
  };
}

/** The pages that are loaded, and a button for the next one. */
export function Pages<Page>(props: {
  readonly from: Paged<Page>;
  readonly button: string;
  readonly children: (pages: readonly Page[]) => ComponentChildren;
}) {
  const { first, further, more } = props.from;
  return (
    <Loaded from={first}>
      {(page) => (
        <>
          {props.children([page, ...further])}
          {more !== undefined && <Act button={props.button} work={more} />}
        </>
      )}
    </Loaded>
  );
}
