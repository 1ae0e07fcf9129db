// How the embedded ClickHouse reads the text of a statement. Pure.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { type InsertText, readStatement } from '../deploy/local/clickhouse/sql-text.js';

describe('reading SQL text', () => {
  test('finds the FORMAT clause, and nothing that only looks like one', () => {
    const format = (sql: string) => {
      const statement = readStatement(sql);
      assert.equal(statement.kind, 'select', sql);
      return statement.kind === 'select' && statement.format
        ? sql.slice(statement.format.start, statement.end)
        : undefined;
    };
    assert.equal(format('SELECT 1 FORMAT JSON'), 'FORMAT JSON');
    assert.equal(format('SELECT 1 format JSON settings a = 1 ; -- x'), 'format JSON settings a = 1');
    assert.equal(format('SELECT format FROM t'), undefined);
    assert.equal(format('SELECT a AS format FROM t ORDER BY format DESC'), undefined);
    assert.equal(format("SELECT format('{}', 'x'), (SELECT 1 format)"), undefined);
    assert.equal(format('SELECT 1 /* FORMAT CSV */ -- FORMAT CSV'), undefined);
    assert.equal(format('SELECT $x$ FORMAT CSV $x$'), undefined);
    assert.equal(format("SELECT * FROM t WHERE format = 'a' FORMAT CSV"), 'FORMAT CSV');
  });

  test('finds where the data of an INSERT begins', () => {
    const read = (sql: string) => {
      const { source, targetEnd, settings } = readStatement(sql) as InsertText;
      const data =
        source.kind === 'data' || source.kind === 'input' ? sql.slice(source.dataStart) : undefined;
      return [
        sql.slice(0, targetEnd),
        settings && sql.slice(settings.start, settings.end),
        source.kind,
        data,
      ];
    };
    assert.deepEqual(read('INSERT INTO t FORMAT TSV\n1\t2\n'), [
      'INSERT INTO t',
      undefined,
      'data',
      '1\t2\n',
    ]);
    assert.deepEqual(read('insert into `a b`."c" (x, y) settings s=1, u=\'FORMAT\' values (1)'), [
      'insert into `a b`."c" (x, y)',
      "s=1, u='FORMAT'",
      'data',
      ' (1)',
    ]);
    assert.deepEqual(read("INSERT INTO TABLE FUNCTION f('a') (b) FORMAT CSV  \r\n\n1"), [
      "INSERT INTO TABLE FUNCTION f('a') (b)",
      undefined,
      'data',
      '\n1',
    ]);
    assert.deepEqual(read('INSERT INTO {t:Identifier} SELECT 1'), [
      'INSERT INTO {t:Identifier}',
      undefined,
      'select',
      undefined,
    ]);
    assert.deepEqual(read('INSERT INTO t (SELECT 1)'), ['INSERT INTO t', undefined, 'select', undefined]);
    assert.deepEqual(read("INSERT INTO t SELECT a FROM input('a UInt8') FORMAT CSV 1;2"), [
      'INSERT INTO t',
      undefined,
      'input',
      '1;2',
    ]);
    const unfinished = "INSERT INTO t SELECT a FROM input('a UInt8')";
    const { source } = readStatement(`${unfinished} ;`) as InsertText;
    assert.deepEqual([source.kind, source.kind === 'select' && source.end], ['select', unfinished.length]);
    assert.deepEqual(read('INSERT INTO t (a)'), ['INSERT INTO t (a)', undefined, 'open', undefined]);
  });

  test('ends with any text', () => {
    const piece = fc.constantFrom(
      "'",
      '"',
      '`',
      '\\',
      '(',
      ')',
      '{',
      '}',
      '--',
      '/*',
      '*/',
      '\n',
      ';',
      '$$',
      'INSERT INTO t ',
      'SELECT ',
      'FORMAT ',
      'a',
      ' ',
      '0',
      '#',
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 30 }), (pieces) => {
        readStatement(pieces.join(''));
      }),
    );
  });
});
