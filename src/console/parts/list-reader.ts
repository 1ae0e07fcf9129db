// The reader of lists is a separate script, loaded with the first form that takes a list: its CSV parser is a fifth of the console's size,
// and few pages need it.

import { useEffect, useState } from 'preact/hooks';

export type ListReader = typeof import('../../parsing/csv/user-list.js');

const script = '/user-lists.js';
let loaded: ListReader | undefined;

/** The reader, once it is loaded; a fault if it could not be loaded. */
export function useListReader(): { readonly reader?: ListReader; readonly fault?: string } {
  const [state, setState] = useState<ReturnType<typeof useListReader>>(
    loaded === undefined ? {} : { reader: loaded },
  );
  useEffect(() => {
    if (loaded !== undefined) return;
    void (import(script) as Promise<ListReader>).then(
      (reader) => {
        loaded = reader;
        setState({ reader });
      },
      () => setState({ fault: 'The script that reads lists cannot be loaded: load this page again.' }),
    );
  }, []);
  return state;
}
