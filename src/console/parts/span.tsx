// The span of a chart.

import { Choice, type FieldState } from './fields.js';

export type Span = 'hour' | 'week';

export function SpanChoice(span: FieldState<Span>) {
  return (
    <Choice
      label="Over"
      {...span}
      options={[
        ['hour', 'the last hour, by minutes'],
        ['week', 'the last week, by hours'],
      ]}
    />
  );
}
