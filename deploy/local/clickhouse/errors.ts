// Owns errors in ClickHouse's terms: code, name and text of an exception, and its HTTP status.

export class ClickHouseException extends Error {
  readonly code: number;

  /** @param text "Code: N. DB::Exception: … (TYPE)", without the version behind it. */
  constructor(code: number, text: string) {
    super(text);
    this.name = 'ClickHouseException';
    this.code = code;
  }

  static of(code: number, type: string, message: string): ClickHouseException {
    return new ClickHouseException(code, `Code: ${code}. DB::Exception: ${message}. (${type})`);
  }
}

/** Turns what was thrown into an exception; hides the files that this server puts between HTTP and engine. */
export function toException(error: unknown, exchangePath = ''): ClickHouseException {
  if (error instanceof ClickHouseException) return error;
  const text = error instanceof Error ? error.message : String(error);
  const code = /^Code:\s*(\d+)\b/.exec(text)?.[1];
  if (code === undefined) {
    return isInflateError(error)
      ? ClickHouseException.of(354, 'ZLIB_INFLATE_FAILED', `inflate failed: ${text}`)
      : ClickHouseException.of(1002, 'UNKNOWN_EXCEPTION', text.trim() || 'The engine gave no reason');
  }
  const cleaned = text
    .trim()
    .replace(/^(Code: \d+\. DB::Exception: )\1/, '$1')
    .replace(/( \([A-Z][A-Z0-9_]+\)) \(version [^)]*\)\.?( \([A-Z][A-Z0-9_]+\))?$/, '$1')
    .replace(/: \(in file\/uri [^)]*\)/g, '')
    .replace(/data for INSERT was parsed from file/g, 'data for INSERT was parsed from query')
    .replace(/ INTO OUTFILE '[^']*' APPEND /g, ' ')
    .replace(/FROM INFILE '[^']*' COMPRESSION 'none'/g, '')
    .replaceAll(exchangePath === '' ? '\0' : exchangePath, '');
  return new ClickHouseException(Number(code), cleaned);
}

function isInflateError(error: unknown): boolean {
  return error instanceof Error && 'code' in error && /^(Z_|ERR__?ZLIB|ERR_BROTLI)/.test(String(error.code));
}

const statuses: ReadonlyMap<number, number> = new Map([
  // Malformed SQL, values that cannot be parsed, structures that do not fit.
  ...[6, 8, 15, 25, 26, 27, 36, 37, 38, 41, 44, 53, 62, 72, 117, 123, 167, 168, 223, 321, 376, 427, 441].map(
    (code) => [code, 400] as const,
  ),
  ...[675, 676].map((code) => [code, 400] as const),
  // Unknown tables, databases, columns, functions, types, formats, settings.
  ...[46, 47, 50, 56, 60, 63, 73, 78, 81, 115, 152, 336, 511].map((code) => [code, 404] as const),
  [194, 401], // REQUIRED_PASSWORD
  ...[192, 193, 497, 512, 516].map((code) => [code, 403] as const),
  [159, 408], // TIMEOUT_EXCEEDED
  [381, 411], // HTTP_LENGTH_REQUIRED
  [229, 413], // QUERY_IS_TOO_LARGE
  [779, 415], // UNSUPPORTED_MEDIA_TYPE
  [48, 501], // NOT_IMPLEMENTED
  ...[76, 209, 439].map((code) => [code, 503] as const),
]);

/** The status of an exception. @see exceptionCodeToHTTPStatus.cpp in ClickHouse's src/Server/HTTP */
export function httpStatus(code: number): number {
  return statuses.get(code) ?? 500;
}
