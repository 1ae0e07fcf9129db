// The start cannot continue, for a reason that the user can correct. The message is one line that names what to change; main.ts prints it
// without a stack and ends the process with code 1.
export class StartError extends Error {}
