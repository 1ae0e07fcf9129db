// The fields of forms.

import type { InputHTMLAttributes } from 'preact';
import { useId } from 'preact/hooks';

export function Check(props: {
  readonly label: string;
  readonly value: boolean;
  readonly set: (value: boolean) => void;
  readonly hint: string;
}) {
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
      <p id={`${id}-hint`} class="hint">
        {props.hint}
      </p>
    </div>
  );
}

/** The field for the six digits of a second factor. */
export function CodeField({ value, set }: { readonly value: string; readonly set: (value: string) => void }) {
  return (
    <Field
      label="Code"
      value={value}
      set={set}
      mode="numeric"
      complete="one-time-code"
      hint="The six digits that your app shows now."
      required
    />
  );
}

export function Field(props: {
  readonly label: string;
  readonly value: string;
  readonly set: (value: string) => void;
  readonly hint?: string;
  readonly type?: 'text' | 'email' | 'password' | 'number' | 'date';
  readonly required?: boolean;
  readonly complete?: string;
  readonly mode?: 'numeric';
  readonly lines?: number;
  readonly more?: Pick<InputHTMLAttributes, 'id' | 'maxLength' | 'placeholder' | 'autocapitalize'>;
}) {
  const own = useId();
  const {
    label,
    value,
    set,
    hint,
    type = 'text',
    required = false,
    complete = 'off',
    lines,
    mode,
    more,
  } = props;
  const id = more?.id ?? own;
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
      <label for={id}>{label}</label>
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
      {hint !== undefined && (
        <p id={`${id}-hint`} class="hint">
          {hint}
        </p>
      )}
    </div>
  );
}

export function Choice<Value extends string>(props: {
  readonly label: string;
  readonly value: Value;
  readonly options: readonly (readonly [value: Value, text: string])[];
  readonly set: (value: Value) => void;
  readonly hint?: string;
}) {
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
      {props.hint !== undefined && (
        <p id={`${id}-hint`} class="hint">
          {props.hint}
        </p>
      )}
    </div>
  );
}
