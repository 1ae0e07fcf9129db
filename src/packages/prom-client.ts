// What we use of prom-client. The build makes one file of it (deploy/build.mjs).

export {
  AggregatorRegistry,
  Counter,
  Gauge,
  Histogram,
  type MetricObject,
  Registry,
  register,
} from 'prom-client';
