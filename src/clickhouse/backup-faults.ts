// What goes wrong with backups.

/** ClickHouse could not make or restore a backup, in its own words. */
export class BackupFailed extends Error {}

/** There is no backup of a name: of that to restore, or that one was to be based on. */
export class BackupMissing extends BackupFailed {}

/** There is a backup of this name on the disk already. */
export class BackupExists extends BackupFailed {}
