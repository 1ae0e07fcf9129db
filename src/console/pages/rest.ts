// All other pages except Overview, in a script of their own.

export { Visualizer } from '../visualizer/visualizer.js';
export { DataQuality } from './data-quality.js';
export { Live } from './live.js';
export { Operations } from './operations.js';
export { Reference } from './reference.js';
export { SecondFactor } from './second-factor.js';
export { Security } from './security.js';
export { Settings } from './settings.js';
