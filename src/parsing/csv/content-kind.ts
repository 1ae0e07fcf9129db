// Recognises, by its first bytes, what a file is that was taken for text by mistake.

const unpack = 'unpack it first';
const asCsv = 'save it as CSV (UTF-8) first';
const asText = 'convert it to CSV, JSON or Parquet first';

/** The name of the kind, and what to do about such a file. */
export type ContentKind = { readonly name: string; readonly advice: string };

const kinds: readonly (ContentKind & { readonly begins: readonly number[]; readonly at?: number })[] = [
  { name: 'a zip archive', advice: unpack, begins: [0x50, 0x4b, 0x03, 0x04] },
  // An empty one.
  { name: 'a zip archive', advice: unpack, begins: [0x50, 0x4b, 0x05, 0x06] },
  { name: 'an old Office file, such as .xls', advice: asCsv, begins: [0xd0, 0xcf, 0x11, 0xe0] },
  { name: 'a PDF', advice: asCsv, begins: [0x25, 0x50, 0x44, 0x46, 0x2d] },
  { name: 'compressed by gzip', advice: unpack, begins: [0x1f, 0x8b] },
  { name: 'compressed by zstd', advice: unpack, begins: [0x28, 0xb5, 0x2f, 0xfd] },
  // The head of its first block, since a text may begin with the letters before it.
  { name: 'compressed by bzip2', advice: unpack, begins: [0x31, 0x41, 0x59, 0x26, 0x53, 0x59], at: 4 },
  { name: 'compressed by xz', advice: unpack, begins: [0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00] },
  { name: 'compressed by lz4', advice: unpack, begins: [0x04, 0x22, 0x4d, 0x18] },
  { name: 'a 7-Zip archive', advice: unpack, begins: [0x37, 0x7a, 0xbc, 0xaf] },
  { name: 'a RAR archive', advice: unpack, begins: [0x52, 0x61, 0x72, 0x21, 0x1a] },
  { name: 'a tar archive', advice: unpack, begins: [0x75, 0x73, 0x74, 0x61, 0x72], at: 257 },
  { name: 'Parquet', advice: asCsv, begins: [0x50, 0x41, 0x52, 0x31] },
  { name: 'an Avro file', advice: asText, begins: [0x4f, 0x62, 0x6a, 0x01] },
  { name: 'a SQLite database', advice: asText, begins: [0x53, 0x51, 0x4c, 0x69, 0x74, 0x65, 0x20, 0x66] },
];

const workbook: ContentKind = { name: 'an Excel workbook (.xlsx)', advice: asCsv };
const sheet: ContentKind = { name: 'an OpenDocument file, such as .ods', advice: asCsv };

/** The kind of a file that is not text; undefined if it may be text. `head`: the first 4 KiB. */
export function kindOfContent(head: Uint8Array): ContentKind | undefined {
  const found = kinds.find(({ begins, at = 0 }) => begins.every((byte, index) => head[at + index] === byte));
  if (found?.begins[0] !== 0x50 || found.begins[1] !== 0x4b) return found;
  // Office files are zip archives whose first entries have these names.
  const names = String.fromCharCode(...head.subarray(0, 512));
  if (/\[Content_Types\]\.xml|_rels\/|docProps\/|xl\//.test(names)) return workbook;
  return names.includes('mimetypeapplication/vnd.oasis') ? sheet : found;
}
