// What we use of otpauth. The build makes one file of it (deploy/build.mjs).

export { Secret, TOTP } from 'otpauth';
