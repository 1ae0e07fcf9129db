// The pages of privacy officers, which come as a file of their own.

export { Cases } from './cases.js';
export { CertificatePage, VerifyPage } from './certificate.js';
export { Deletions } from './deletions.js';
export { Users } from './users.js';
