// ClickHouse refuses to drop, detach or truncate a table or partition of more than 50 GB unless the statement has these settings. Every
// statement that removes rows has them, since a month may be larger.

/** Settings of statements that remove tables, partitions or rows of any size. */
export const anySize = { max_table_size_to_drop: '0', max_partition_size_to_drop: '0' } as const;
