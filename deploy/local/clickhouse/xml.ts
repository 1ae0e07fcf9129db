// Writes ClickHouse's configuration files.

export function xmlElements(values: Readonly<Record<string, number | string>>): string {
  return Object.entries(values)
    .map(([name, value]) => `<${name}>${escapeXml(String(value))}</${name}>\n`)
    .join('');
}

export function escapeXml(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
}
