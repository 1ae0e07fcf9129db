// Errors of backups and restores.

/** ClickHouse could not make or restore a backup, in its own words. */
export class BackupFailed extends Error {}

/** There is no backup of this name: the one to restore, or the base of a new one. */
export class BackupMissing extends BackupFailed {}

/** The disk already has a backup of this name. */
export class BackupExists extends BackupFailed {}
