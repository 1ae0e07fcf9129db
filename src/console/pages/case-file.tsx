// The file of a case: what it is about, what was done, and how it ends.

import { type Account, call, part } from '../api.js';
import type { Case } from '../parts/case.js';
import { Dialog } from '../parts/dialog.js';
import { Field, useField } from '../parts/fields.js';
import { ActionButton, Button, Form } from '../parts/form.js';
import { dayText, Facts, Loaded, Time } from '../parts/parts.js';
import { useResource } from '../parts/resource.js';
import { go } from '../router.js';
import { chosenCase } from '../session.js';
import { callerText } from '../words.js';
import { AuditLines } from './audit-lines.js';
import { Due, doneText } from './case-words.js';

export function CaseFile(props: {
  readonly account: Account;
  readonly id: string;
  readonly close: () => void;
}) {
  const { account, id, close } = props;
  const path = `/accounts/${part(account.account_id)}/cases/${part(id)}`;
  const found = useResource<'showCase'>(path);
  const change = (body: object) => call('PATCH', path, body).then(found.reload);
  return (
    <Dialog title={found.data === undefined ? 'Case' : `Case ${found.data.reference}`} close={close} wide>
      <Loaded from={found}>
        {(data) => (
          <>
            <Facts
              of={[
                ['Received', dayText(data.received_on)],
                ['Due', <Due key="due" of={data} />],
                ['Opened by', callerText(data.opened_by)],
                ['Done', doneText(data) || 'nothing yet'],
                [
                  'Closed',
                  data.closed_at === undefined ? undefined : (
                    <>
                      <Time at={data.closed_at} />, by {callerText(data.closed_by ?? '')}
                    </>
                  ),
                ],
                ['Result', data.result],
              ]}
            />
            {data.state === 'open' ? (
              <Open key={`${data.reference} ${data.due_on}`} of={data} change={change} />
            ) : (
              <ActionButton button="Open again" work={() => change({ state: 'open' })} />
            )}
            <h3>What was done</h3>
            <AuditLines
              key={`${data.state} ${data.due_on} ${data.reference}`}
              of={{ account_id: account.account_id, case_id: id }}
              caption="What was done in the case"
              file={`case-${id}`}
              empty="Nothing was done yet."
            />
          </>
        )}
      </Loaded>
      <div class="buttons">
        <Button text="Back to the list" act={close} />
      </div>
    </Dialog>
  );
}

/** What can be done with an open case. */
function Open({ of, change }: { readonly of: Case; readonly change: (body: object) => Promise<void> }) {
  const due = useField(of.due_on);
  const reference = useField(of.reference);
  const result = useField('');
  return (
    <>
      <p>
        <button
          type="button"
          class="primary"
          onClick={() => {
            chosenCase.value = of.case_id;
            go('/users');
          }}
        >
          Find the person
        </button>
      </p>
      <details>
        <summary>Change its reference, or the day when it is due</summary>
        <Form
          label="Change the case"
          submit="Save"
          inline
          work={() =>
            change({
              ...(reference.value === of.reference ? {} : { reference: reference.value }),
              ...(due.value === of.due_on ? {} : { due_on: due.value }),
            })
          }
          cannot={reference.value === of.reference && due.value === of.due_on ? 'Nothing is changed.' : ''}
        >
          <Field label="Reference" {...reference} required more={{ maxLength: 255 }} />
          <Field label="Due on" type="date" {...due} required />
        </Form>
      </details>
      <details>
        <summary>Close the case</summary>
        <Form
          label="Close the case"
          submit="Close case"
          work={() =>
            change({
              state: 'closed',
              ...(result.value.trim() === '' ? {} : { result: result.value.trim() }),
            })
          }
        >
          <Field
            label="What became of it"
            {...result}
            lines={2}
            hint="Such as: answered with the export. It is kept, so it must not name a user."
          />
        </Form>
      </details>
    </>
  );
}
