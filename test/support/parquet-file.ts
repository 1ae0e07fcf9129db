// Writes Parquet files of any schema, including schemas that no program at hand writes: uncompressed, one page of plain values a column.
// @see https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift

/** An element of the schema, in the order of the file. Groups have `children`, columns `values`. */
export type Element = {
  readonly name: string;
  readonly is: 'required' | 'optional' | 'repeated';
  readonly children?: number;
  readonly converted?: 'UTF8' | 'MAP' | 'LIST';
  readonly logical?: 'MAP' | 'LIST';
  /** Integers or texts. `levels` has the levels of each slot; only slots of the highest definition level have a value. */
  readonly values?: readonly (number | string)[];
  readonly levels?: readonly (readonly [repetition: number, definition: number])[];
};

export function parquetOf(rows: number, elements: readonly Element[]): Buffer {
  const parts: Buffer[] = [Buffer.from('PAR1')];
  const columns: Thrift[] = [];
  let bytes = 4;
  for (const { path, element, repetition, definition } of columnsOf(elements)) {
    const { values = [], levels = values.map((): [number, number] => [0, 0]) } = element;
    const content = Buffer.concat([
      ...(repetition === 0 ? [] : [levelsOf(levels.map(([level]) => level))]),
      ...(definition === 0 ? [] : [levelsOf(levels.map(([, level]) => level))]),
      ...values.map(plain),
    ]);
    const page = struct({
      1: int(0),
      2: int(content.length),
      3: int(content.length),
      5: struct({ 1: int(levels.length), 2: int(0), 3: int(3), 4: int(3) }),
    });
    const size = long(page.bytes.length + content.length);
    columns.push(
      struct({
        2: long(bytes),
        3: struct({
          1: int(typeOf(values)),
          2: list([int(0)]),
          3: list(path.map(text)),
          4: int(0),
          5: long(levels.length),
          6: size,
          7: size,
          9: long(bytes),
        }),
      }),
    );
    parts.push(page.bytes, content);
    bytes += page.bytes.length + content.length;
  }
  const root = struct({ 4: text('root'), 5: int(topOf(elements)) });
  const groups = list([struct({ 1: list(columns), 2: long(bytes), 3: long(rows) })]);
  const schema = list([root, ...elements.map(schemaOf)]);
  const footer = struct({ 1: int(1), 2: schema, 3: long(rows), 4: groups }).bytes;
  const end = Buffer.alloc(4);
  end.writeUInt32LE(footer.length);
  return Buffer.concat([...parts, footer, end, Buffer.from('PAR1')]);
}

const repetitions = ['required', 'optional', 'repeated'];
const convertedTypes = { UTF8: 0, MAP: 1, LIST: 3 } as const;
const logicalTypes = { MAP: 2, LIST: 3 } as const;

function schemaOf({ name, is, children, converted, logical, values }: Element): Thrift {
  return struct({
    ...(values && { 1: int(typeOf(values)) }),
    3: int(repetitions.indexOf(is)),
    4: text(name),
    ...(children && { 5: int(children) }),
    ...(converted && { 6: int(convertedTypes[converted]) }),
    ...(logical && { 10: struct({ [logicalTypes[logical]]: struct({}) }) }),
  });
}

/** The Parquet type of the values: 6 is BYTE_ARRAY, 1 is INT32. */
function typeOf(values: Element['values']): number {
  return typeof values?.[0] === 'string' ? 6 : 1;
}

type Column = {
  readonly path: readonly string[];
  readonly element: Element;
  readonly repetition: number;
  readonly definition: number;
};

/** The columns below the root, each with its highest levels. */
function columnsOf(elements: readonly Element[]): Column[] {
  const columns: Column[] = [];
  let at = 0;
  const read = (path: readonly string[], repetition: number, definition: number) => {
    const element = elements[at++] as Element;
    const names = [...path, element.name];
    const [repeated, defined] = [Number(element.is === 'repeated'), Number(element.is !== 'required')];
    const highest = { repetition: repetition + repeated, definition: definition + defined };
    for (let child = 0; child < (element.children ?? 0); child++)
      read(names, highest.repetition, highest.definition);
    if (element.children === undefined) columns.push({ path: names, element, ...highest });
  };
  while (at < elements.length) read([], 0, 0);
  return columns;
}

/** How many elements are directly below the root. */
function topOf(elements: readonly Element[]): number {
  return elements.length - elements.reduce((sum, { children = 0 }) => sum + children, 0);
}

function levelsOf(levels: readonly number[]): Buffer {
  const runs = Buffer.from(levels.flatMap((level) => [1 << 1, level]));
  const length = Buffer.alloc(4);
  length.writeUInt32LE(runs.length);
  return Buffer.concat([length, runs]);
}

function plain(value: number | string): Buffer {
  const bytes = typeof value === 'string' ? Buffer.from(value) : Buffer.alloc(4);
  const head = Buffer.alloc(4);
  head.writeInt32LE(typeof value === 'string' ? bytes.length : value);
  return typeof value === 'string' ? Buffer.concat([head, bytes]) : head;
}

/** A value in Thrift's compact protocol, with its type. */
type Thrift = { readonly type: number; readonly bytes: Buffer };

const int = (value: number): Thrift => ({ type: 5, bytes: varint(value * 2) });
const long = (value: number): Thrift => ({ type: 6, bytes: varint(value * 2) });

function text(value: string): Thrift {
  return { type: 8, bytes: Buffer.concat([varint(Buffer.byteLength(value)), Buffer.from(value)]) };
}

function list(values: readonly Thrift[]): Thrift {
  const size = Math.min(values.length, 15);
  const head = [
    Buffer.from([(size << 4) | (values[0]?.type ?? 0)]),
    ...(size < 15 ? [] : [varint(values.length)]),
  ];
  return { type: 9, bytes: Buffer.concat([...head, ...values.map(({ bytes }) => bytes)]) };
}

function struct(fields: Readonly<Record<number, Thrift | undefined>>): Thrift {
  let before = 0;
  const parts = Object.entries(fields).flatMap(([id, field]) => {
    if (field === undefined) return [];
    const { type, bytes } = field;
    const head = Buffer.from([((Number(id) - before) << 4) | type]);
    before = Number(id);
    return [head, bytes];
  });
  return { type: 12, bytes: Buffer.concat([...parts, Buffer.from([0])]) };
}

function varint(value: number): Buffer {
  const bytes: number[] = [];
  let rest = value;
  for (; rest > 127; rest = Math.floor(rest / 128)) bytes.push((rest % 128) | 128);
  return Buffer.from([...bytes, rest]);
}
