// What a file is that is taken for text and is none, by its first bytes.

const kinds: readonly (readonly [name: string, begins: readonly number[], at?: number])[] = [
  ['a zip archive', [0x50, 0x4b, 0x03, 0x04]],
  ['an empty zip archive', [0x50, 0x4b, 0x05, 0x06]],
  ['an old Excel workbook (.xls)', [0xd0, 0xcf, 0x11, 0xe0]],
  ['a PDF', [0x25, 0x50, 0x44, 0x46]],
  ['compressed by gzip', [0x1f, 0x8b]],
  ['compressed by zstd', [0x28, 0xb5, 0x2f, 0xfd]],
  ['compressed by bzip2', [0x42, 0x5a, 0x68]],
  ['compressed by xz', [0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00]],
  ['compressed by lz4', [0x04, 0x22, 0x4d, 0x18]],
  ['a 7-Zip archive', [0x37, 0x7a, 0xbc, 0xaf]],
  ['a RAR archive', [0x52, 0x61, 0x72, 0x21]],
  ['Parquet', [0x50, 0x41, 0x52, 0x31]],
  ['an Avro file', [0x4f, 0x62, 0x6a, 0x01]],
  ['an ORC file', [0x4f, 0x52, 0x43]],
  ['a SQLite database', [0x53, 0x51, 0x4c, 0x69, 0x74, 0x65, 0x20, 0x66]],
  ['a tar archive', [0x75, 0x73, 0x74, 0x61, 0x72], 257],
];

/** Names what is no text, such as `an Excel workbook (.xlsx)`; undefined if it may be text. */
export function kindOfContent(head: Uint8Array): string | undefined {
  const found = kinds.find(([, begins, at = 0]) => begins.every((byte, index) => head[at + index] === byte));
  if (found === undefined) return undefined;
  // A workbook is a zip archive whose first entries have these names.
  const isWorkbook = found[0] === 'a zip archive' && /\[Content_Types\]\.xml|xl\/|_rels\//.test(latin(head));
  if (isWorkbook) return 'an Excel workbook (.xlsx)';
  const isSheet = found[0] === 'a zip archive' && latin(head).includes('opendocument.spreadsheet');
  return isSheet ? 'an OpenDocument spreadsheet (.ods)' : found[0];
}

function latin(head: Uint8Array): string {
  return String.fromCharCode(...head.subarray(0, 512));
}
