// The rows that ClickHouse refused, for operators, who can send them again once the cause is corrected.

import { useState } from 'preact/hooks';
import { type Answer, call } from '../api.js';
import { Form } from '../parts/form.js';
import { amountText, Loaded } from '../parts/parts.js';
import { useResource } from '../parts/resource.js';
import { Table } from '../parts/table.js';

/** The time when a row failed. The service sends it in UTC, without a zone. */
function failedAt({ failed_at }: Answer<'listFailed'>[number]): string {
  return `${failed_at.replace(' ', 'T')}Z`;
}

type Sent = Answer<'retryFailed'>;

function sentText({ retried, left }: Sent): string {
  const stored = `${amountText(retried, 'row is', 'rows are')} stored`;
  if (left === 0) return `${stored}, none is left.`;
  return `${stored}, ${left.toLocaleString()} left: refused again, or waiting for a deletion.`;
}

export function FailedRows() {
  const failed = useResource<'listFailed'>('/failed');
  const [sent, setSent] = useState<Sent | undefined>(undefined);
  return (
    <section class="card">
      <h2>Rows that ClickHouse refused, in all accounts</h2>
      <Loaded from={failed}>
        {(data) => (
          <>
            <Table
              caption="Rows that ClickHouse refused"
              rows={data}
              keyOf={({ table_name, segment, line }) => `${table_name} ${segment} ${line}`}
              empty="None: ClickHouse has taken every row."
              columns={[
                { title: 'When', time: failedAt },
                { title: 'Table', text: (each) => each.table_name },
                { title: 'App ID', text: (each) => each.app_id, cell: (each) => <code>{each.app_id}</code> },
                { title: 'Error', text: (each) => `${each.error_code} ${each.error}` },
                { title: 'Bytes', text: (each) => each.bytes, number: true },
              ]}
            />
            {data.length > 0 && (
              <Form
                label="Send failed rows again"
                submit="Send again"
                inline
                work={async () => {
                  setSent(await call<'retryFailed'>('POST', '/failed/retry'));
                  failed.reload();
                }}
              >
                <p class="beside">Send them again once the cause is corrected.</p>
              </Form>
            )}
            <p role="status">{sent && sentText(sent)}</p>
          </>
        )}
      </Loaded>
    </section>
  );
}
