// A text as a QR code, for the camera of a phone.

import encodeQR from 'qr';

/** The empty border that scanners need, in modules (the squares of the code). */
const border = 4;

export function QrCode({ text, what }: { readonly text: string; readonly what: string }) {
  const rows = encodeQR(text, 'raw', { border });
  const dark = rows.flatMap((row, y) => row.flatMap((isDark, x) => (isDark ? [`M${x} ${y}h1v1h-1z`] : [])));
  return (
    <svg class="qr" role="img" aria-label={what} viewBox={`0 0 ${rows.length} ${rows.length}`}>
      <path d={dark.join('')} />
    </svg>
  );
}
