// The pages of privacy officers, in a script of their own.

export { Cases } from './cases.js';
export { CertificatePage, VerifyPage } from './certificate.js';
export { Deletions } from './deletions.js';
export { Users } from './users.js';
