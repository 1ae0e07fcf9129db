// A part of the demo, with its title.

import type { ComponentChildren } from 'preact';

export function Card(props: {
  readonly title: string;
  readonly note?: ComponentChildren;
  readonly class?: string;
  readonly children: ComponentChildren;
}) {
  return (
    <section class={`card ${props.class ?? ''}`} aria-label={props.title}>
      <h2>
        {props.title} {props.note && <span class="muted">· {props.note}</span>}
      </h2>
      {props.children}
    </section>
  );
}
