// Writes CSV for spreadsheets. Browsers load it too.

/** Rows of cells as CSV. */
export function csvOf(rows: readonly (readonly (string | number)[])[]): string {
  return rows.map((cells) => cells.map(csvCell).join(',')).join('\r\n');
}

/**
 * A spreadsheet takes a text for a formula if it begins with one of these signs, or their full-width forms, even after invisible
 * characters. A text may have several beginnings: when it is pasted, it is split at tabs and line ends, and with other settings at commas
 * or semicolons, whatever the quotes say. So each beginning gets a `'` before it. Numbers need none.
 */
function csvCell(cell: string | number): string {
  if (typeof cell === 'number') return String(cell);
  const plain = cell.replaceAll(/(^|[\t\r\n,;])(?=[\t\r]|[\s\p{C}]*[=+\-@＝＋－＠])/gu, "$1'");
  return /[",;\t\r\n]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
}
