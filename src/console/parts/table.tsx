// A table that the reader can sort, and copy as CSV where that is useful.

import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { csvOf } from '../../parsing/csv/write.js';
import { Button } from './form.js';
import { amountText, Copy, Loaded, Time } from './parts.js';
import type { Resource } from './resource.js';

export type Column<Row> = TextColumn<Row> | TimeColumn<Row>;

type Titled = {
  readonly title: string;
  /** Whether the reader can sort the rows by the text. */
  readonly sorts?: true;
};

export type TextColumn<Row> = Titled & {
  /** The text by which rows are sorted, and which is copied: numbers and times in the same form for all languages. */
  readonly text: (row: Row) => string | number;
  /** Shown instead of the text. */
  readonly cell?: (row: Row) => ComponentChildren;
  /** The colour of a chip around the text. */
  readonly chip?: (row: Row) => string;
  /** Whether the cells are aligned to the right, so that digits line up. */
  readonly number?: true;
  /** Whether the text may be so long that it breaks anywhere, before the table scrolls sideways. */
  readonly isLong?: true;
  /** Whether the column is only copied, since the screen shows it elsewhere. */
  readonly isCopiedOnly?: true;
};

/** Times, empty where there is none, or shown as `none`. */
type TimeColumn<Row> = Titled & {
  readonly time: (row: Row) => string | null | undefined;
  readonly to?: 'day' | 'minute' | 'second';
  readonly none?: string;
};

function asText<Row>(column: Column<Row>): TextColumn<Row> {
  if (!('time' in column)) {
    const { chip, isLong, text } = column;
    if (chip !== undefined)
      return { ...column, cell: (row) => <span class={`chip ${chip(row)}`}>{text(row)}</span> };
    if (isLong) return { ...column, cell: (row) => text(row) && <span class="long">{text(row)}</span> };
    return column;
  }
  const { time, to = 'minute', none, ...titled } = column;
  return {
    ...titled,
    text: (row) => time(row) ?? '',
    cell: (row) => {
      const at = time(row);
      return at ? <Time at={at} to={to} /> : none && <span class="muted">{none}</span>;
    },
  };
}

type Order<Row> = { readonly column: TextColumn<Row>; readonly isUp: boolean };

function sorted<Row>(rows: readonly Row[], order: Order<Row> | undefined): readonly Row[] {
  if (order === undefined) return rows;
  const { text } = order.column;
  const sign = order.isUp ? 1 : -1;
  return rows.toSorted((one, other) => {
    const [a, b] = [text(one), text(other)];
    return sign * (typeof a === 'string' ? a.localeCompare(String(b)) : a - Number(b));
  });
}

function shownOf(text: string | number): string {
  return typeof text === 'number' ? text.toLocaleString() : text;
}

/** With up to this many rows, their number is not shown, since it is seen at a glance. Never more than `first`. */
const fewRows = 4;

type TableProps<Row> = {
  readonly caption: string;
  readonly columns: readonly Column<Row>[];
  readonly rows: readonly Row[];
  readonly keyOf: (row: Row) => string;
  readonly empty: ComponentChildren;
  readonly actions?: ((row: Row) => ComponentChildren) | false;
  /** How many rows are shown until the reader asks for all. */
  readonly first?: number;
  /** Whether the rows can be copied. */
  readonly copies?: true;
};

/** The table of rows that are loaded from somewhere. */
export function LoadedTable<Row>({
  from,
  ...table
}: Omit<TableProps<Row>, 'rows'> & { readonly from: Resource<readonly Row[]> }) {
  return <Loaded from={from}>{(rows) => <Table {...table} rows={rows} />}</Loaded>;
}

/** A table. Narrow screens show each row as a list of titles and cells. */
export function Table<Row>(props: TableProps<Row>) {
  const { caption, rows, keyOf, empty, actions = false, first = rows.length, copies } = props;
  const columns = props.columns.map(asText);
  // A column that is empty in every row would only take space.
  const seen = columns.filter(
    ({ isCopiedOnly, cell, text }) =>
      isCopiedOnly !== true && (cell !== undefined || rows.some((row) => text(row) !== '')),
  );
  const [wantsAll, setWantsAll] = useState(false);
  const [sorting, setSorting] = useState<{ title: string; isUp: boolean } | undefined>(undefined);
  const column = columns.find(({ title }) => title === sorting?.title);
  const order = column && sorting && { column, isUp: sorting.isUp };
  const ordered = sorted(rows, order);
  const shown = wantsAll ? ordered : ordered.slice(0, first);
  if (rows.length === 0) return <p class="empty">{empty}</p>;
  return (
    <div class="table">
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: the keyboard has to reach what scrolls sideways */}
      <section class="scroll" aria-label={caption} tabIndex={0}>
        <table>
          <caption class="sr">{caption}</caption>
          <thead>
            <tr>
              {seen.map(({ title, number, sorts }) => {
                const isUp = sorting?.title === title ? sorting.isUp : undefined;
                return (
                  <th
                    key={title}
                    scope="col"
                    class={number && 'number'}
                    aria-sort={isUp === undefined ? undefined : isUp ? 'ascending' : 'descending'}
                  >
                    {sorts === undefined ? (
                      title
                    ) : (
                      // The first click sorts the largest or latest first; a second click reverses that.
                      <button
                        type="button"
                        class="sort"
                        onClick={() => setSorting({ title, isUp: isUp === false })}
                      >
                        {title}
                      </button>
                    )}
                  </th>
                );
              })}
              {actions !== false && (
                <th scope="col">
                  <span class="sr">Actions</span>
                </th>
              )}
            </tr>
          </thead>
          <tbody>
            {shown.map((row) => (
              <tr key={keyOf(row)}>
                {seen.map(({ title, text, cell, number }) => (
                  <td key={title} data-title={title} class={number && 'number'}>
                    <div>{cell === undefined ? shownOf(text(row)) : cell(row)}</div>
                  </td>
                ))}
                {actions !== false && (
                  <td class="actions">
                    <div>{actions(row)}</div>
                  </td>
                )}
              </tr>
            ))}
          </tbody>
        </table>
      </section>
      {(copies || rows.length > fewRows) && (
        <p class="below">
          <span class="muted">
            {shown.length < rows.length && `${shown.length.toLocaleString()} of `}
            {amountText(rows.length, 'row')}
          </span>
          {shown.length < rows.length && (
            <Button
              kind="small"
              text="Show all"
              label={`Show all of ${caption}`}
              act={() => setWantsAll(true)}
            />
          )}
          {copies && (
            <Copy
              text={csvOf([
                columns.map(({ title }) => title),
                ...ordered.map((row) => columns.map(({ text }) => text(row))),
              ])}
              label="Copy as CSV:"
              what={caption}
            />
          )}
        </p>
      )}
    </div>
  );
}
