// Writes CSV for spreadsheets. Browsers load it too.

/** Rows of cells as CSV. */
export function csvOf(rows: readonly (readonly (string | number)[])[]): string {
  return rows.map((cells) => cells.map(csvCell).join(',')).join('\r\n');
}

/**
 * A spreadsheet takes what begins with one of these signs, wide ones too, for a formula, also behind what nobody sees. A text may
 * have more than one beginning: what is pasted is split at tabs and line ends, and with other settings at commas or semicolons,
 * whatever the quotes say. So each of them gets a `'` before it. Numbers need none.
 */
function csvCell(cell: string | number): string {
  if (typeof cell === 'number') return String(cell);
  const plain = cell.replaceAll(/(^|[\t\r\n,;])(?=[\t\r]|[\s\p{C}]*[=+\-@＝＋－＠])/gu, "$1'");
  return /[",;\t\r\n]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
}
