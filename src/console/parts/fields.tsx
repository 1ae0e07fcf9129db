// The fields of forms.

import type { ComponentChildren, InputHTMLAttributes } from 'preact';
import { useId, useState } from 'preact/hooks';

/** What a person enters in a field: its value and the function that sets it, to be passed to the field together. */
export type FieldState<Value> = { readonly value: Value; readonly set: (value: Value) => void };

export function useField<Value>(first: Value | (() => Value)): FieldState<Value> {
  const [value, set] = useState(first);
  return { value, set };
}

export function Check(props: FieldState<boolean> & { readonly label: string; readonly hint: string }) {
  const id = useId();
  return (
    <div class="field check">
      <input
        id={id}
        type="checkbox"
        checked={props.value}
        aria-describedby={`${id}-hint`}
        onChange={(event) => props.set(event.currentTarget.checked)}
      />
      <label for={id}>{props.label}</label>
      <Hint of={id} text={props.hint} />
    </div>
  );
}

/** What helps to fill in the field with this id, which names it in `aria-describedby`. */
function Hint({ of, text }: { readonly of: string; readonly text: string | undefined }) {
  return text === undefined ? null : (
    <p id={`${of}-hint`} class="hint">
      {text}
    </p>
  );
}

/** The field for the six digits of a second factor. */
export function CodeField(code: FieldState<string>) {
  return (
    <Field
      label="Code"
      {...code}
      mode="numeric"
      complete="one-time-code"
      hint="The six digits that your app shows now."
      required
    />
  );
}

type TextField = FieldState<string> & {
  readonly label: string;
  readonly hint?: string;
  readonly type?: 'text' | 'email' | 'password' | 'number' | 'date';
  readonly required?: boolean;
  readonly complete?: string;
  readonly mode?: 'numeric';
  readonly lines?: number;
  readonly more?: Pick<InputHTMLAttributes, 'id' | 'maxLength' | 'placeholder' | 'autocapitalize'>;
};

export function Field(props: TextField) {
  const own = useId();
  const { value, set, hint, type = 'text', required = false, complete = 'off', lines, mode, more } = props;
  const id = (more?.id as string | undefined) ?? own;
  const common = {
    id,
    value,
    required,
    spellcheck: false,
    ...(hint === undefined ? {} : { 'aria-describedby': `${id}-hint` }),
    onInput: (event: Event) => set((event.currentTarget as HTMLInputElement | HTMLTextAreaElement).value),
  };
  return (
    <div class="field">
      <label for={id}>{props.label}</label>
      {lines === undefined ? (
        <input
          {...common}
          // Preact has a separate type for each kind of field; this field can be of any kind.
          type={type as 'text'}
          // Password managers rely on this.
          autocomplete={complete as 'off'}
          {...(mode === undefined ? {} : { inputMode: mode })}
          // The rest of the console does not accept years of five digits.
          {...(type === 'date' ? { max: '9999-12-31' } : {})}
          {...more}
        />
      ) : (
        <textarea {...common} rows={lines} />
      )}
      <Hint of={id} text={hint} />
    </div>
  );
}

/** A field for a file. `chosen` gets the same file again, too: it may have changed since. */
export function FileField(props: {
  readonly label: string;
  readonly accept: string;
  readonly chosen: (file: File) => void;
  readonly children?: ComponentChildren;
}) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{props.label}</label>
      <input
        id={id}
        type="file"
        accept={props.accept}
        onClick={(event) => {
          // Else the browser does not tell that the same file was chosen.
          event.currentTarget.value = '';
        }}
        onChange={({ currentTarget: { files } }) => files?.[0] && props.chosen(files[0])}
      />
      {props.children}
    </div>
  );
}

/** What a browser says of a file that it cannot read, such as one that Excel has open. */
export const unreadable =
  'The browser cannot read it. If another program has it open, close it there, and choose it again.';

type ChoiceField<Value> = FieldState<Value> & {
  readonly label: string;
  readonly options: readonly (readonly [value: Value, text: string])[];
  readonly hint?: string;
};

export function Choice<Value extends string>(props: ChoiceField<Value>) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{props.label}</label>
      <select
        id={id}
        value={props.value}
        aria-describedby={props.hint === undefined ? undefined : `${id}-hint`}
        onChange={(event) => props.set(event.currentTarget.value as Value)}
      >
        {props.options.map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
      <Hint of={id} text={props.hint} />
    </div>
  );
}
