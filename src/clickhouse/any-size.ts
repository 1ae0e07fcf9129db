// ClickHouse refuses to drop, detach or empty a table or partition above 50 GB unless the statement sets these. Every statement that
// takes away rows has them: a month may be larger.

/** Settings of statements that take away tables, partitions or rows, however large they are. */
export const anySize = { max_table_size_to_drop: '0', max_partition_size_to_drop: '0' } as const;
