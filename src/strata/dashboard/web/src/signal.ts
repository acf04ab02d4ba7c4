/** A value that components follow. */
import { useEffect, useReducer } from "preact/hooks";

export class Signal<T> {
  private readonly followers = new Set<() => void>();

  constructor(private current: T) {}

  get value(): T {
    return this.current;
  }

  set(value: T): void {
    this.current = value;
    this.changed();
  }

  /** Say that the value itself is another now, though it is the same object. */
  changed(): void {
    for (const follower of [...this.followers]) follower();
  }

  follow(follower: () => void): () => void {
    this.followers.add(follower);
    return () => this.followers.delete(follower);
  }
}

export const signal = <T>(value: T): Signal<T> => new Signal(value);

/** The value, in a component that is drawn anew whenever it changes. */
export function useSignal<T>(of: Signal<T>): T {
  const [, redraw] = useReducer((count: number) => count + 1, 0);
  useEffect(() => of.follow(() => redraw(undefined as never)), [of]);
  return of.value;
}
