// The dialog of a new deletion: a list of users, a preview, and the submission, in several requests if the list is long.

import { useState } from 'preact/hooks';
import { confirmedUsersMin, counts } from '../../contract/lengths.js';
import { type Account, call, part } from '../api.js';
import { useCase } from '../parts/case.js';
import { Dialog } from '../parts/dialog.js';
import { forgetDrafts, useDraft } from '../parts/draft.js';
import { Check, Field, useField } from '../parts/fields.js';
import { Button, Form } from '../parts/form.js';
import { amountText } from '../parts/parts.js';
import { ListFields, PreviewOf, Sending, useListOfUsers } from '../parts/user-list-form.js';

type FormProps = { readonly account: Account; readonly close: () => void };

/** The dialog. Escape closes it and keeps what was entered; Cancel forgets it. */
export function NewDeletion({ account, close: closeForm }: FormProps) {
  const form = `${account.account_id} deletion`;
  const users = useListOfUsers(form, counts.deletionTargetsMax);
  const reference = useDraft(`${form} reference`, '');
  const named = reference.value.trim();
  const suppress = useDraft(`${form} suppress`, false);
  const [done, setDone] = useState(false);
  /** How many users of which list wait for a second person. */
  const proposed = useDraft(`${form} proposed`, { of: '', users: 0 });
  const { inCase, field } = useCase(account);
  const forget = () => {
    forgetDrafts(form);
    closeForm();
  };
  const typed = useField('');
  const { list, sent = 0, requests, name: of } = users;
  const waiting = proposed.value.of === of ? proposed.value.users : 0;
  const left = list.users.length - sent;
  const isMany = left >= confirmedUsersMin;
  const isConfirmed = !isMany || typed.value.replace(/\D/g, '') === String(left);
  const submit = async (signal: AbortSignal) => {
    let wait = waiting;
    const isDone = await users.send(signal, async (some, number) => {
      const answer = await call<'submitDeletion'>(
        'POST',
        `/accounts/${part(account.account_id)}/user_deletion`,
        {
          users: some,
          ...inCase,
          ...(requests === 1 ? {} : { of_users: list.users.length }),
          ...(suppress.value ? { suppress: true } : {}),
          ...(named === '' ? {} : { reference: referenceOf(named, number, requests) }),
        },
      );
      if (answer.status !== 'awaits_confirmation') return;
      wait += some.length;
      proposed.set({ of, users: wait });
    });
    if (isDone) setDone(true);
  };
  if (done) {
    return (
      <Dialog title={waiting === 0 ? 'Submitted' : 'Proposed'} close={forget}>
        <p role="status">
          {waiting < sent &&
            `The deletion of ${amountText(sent - waiting, 'user')} is submitted. The list shows when it is complete. `}
          {waiting > 0 &&
            `The deletion of ${amountText(waiting, 'user')} is proposed. It begins once another privacy officer has submitted the same list${requests === 1 ? '' : ' in the same order'}, within 7 days. Only a hash of the list is kept: hand it over yourself.`}
        </p>
        <Button text="Close" kind="primary" act={forget} />
      </Dialog>
    );
  }
  return (
    <Dialog title={`Delete users of ${account.name}`} close={closeForm}>
      <p>
        All records of these users are deleted, in every environment of the account. This cannot be undone.{' '}
        {suppress.value
          ? 'What is sent about them later is not stored until the suppression is lifted.'
          : 'What is sent about them after the submission stays.'}
      </p>
      <Form
        label="New deletion"
        submit={`Delete ${sent > 0 ? 'the other ' : ''}${amountText(left, 'user')}`}
        danger
        stops
        cannot={
          users.cannot || (isConfirmed ? '' : `Type ${left.toLocaleString()} where the number is asked for.`)
        }
        cancel={forget}
        work={submit}
      >
        <ListFields of={users} to="delete" />
        {field}
        <PreviewOf of={users} account={account} inCase={inCase} />
        <Field
          label="Reference"
          {...reference}
          hint="Your own name for the request, such as a ticket. It is kept, so it must not name a user."
        />
        <Check
          label="Suppress these users, too"
          {...suppress}
          hint="They are suppressed first, so that nothing that is sent about them later is stored."
        />
        {isMany && (
          <Field
            label="How many users are deleted?"
            {...typed}
            mode="numeric"
            complete="off"
            hint="So many cannot be deleted by mistake: type the number that the button below names."
          />
        )}
        <Sending of={users} what="Submitted" />
      </Form>
    </Dialog>
  );
}

/** Each request of a list needs a reference of its own. */
function referenceOf(reference: string, number: number, requests: number): string {
  return requests === 1 ? reference : `${reference} (${number} of ${requests})`;
}
