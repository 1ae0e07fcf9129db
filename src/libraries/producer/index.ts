// What the package `sluice-server` exports.

export {
  type Administration,
  type ApiCallOptions,
  createAdministration,
  createDeletionApi,
  type DeletionApi,
} from './api.js';
export type { DeleteOptions, Deletion, UserToDelete } from './deletion.js';
export type { AdministrationOperations, DeletionOperations } from './operations.js';
export type { SluiceOptions } from './options.js';
export type { Receipt, ReceiptsOptions } from './receipts.js';
export type {
  EventUser,
  Identification,
  Operation,
  PropertyValue,
  Timestamp,
  TrackedEvent,
  UserProperties,
  UserPropertyValue,
  Validation,
} from './records.js';
export { type DeletionProgress, type DeletionRequest, SluiceError } from './refusal.js';
export type { Dropped, Ignored, Problem, Refusal } from './reports.js';
export type { SignalOptions } from './signals.js';
export { createSluice, type Sluice } from './sluice.js';
