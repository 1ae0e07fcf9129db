// Why a database cannot be migrated.

export class MigrationError extends Error {}
